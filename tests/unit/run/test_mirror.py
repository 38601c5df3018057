"""A run that is kept in a storage: what a launcher puts there and brings from there, and what another machine sees of it."""

import io
import json
import shutil
import time
from types import SimpleNamespace

import pytest

from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.report import page
from podwright.run import create, journal, listing, mirror, session
from podwright.rundir import RunDir, append_jsonl, read_jsonl, recipe_of, write_json
from podwright.storage import inputs, open_storage
from podwright.storage.claim import Claim
from podwright.storage.records import Recorder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A recipe that names data and weights of this machine, as a run of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for part in ("train", "test"):
        (tmp_path / "data" / f"{part}.jsonl").write_text(json.dumps({"question": part, "answer": "#### 1"}) + "\n")
    recipe = load("qwen3-tiny-arithmetic-grpo", ["data.source=data"])
    return create.create(tmp_path / "runs" / "demo", recipe, "local", {"plan": 1})


def trained(url, folder):
    """What an attempt on some host leaves in the storage."""
    host = RunDir(folder)
    host.path.mkdir()
    claim = Claim.take(open_storage(url), 1)
    recorder = Recorder(host, claim)
    append_jsonl(host.metrics, {"stage": "grpo", "step": 1, "time": 2.0, "attempt": 1})
    write_json(host.exit(1), {"ending": "FINISHED", "step": 1, "detail": "", "fix": ""})
    recorder.publish()
    claim.release()


def test_another_machine_sees_the_run_by_its_url(here, tmp_path, url):
    kept = mirror.keep_in(here, url, 1.5, tmp_path)
    assert kept.startswith(f"{url}/demo-") and here.storage_url == kept
    trained(kept, tmp_path / "host")
    assert mirror.KeptRun(here).bring() == ""
    there = listing.find(tmp_path / "elsewhere", kept)
    assert there.path == tmp_path / "elsewhere" / "demo"
    for name in ("recipe.json", "plan.json", "journal.jsonl", "metrics.jsonl", "attempts/1/exit.json"):
        assert (there.path / name).read_bytes() == (here.path / name).read_bytes(), name
    journal.append(here, "submitting", attempt=1, handle={})
    mirror.KeptRun(here).bring()
    listing.find(tmp_path / "elsewhere", kept)
    assert list(read_jsonl(there.journal)) == list(read_jsonl(here.journal))


def test_local_data_is_uploaded_once_and_read_from_the_storage(here, tmp_path, bucket):
    kept = mirror.keep_in(here, bucket.url, 1.5, tmp_path)
    uploads = len([r for r in bucket.log if r.method == "POST"])
    assert mirror.keep_in(here, bucket.url, 1.5, tmp_path) == kept
    (here.path / inputs.LIST).unlink()  # killed before it was written down
    mirror.keep_in(here, bucket.url, 1.5, tmp_path)
    repeated = [r.object_name for r in bucket.log if r.method == "POST"][uploads:]
    assert not repeated
    there = mirror_elsewhere(here, tmp_path, kept)
    (tmp_path / "data" / "train.jsonl").unlink()
    source = inputs.localized(there, recipe_of(there))["data"]["source"]
    assert source.startswith(str(there.path / "inputs"))
    assert sorted(p.name for p in (there.path / "inputs").rglob("*.jsonl")) == ["test.jsonl", "train.jsonl"]
    asked = len(bucket.log)
    assert inputs.localized(there, recipe_of(there))["data"]["source"] == source and len(bucket.log) == asked


def mirror_elsewhere(here, tmp_path, kept):
    mirror.KeptRun(here).bring()
    return mirror.fetch(kept, tmp_path / "elsewhere")


def test_token_shards_are_read_in_the_storage_itself(tmp_path, url):
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "a.bin").write_bytes(b"1")
    recipe = {"kind": "pretrain", "data": {"source": "shards"}, "model": {"name": "x"}}
    write_json(run.storage, {"url": url})
    name = inputs.upload(run, recipe, tmp_path, open_storage(url))["data.source"]
    assert inputs.localized(run, recipe)["data"]["source"] == f"{open_storage(url).url}/{name}"
    assert open_storage(url).read(f"{name}/a.bin").data == b"1"


def test_folders_of_one_content_and_a_file_of_it_are_inputs_of_their_own(tmp_path, url):
    run = RunDir(tmp_path / "r")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.jsonl").write_text("{}")
    recipe = {
        "kind": "grpo",
        "model": {"source": "a"},
        "data": {"source": "b"},
        "aligner": {"source": "b/train.jsonl"},
    }
    write_json(run.storage, {"url": url})
    inputs.upload(run, recipe, tmp_path, open_storage(url))
    here = inputs.localized(run, recipe)
    for section, name in (("model", "a/train.jsonl"), ("data", "b/train.jsonl"), ("aligner", "train.jsonl")):
        assert (RunDir(here[section]["source"]).path.parent / name).read_text() == "{}"


def test_the_file_of_a_reward_is_uploaded_with_the_neighbours_that_it_imports(tmp_path, url):
    run = RunDir(tmp_path / "r")
    mine = tmp_path / "mine"
    (mine / "words").mkdir(parents=True)
    (mine / "right.py").write_text("import json\n\nfrom helping import WORDS\n\n\ndef right(): return WORDS\n")
    (mine / "helping.py").write_text("from words.long import WORDS\n")
    (mine / "words" / "__init__.py").touch()
    (mine / "words" / "long.py").write_text("WORDS = 'of the helper'\n")
    (mine / "private.py").touch()
    write_json(run.storage, {"url": url})
    rewards = [{"function": "podwright.train.grpo.reward:check_answer"}, {"function": "mine/right.py:right"}]
    recipe = {"kind": "grpo", "rewards": rewards}
    uploaded = inputs.upload(run, recipe, tmp_path, open_storage(url))
    assert list(uploaded) == ["rewards[1]"]
    (mine / "words" / "long.py").write_text("WORDS = 'corrected'\n")
    assert inputs.upload(run, recipe, tmp_path, open_storage(url)) != uploaded
    shutil.rmtree(mine)
    first, second = inputs.localized(run, {"kind": "grpo", "rewards": rewards})["rewards"]
    assert first == rewards[0]
    place, _, function = second["function"].rpartition(":")
    copied = RunDir(place).path.parent
    assert function == "right" and copied.is_relative_to(run.path)
    names = sorted(p.relative_to(copied).as_posix() for p in copied.rglob("*.py"))
    assert names == ["helping.py", "right.py", "words/__init__.py", "words/long.py"]
    assert "corrected" in (copied / "words" / "long.py").read_text()


def submitted(run):
    """As the launcher of another machine has it: an attempt of target `local` runs there."""
    handle = {"run_dir": "/of/another/machine/demo", "attempt": 1, "target": "local", "kind": "local", "settings": {}}
    journal.append(run, "submitting", attempt=1, handle=handle)
    journal.append(run, "submitted", attempt=1, handle=handle)


def lines(run):
    return [record["event"] for record in read_jsonl(run.journal)]


def test_a_run_of_another_machine_is_observed_and_left_alone(here, tmp_path, url, monkeypatch):
    kept = mirror.keep_in(here, url, 1.5, tmp_path)
    submitted(here)
    there = mirror_elsewhere(here, tmp_path, kept)
    assert mirror.observes(there) and not mirror.observes(here)
    assert listing.row(there)["state"] == "running", "its process is none of this machine's"
    with pytest.raises(UserError, match="another machine drives it; type podwright stop there, or,"):
        session.attend(there, "stop", io.StringIO())

    def ends_elsewhere(_):
        journal.append(here, "ended", attempt=1, ending="FINISHED")
        journal.append(here, "released", attempt=1)
        journal.append(here, "reported", attempt=1)
        mirror.KeptRun(here).bring()

    monkeypatch.setattr(session, "time", SimpleNamespace(sleep=ends_elsewhere))
    monkeypatch.setattr("podwright.run.finish.MIRROR_EVERY_S", 0.0)
    session.attend(there, "watch", io.StringIO())
    assert lines(there) == lines(here) == ["created", "submitting", "submitted", "ended", "released", "reported"]


def test_the_end_of_a_run_is_in_its_storage_for_those_who_observe_it(here, tmp_path, url):
    kept = mirror.keep_in(here, url, 1.5, tmp_path)
    submitted(here)
    there = mirror_elsewhere(here, tmp_path, kept)
    journal.append(here, "ended", attempt=1, ending="FINISHED")
    session.attend(here, "watch", io.StringIO())
    assert lines(here)[-1] == "reported"
    session.attend(there, "watch", io.StringIO())
    assert lines(there) == lines(here)


def test_resume_takes_a_run_over_and_the_first_machine_is_told_so_in_one_line(here, tmp_path, url):
    kept = mirror.keep_in(here, url, 1.5, tmp_path)
    submitted(here)
    there = mirror_elsewhere(here, tmp_path, kept)
    mirror.take_over(there)
    assert not mirror.observes(there) and lines(there)[-1] == "taken over"
    assert journal.read(there).handle["run_dir"] == str(there.path), "its files are looked for here"
    assert there.attempt(1).is_dir()
    with pytest.raises(UserError, match=r"run demo was continued from another machine.*; type podwright watch"):
        mirror.KeptRun(here).bring()
    assert mirror.fetch(kept, here.path.parent).path == here.path
    assert mirror.observes(here) and lines(here) == lines(there)
    with pytest.raises(mirror.DrivenElsewhere, match="can only be observed here; type podwright watch"):
        mirror.KeptRun(here).publish()


@pytest.mark.parametrize("before", [True, False])
def test_two_launchers_of_one_machine_publish_one_journal(here, tmp_path, url, monkeypatch, before):
    """The other one appends and publishes before or after this one has read the storage's journal."""
    storage = open_storage(mirror.keep_in(here, url, 1.5, tmp_path))
    mirror.KeptRun(here).publish()
    journal.append(here, "stopping")
    other = mirror.KeptRun(here)

    def read(name):
        found = None if before else storage.read(name)
        if name.endswith("journal.jsonl") and "released" not in lines(here):
            journal.append(here, "released")
            other.publish()
        return found or storage.read(name)

    open_real = mirror.open_storage
    other._storage = open_real(storage.url)
    between = SimpleNamespace(read=read, write=storage.write)
    monkeypatch.setattr(mirror, "open_storage", lambda *_: between)
    assert mirror.KeptRun(here).publish() == ""
    assert storage.read("run/journal.jsonl").data == here.journal.read_bytes()


def test_an_interrupted_fetch_is_repeated(here, tmp_path, monkeypatch):
    (tmp_path / "kept").mkdir()
    kept = mirror.keep_in(here, str(tmp_path / "kept"), 1.5, tmp_path)
    mirror.KeptRun(here).bring()
    with monkeypatch.context() as patched:
        patched.setattr(mirror.records, "bring", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            mirror.fetch(kept, tmp_path / "elsewhere")
    assert listing.run_dirs(tmp_path / "elsewhere") == []
    assert lines(mirror.fetch(kept, tmp_path / "elsewhere")) == ["created"]


def test_a_list_shows_what_is_in_the_storage(here, tmp_path, url):
    kept = mirror.keep_in(here, url, 1.5, tmp_path)
    trained(kept, tmp_path / "host")
    assert listing.row(here)["step"] == 1


def test_a_name_that_another_run_has_here_is_not_overwritten(here, tmp_path, url):
    kept = mirror.keep_in(here, url, 1.5, tmp_path)
    mirror.KeptRun(here).bring()
    (tmp_path / "elsewhere" / "demo").mkdir(parents=True)
    with pytest.raises(UserError, match=r"is another run than that in .*; type --runs DIR"):
        mirror.fetch(kept, tmp_path / "elsewhere")
    with pytest.raises(UserError, match="there is no run in"):
        mirror.fetch(kept[:-8] + "00000000", tmp_path / "none")


def test_a_launcher_waits_for_no_storage_that_fails(here, tmp_path, bucket):
    mirror.keep_in(here, bucket.url, 1.5, tmp_path)
    bucket.faults.status = 401
    assert "failed (login: " in mirror.KeptRun(here).bring()
    bucket.faults.status = 503
    begin = time.monotonic()
    assert "failed (server: " in mirror.KeptRun(here, 1.0).bring() and time.monotonic() - begin < 10


def test_a_report_is_on_what_is_in_the_storage(here, tmp_path, url):
    kept = mirror.keep_in(here, url, 1.5, tmp_path)
    trained(kept, tmp_path / "host")
    page.write(here)
    assert here.metrics.read_text() and here.exit(1).exists()


def test_a_launcher_waits_for_no_storage_that_hangs(here, tmp_path, bucket):
    mirror.keep_in(here, bucket.url, 1.5, tmp_path)
    bucket.faults.latency_s = 15.0
    begin = time.monotonic()
    assert "failed (network: " in mirror.KeptRun(here, 1.0).bring() and time.monotonic() - begin < 12


def test_the_relative_path_of_a_storage_holds_in_every_working_directory(here, tmp_path, monkeypatch):
    (tmp_path / "kept").mkdir()
    kept = mirror.keep_in(here, str(tmp_path / "kept"), 1.5, tmp_path)
    mirror.KeptRun(here).bring()
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    run = mirror.fetch(f"../kept/{kept.rpartition('/')[2]}", tmp_path / "elsewhere")
    assert run.storage_url == kept


def test_a_file_that_is_gone_is_said_before_machines_are_requested_and_one_in_the_storage_is_not_missed(
    here, tmp_path, url
):
    recipe = recipe_of(here)
    write_json(here.recipe, recipe | {"data": recipe["data"] | {"source": "data/questions.jsonl"}})
    with pytest.raises(UserError, match=r"data\.source=data/questions\.jsonl is not there"):
        mirror.keep_in(here, url, 1.5, tmp_path)
    (tmp_path / "data" / "questions.jsonl").write_text(json.dumps({"question": "q", "answer": "#### 1"}) + "\n")
    kept = mirror.keep_in(here, url, 1.5, tmp_path)
    shutil.rmtree(tmp_path / "data")
    assert mirror.keep_in(here, url, 1.5, tmp_path) == kept


def test_what_is_wrong_in_a_storage_keeps_no_attempt_from_its_end(here, tmp_path, url):
    storage = open_storage(mirror.keep_in(here, url, 1.5, tmp_path))
    foreign = {"attempt": 1, "token": "", "grown": {}, "files": {"evil.txt": ""}}
    storage.write("records/00000001.json", json.dumps(foreign).encode())
    assert mirror.KeptRun(here).bring(1)
    there = RunDir(tmp_path / "elsewhere" / "demo")
    shutil.copytree(here.path, there.path)
    mirror.KeptRun(here).publish()
    write_json(there.storage, {"url": storage.url, "observer": True})
    with pytest.raises(UserError) as e:
        mirror.KeptRun(there).bring()
    assert e.value.code == "foreign-object"


def test_a_bucket_that_is_gone_is_a_warning_to_a_launcher(here, tmp_path, bucket, monkeypatch):
    mirror.keep_in(here, bucket.url, 1.5, tmp_path)
    gone = UserError("there is no bucket", "correct storage", "no-such-bucket")

    def refuse(*_):
        raise gone

    monkeypatch.setattr("podwright.storage.bucket.Bucket.write", refuse)
    assert mirror.KeptRun(here).publish(always=True) == str(gone)

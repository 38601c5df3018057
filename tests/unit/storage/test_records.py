"""Records in a storage: nothing is lost and nothing is there twice, wherever a trainer or a mirror is killed."""

import json
import shutil

import pytest

from podwright.errors import UserError
from podwright.rundir import RunDir, append_jsonl, read_jsonl, write_json
from podwright.storage import open_storage
from podwright.storage.claim import Claim, ClaimLost
from podwright.storage.records import Recorder, bring


class Killed(BaseException):
    pass


class Mortal:
    """A storage whose process is killed before or after its n-th write."""

    def __init__(self, storage, count, after):
        self.storage, self.count, self.after, self.url = storage, count, after, storage.url

    def __getattr__(self, name):
        return getattr(self.storage, name)

    def write(self, *args):
        self.count -= 1
        if self.count == 0 and not self.after:
            raise Killed
        generation = self.storage.write(*args)
        if self.count == 0:
            raise Killed
        return generation


def train(run, storage, attempt, last=6):
    """Steps of a trainer that publishes every second one, which a checkpoint then makes good."""
    recorder = Recorder(run, Claim.take(storage, attempt, takeover=True))
    saved = storage.read("saved")
    for step in range(int(saved.data) + 1 if saved else 1, last + 1):
        append_jsonl(run.metrics, {"stage": "grpo", "step": step, "attempt": attempt})
        if step % 2 == 0:
            append_jsonl(run.events, {"event": "checkpoint", "step": step})
            recorder.publish()
            storage.write("saved", str(step).encode())
    write_json(run.flags("after"), [True, False])
    write_json(run.exit(attempt), {"ending": "FINISHED"})
    recorder.publish()


def contents(run):
    files = [run.metrics, run.events, run.flags("after"), *sorted(run.path.glob("attempts/*/exit.json"))]
    return {str(path.relative_to(run.path)): path.read_text() for path in files if path.exists()}


def test_a_mirror_has_what_the_trainer_wrote(url, tmp_path):
    storage, run, mirror = open_storage(url), RunDir(tmp_path / "run"), RunDir(tmp_path / "mirror")
    for path in (run.path, mirror.path):
        path.mkdir()
    train(run, storage, 1)
    bring(mirror, storage)
    assert contents(mirror) == contents(run) and len(list(read_jsonl(mirror.metrics))) == 6
    assert bring(mirror, storage) == len(storage.names("records/"))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("count", range(1, 11))
def test_no_record_is_lost_or_doubled_by_a_kill_between_any_two_writes(tmp_path, count, after, kept):
    """`kept`: the next attempt is on the machine of the first, else on one whose disk is empty."""
    storage, run, mirror = (
        open_storage(str(tmp_path / "storage")),
        RunDir(tmp_path / "run"),
        RunDir(tmp_path / "mirror"),
    )
    for path in (run.path, mirror.path):
        path.mkdir()
    try:
        train(run, Mortal(storage, count, after), 1)
        killed = False
    except Killed:
        killed = True
    assert killed or count == 10
    bring(mirror, storage)
    if killed:
        if not kept:
            shutil.rmtree(run.path)
            run.path.mkdir()
        train(run, storage, 2)
    bring(mirror, storage)
    assert contents(mirror) == contents(run)
    steps = {}
    for record in read_jsonl(run.metrics):
        steps.setdefault(record["step"], []).append(record["attempt"])
    assert sorted(steps) == [1, 2, 3, 4, 5, 6]
    assert all(attempts == sorted(set(attempts)) for attempts in steps.values())  # each attempt wrote each step once


def test_a_mirror_that_is_killed_between_two_files_catches_up(tmp_path, monkeypatch):
    storage, run, mirror = open_storage(str(tmp_path / "s")), RunDir(tmp_path / "run"), RunDir(tmp_path / "mirror")
    for path in (run.path, mirror.path):
        path.mkdir()
    train(run, storage, 1)
    with monkeypatch.context() as patched:
        patched.setattr("podwright.storage.records._write_state", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            bring(mirror, storage)
    mirror.events.unlink()
    mirror.metrics.write_text(mirror.metrics.read_text()[:30])
    bring(mirror, storage)
    assert contents(mirror) == contents(run)


def test_a_mirror_whose_files_were_removed_is_filled_again(tmp_path):
    storage, run, mirror = open_storage(str(tmp_path / "s")), RunDir(tmp_path / "run"), RunDir(tmp_path / "mirror")
    for path in (run.path, mirror.path):
        path.mkdir()
    train(run, storage, 1, last=4)
    bring(mirror, storage)
    mirror.metrics.unlink()
    train(run, storage, 2)
    bring(mirror, storage)
    assert contents(mirror) == contents(run)


def test_records_that_never_reached_the_storage_give_way_to_those_of_a_later_attempt(tmp_path):
    storage, old, new = open_storage(str(tmp_path / "s")), RunDir(tmp_path / "old"), RunDir(tmp_path / "new")
    for run in (old, new):
        run.path.mkdir()
    train(old, storage, 1, last=2)
    append_jsonl(old.metrics, {"stage": "grpo", "step": 3, "attempt": 1, "note": "x" * 500})
    train(new, storage, 2, last=4)
    train(old, storage, 3)
    assert [(r["step"], r["attempt"]) for r in read_jsonl(old.metrics)] == [
        (1, 1),
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 3),
        (6, 3),
    ]


def test_an_attempt_that_lost_the_storage_writes_no_segment(url, tmp_path):
    storage, run = open_storage(url), RunDir(tmp_path / "run")
    run.path.mkdir()
    first = Claim.take(storage, 1)
    recorder = Recorder(run, first)
    late = RunDir(tmp_path / "late")
    late.path.mkdir()
    second = Recorder(late, Claim.take(storage, 2, takeover=True))
    append_jsonl(run.metrics, {"stage": "grpo", "step": 1, "attempt": 1})
    with pytest.raises(ClaimLost):
        recorder.publish()
    object.__setattr__(first, "check", lambda: None)  # it had looked just before the takeover
    with pytest.raises(ClaimLost):
        recorder.publish()
    append_jsonl(late.metrics, {"stage": "grpo", "step": 1, "attempt": 2})
    second.publish()
    segments = [json.loads(storage.read(name).data) for name in storage.names("records/")]
    assert [segment["attempt"] for segment in segments] == [1, 2, 2]


@pytest.mark.parametrize(
    "name", ["../../evil.txt", "/tmp/evil.txt", "recipe.json", "evaluations/../../evil.json", "evaluations/a/b.json"]
)
def test_a_segment_writes_nothing_but_records(tmp_path, name):
    storage, run = open_storage(str(tmp_path / "s")), RunDir(tmp_path / "runs" / "run")
    run.path.mkdir(parents=True)
    for segment in ({"grown": {name: {"at": 0, "text": "x"}}, "files": {}}, {"grown": {}, "files": {name: ""}}):
        storage.write("records/00000001.json", json.dumps({"attempt": 1, "token": ""} | segment).encode())
        with pytest.raises(UserError, match="which is no record of a run"):
            bring(run, storage)
    assert list(run.path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b'{"attempt": 1}', b"[1"])
def test_a_damaged_segment_is_one_line(tmp_path, content):
    storage, run = open_storage(str(tmp_path / "s")), RunDir(tmp_path / "run")
    run.path.mkdir()
    storage.write("records/00000001.json", content)
    with pytest.raises(UserError) as e:
        bring(run, storage)
    assert e.value.code == "damaged-file"

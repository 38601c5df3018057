"""A target is a module, a row in kinds.py and its test; and a run holds on to the target that it was submitted to."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from podwright import targets
from podwright.errors import UserError
from podwright.recipe import kinds as recipe_kinds
from podwright.run import drive, journal
from podwright.rundir import Ending, RunDir, append_jsonl, write_json
from podwright.targets import entries, kinds

# The module of the throw-away target: what it is told, and how it does it (here, as this machine does).
MODULE = """
from typing import Literal

from pydantic import BaseModel, ConfigDict

from podwright.targets.base import Traits, identity
from podwright.targets.local import Local


class BorrowedSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["borrowed"]
    greeting: str = ""
    runs: str = ""
    gpus_per_node: int = 0

    def devices(self):
        return None

    def traits(self):
        return Traits(poll_s=0.05, start_grace_s=1.0)


class Borrowed:
    provisioner = None

    def __init__(self, shell, name, settings):
        self._local, self._settings = Local(shell), settings
        self.identity, self.traits = identity(name, settings), settings.traits()

    def render(self, job, hosts=None):
        rendered = self._local.render(job)
        rendered.env["GREETING"] = self._settings.greeting
        rendered.handle.update(self.identity)
        return rendered

    def __getattr__(self, name):
        return getattr(self._local, name)
"""
TRAINER = """
import json, os, pathlib, sys, time
run, number = pathlib.Path(sys.argv[1]), sys.argv[2]
(run / f"greeting-{number}").write_text(os.environ["GREETING"])
end = time.time() + 30
while number == "1" and not (run / "go").exists() and time.time() < end:
    time.sleep(0.02)
record = {"ending": "FINISHED" if number == "2" else "STOPPED", "detail": "", "fix": "", "step": 1}
(run / "attempts" / number / "exit.json").write_text(json.dumps(record))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "borrowed_target.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    row = kinds.TargetKind("borrowed_target:BorrowedSettings", "borrowed_target:Borrowed")
    monkeypatch.setitem(kinds.KINDS, "borrowed", row)
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    grpo = replace(recipe_kinds.KINDS["grpo"], command=("{python}", "-c", TRAINER, "{run_dir}", "{attempt}"))
    monkeypatch.setitem(recipe_kinds.KINDS, "grpo", grpo)
    monkeypatch.setattr(drive, "TICK_S", 0.02)
    yield tmp_path / "targets.yaml"
    sys.modules.pop("borrowed_target", None)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    write_json(run.recipe, {"kind": "grpo", "name": "r", "training": {"max_steps": 1}})
    journal.append(run, "created", recipe="r", target="theirs", cwd=str(tmp_path))
    return run


def driver(run: RunDir) -> drive.Driver:
    return drive.Driver(run, lambda *_: None, lambda _: None)


def greeting(run: RunDir, number: int) -> str:
    return (run.path / f"greeting-{number}").read_text()


@pytest.mark.parametrize("change", ["renamed", "deleted", "changed", "another kind"])
def test_a_live_run_is_not_orphaned_by_a_change_of_its_entry(file: Path, run: RunDir, change: str) -> None:
    entries.add("theirs", ["kind=borrowed", "greeting=first"])
    assert targets.resolve("theirs").traits.poll_s == 0.05
    assert driver(run).submit().attempt == 1
    file.write_text(
        {
            "renamed": "ours: {kind: borrowed, greeting: first}\n",
            "deleted": "",
            "changed": "theirs: {kind: borrowed, greeting: second}\n",
            "another kind": "theirs: {kind: ssh, hosts: [nowhere.invalid]}\n",
        }[change]
    )
    assert driver(run).look().polled.process is targets.base.Process.RUNNING
    (run.path / "go").touch()
    assert driver(run).follow().ending is Ending.STOPPED and greeting(run, 1) == "first"
    if change == "another kind":
        before = run.journal.read_text()
        for text, says in (
            (file.read_text(), "target theirs was changed since attempt 1: the name of host nowhere.invalid"),
            ("theirs: [\n", "targets.yaml line 2 is not YAML: at column 1, "),
            ("theirs: {kind: ssh}\n", "target 'theirs': hosts is missing"),
        ):
            file.write_text(text)
            with pytest.raises(UserError, match=says):
                drive.resume(driver(run))
            assert run.journal.read_text() == before, "the run is as it was"
        return
    assert drive.resume(driver(run)).ending is Ending.FINISHED
    assert greeting(run, 2) == ("second" if change == "changed" else "first"), "a new attempt takes the entry as it is"


@pytest.mark.parametrize(
    ("days", "says"), [(0.9, ""), (3.1, "; the last one was 3 days ago: the name of host nowhere")]
)
def test_a_resume_checks_an_unchanged_target_again_after_a_day(file: Path, run: RunDir, days: float, says: str) -> None:
    entries.add("theirs", ["kind=ssh", "hosts=[nowhere.invalid]"])
    handle = targets.current("theirs", {}) | {"run_dir": str(run.path), "attempt": 1, "hosts": []}
    begun = time.time() - days * 86_400
    for number, event in enumerate(("submitting", "submitted", "ended", "released")):
        fields = {"ending": "STOPPED"} if event == "ended" else {"handle": handle} if number < 2 else {}
        append_jsonl(run.journal, {"event": event, "time": begun, "attempt": 1} | fields)
    before, state = run.journal.read_text(), journal.read(run)
    if not says:
        drive._require_target(run, state, "grpo")
        return
    with pytest.raises(UserError, match=f"target theirs takes no attempt now{says}"):
        drive.resume(driver(run))
    assert run.journal.read_text() == before, "the run is as it was"


def test_a_resume_checks_a_target_that_has_had_no_attempt_of_an_old_run(file: Path, run: RunDir) -> None:
    entries.add("theirs", ["kind=ssh", "hosts=[nowhere.invalid]"])
    state = replace(journal.read(run), created=time.time() - 3.1 * 86_400)
    with pytest.raises(UserError, match="takes no attempt now; the run was created 3 days ago: the name of host nowhe"):
        drive._require_target(run, state, "grpo")
    drive._require_target(run, replace(state, created=time.time()), "grpo")


def test_a_handle_is_plain_json_that_opens_its_target_again(file: Path, run: RunDir) -> None:
    entries.add("theirs", ["kind=borrowed", "greeting=hello"])
    job = targets.base.Job(run.path, 1, run.path)
    handle = targets.resolve("theirs").open().render(job).handle
    again = targets.of_handle(json.loads(json.dumps(handle)))
    assert again.render(job).handle == handle and again.render(job).env["GREETING"] == "hello"


def test_a_handle_of_an_unknown_kind_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"\(kind=None\) that this version cannot read"):
        targets.of_handle({"run_dir": "/r", "attempt": 1})


@pytest.mark.parametrize(
    "handle",
    [{"kind": "local"}, {"kind": "ssh", "target": "t", "settings": {"hosts": 3}}, {"kind": "local", "target": "t"}],
)
def test_a_handle_of_another_version_is_refused_in_one_line(handle: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"that this version cannot read; follow the run with the version") as e:
        targets.of_handle(handle)
    assert "\n" not in str(e.value)


def test_recorded_settings_are_read_though_an_entry_may_not_have_them(file: Path, run: RunDir) -> None:
    entries.add("theirs", ["kind=ssh", "hosts=[gpu-1]", "tasks_per_node=2"])
    identity = targets.current("theirs", None)
    identity["settings"] |= {"env": ["PATH", "HF_TOKEN"], "gpus_per_node": 8, "accelerator": "X1000"}
    opened = targets.of_handle(json.loads(json.dumps(identity)))
    assert opened.identity == identity
    entries.require_accepted(identity)
    entries.remove("theirs")
    state = replace(journal.read(run), handle=identity)
    with pytest.raises(UserError) as refused:
        drive._require_target(run, state, "grpo")
    assert "\n" not in str(refused.value) and str(refused.value).startswith("target 'theirs': env: has PATH, which "), (
        refused.value
    )
    assert "recorded by the run" in refused.value.what
    assert refused.value.fix == "type podwright target add theirs kind=ssh with the corrected settings"


def test_recorded_settings_are_read_without_keys_that_settings_no_longer_have(file: Path) -> None:
    entries.add("pod", ["kind=gke", "project=my-project", "cluster=c", "zones=[us-central1-a]"])
    identity = targets.current("pod", None)
    old = identity | {"settings": identity["settings"] | {"submit": "xpk", "xpk": "1.16.0"}}
    assert targets.of_handle(json.loads(json.dumps(old))).identity == identity


@pytest.mark.parametrize("record", [{}, {"name": "pw-1", "zone": "a", "argv": [], "colour": "red"}])
def test_a_request_of_another_version_is_refused_in_one_line(record: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"a request '(pw-1)?' for machines that this version cannot read; follow"):
        targets.machines.Request.of(record)

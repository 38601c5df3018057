"""What `list` says of runs that their targets, or their clouds, have not let go yet."""

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from podwright import targets
from podwright.cli.app import main
from podwright.errors import UserError
from podwright.run import journal, listing, session, silence
from podwright.run.session import STOPPING, _saving_or_left, attend
from podwright.rundir import RunDir, write_json
from podwright.shell import Shell
from podwright.targets.base import Polled, Process, Traits, identity
from podwright.targets.machines import Request, ready
from podwright.targets.settings.local import LocalSettings
from podwright.targets.settings.slurm import SlurmSettings
from podwright.targets.settings.tpu_vm import TpuVmSettings

LAB = identity("lab", SlurmSettings(kind="slurm", nodes=2))
TPU = identity(
    "tpu", TpuVmSettings(kind="tpu-vm", project="a-project", zones=("us-east5-b",), accelerator_type="v6e-16")
)


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., RunDir]:
    def begin(name: str, target: dict[str, Any], **handle: object) -> RunDir:
        run = RunDir(tmp_path / "runs" / name)
        run.attempt(1).mkdir(parents=True)
        write_json(run.recipe, {"kind": "grpo", "name": name, "training": {"max_steps": 5}})
        journal.append(run, "created", recipe=name, target=target["target"], cwd="/", retries=0)
        known = {"run_dir": str(run.path), "attempt": 1, "processes": 2, **handle, **target}
        for event in ("submitting", "submitted"):
            journal.append(run, event, attempt=1, handle=known)
        return run

    return begin


def test_slurm_is_asked_once_for_all_runs_of_a_target(
    begin: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def ask(self: Shell, argv: list[str], seconds: float = 60.0) -> tuple[int, str, str]:
        asked.append(list(argv))
        return 0, "".join(f"{n}|PENDING|Priority|job-{n}|\n" for n in range(1, 4)), ""

    monkeypatch.setattr(Shell, "ask", ask)
    for n in range(1, 4):
        run = begin(f"r{n}", LAB, job_name=f"job-{n}")
        (run.attempt(1) / "sbatch.txt").write_text(f"{n}\n")
    rows = listing.rows(run.path.parent)
    assert [row["detail"] for row in rows] == ["Priority: jobs of a higher priority are before it"] * 3
    assert [argv[0] for argv in asked] == ["squeue"] and "--name=job-1,job-2,job-3" in asked[0]


def test_an_ending_that_was_written_is_said_while_a_process_stays(
    begin: Callable[..., RunDir], capsys: pytest.CaptureFixture[str]
) -> None:
    run = begin("r", identity("local", LocalSettings()))
    write_json(run.pid(1), {"pid": os.getpid(), "created": psutil.Process().create_time()})
    write_json(run.exit(1), {"ending": "CRASHED", "detail": "a queue is full", "fix": "", "step": 3})
    assert listing.row(run)["state"] == "running", "it may take a moment to leave"
    os.utime(run.exit(1), (time.time() - 60, time.time() - 60))
    row = listing.row(run)
    said = "Ending: the trainer has ended (CRASHED: a queue is full); not all of its processes have"
    assert (row["state"], row["ending"], row["detail"]) == ("waiting", None, said)
    assert main(["list", "--runs", str(run.path.parent)]) == 0
    out, err = capsys.readouterr()
    assert "waiting (Ending)" in out and f"r: {said}" in err


def finished(run: RunDir, refusal: str) -> None:
    request = Request("pw-r-1", "zone-a", chip="v6e", num_chips=16, price=2.0)
    journal.append(run, "allocation requested", allocation=1, request=vars(request), target=TPU)
    journal.append(run, "allocation ready", allocation=1, hosts=[])
    for event in ({"event": "ended", "ending": "FINISHED"}, {"event": "released"}):
        journal.append(run, attempt=1, **event)
    journal.append(run, "allocation deleting", allocation=1)
    journal.append(run, "allocation undeleted", allocation=1, refusal=refusal)
    journal.append(run, "reported", attempt=1, error=None)


@pytest.mark.parametrize("refusal", ["Forbidden: the login may not delete nodes (403)", ""])
def test_list_says_what_is_not_deleted_and_why(
    begin: Callable[..., RunDir], capsys: pytest.CaptureFixture[str], refusal: str
) -> None:
    run = begin("r", TPU)
    finished(run, refusal)
    assert main(["list", "--runs", str(run.path.parent)]) == 0
    _, err = capsys.readouterr()
    why = f"pw-r-1 is not deleted, and may cost ({refusal}" if refusal else "pw-r-1 is not gone yet"
    assert f"r: Deleting: {why}" in err, err
    assert main(["list", "--runs", str(run.path.parent), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["cleanup"].startswith(f"Deleting: {why}")


@pytest.mark.parametrize("barred", [False, True], ids=["hosts that may be away", "a login that a person has to renew"])
def test_machines_of_silent_hosts_are_said_to_count_as_lost_soon_unless_a_person_is_to_act(
    begin: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch, barred: bool
) -> None:
    run, now = begin("r", TPU), [1e9]
    monkeypatch.setattr(journal, "now", lambda: now[0])
    monkeypatch.setattr(journal, "uptime", lambda: ("", 0.0))
    request = Request("pw-r-1", "zone-a", chip="v6e", num_chips=16)
    journal.append(run, "allocation requested", allocation=1, request=vars(request), target=TPU)
    journal.append(run, "allocation ready", allocation=1, hosts=[])
    silence.silent_s(run, 1, True)
    now[0] += 300.0
    cloud = SimpleNamespace(describe=lambda *_: ready(()))
    target = SimpleNamespace(provisioner=cloud, traits=Traits(silence_s=1800.0))
    monkeypatch.setattr(targets, "of_handle", lambda _: target)
    polled = Polled(Process.RUNNING, waiting="Unreachable: x", silent=True, barred=barred)
    row = listing.row(run, {(run.path, 1): polled})
    assert row["state"] == "waiting" and row["detail"].startswith("Unreachable: x (since ")
    assert ("its machines count as lost, and others are requested" in row["detail"]) is not barred


def test_an_interrupt_after_the_end_names_what_goes_on_costing(begin: Callable[..., RunDir]) -> None:
    run = begin("r", TPU)
    assert _saving_or_left(journal.read(run)) == STOPPING
    finished(run, "")
    said = _saving_or_left(journal.read(run))
    assert said == (
        "the run has ended (FINISHED); Ctrl-C again leaves it before pw-r-1 is seen to be gone: "
        "it may go on costing, 16 v6e chips for 32.00 USD per hour"
    )
    journal.append(run, "allocation gone", allocation=1, since=None)
    assert _saving_or_left(journal.read(run)) == "the run has ended (FINISHED); Ctrl-C again leaves it"


@pytest.mark.parametrize(("gone", "code"), [(False, 130), (True, 0)])
def test_who_leaves_a_finished_run_before_its_machines_are_gone_gets_the_code_of_ctrl_c(
    begin: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch, gone: bool, code: int
) -> None:
    run = begin("r", TPU)
    finished(run, "")
    if gone:
        journal.append(run, "allocation gone", allocation=1, since=None)
        journal.append(run, "reported", attempt=1, error=None)
    monkeypatch.setattr(session, "attend", lambda *_: (True, False))
    assert main(["stop", str(run.path)]) == code


def test_nobody_resumes_a_run_detached_whose_machines_nobody_would_delete(
    begin: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin("r", TPU)
    monkeypatch.setattr(targets, "current", lambda *_: TPU)
    before = run.journal.read_bytes()
    with pytest.raises(UserError, match="nothing would delete the machines that tpu creates"):
        attend(run, "resubmit", io.StringIO())
    assert run.journal.read_bytes() == before


def test_a_run_whose_target_has_no_entry_any_more_is_resumed_detached(
    begin: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    run, verbs = begin("r", LAB, job_name="j"), []

    def carry_out(driver: object, verb: str, interrupts: object) -> journal.RunState:
        verbs.append(verb)
        return journal.read(run)

    monkeypatch.setattr(session, "_drive", carry_out)
    attend(run, "resubmit", io.StringIO())
    assert verbs == ["resubmit"]


@pytest.mark.parametrize("jump_s", [86400.0, -86400.0])
@pytest.mark.parametrize("before_s", [1800.0, 3660.0])
def test_a_clock_that_is_set_changes_no_chip_hours(
    begin: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch, jump_s: float, before_s: float
) -> None:
    """While there are machines, or after they have been seen to be gone."""
    run, clock = begin("r", TPU), {"up": 50.0, "wall": 1e9}
    monkeypatch.setattr(journal, "now", lambda: clock["wall"] + (jump_s if clock["up"] > 50.0 + before_s else 0.0))
    monkeypatch.setattr(journal, "uptime", lambda: ("this", clock["up"]))
    finished(run, "")
    for seconds in (3600.0, 120.0):
        clock["up"] += seconds
        clock["wall"] += seconds
        journal.append(run, "allocation gone", allocation=1, since=journal.now())
    assert listing.row(run)["usage"]["chip_hours"] == pytest.approx(16.0)

"""Machines that appear after their run has had them deleted: whoever sees them deletes them, or names them with their price."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from podwright import targets
from podwright.errors import UserError
from podwright.run import cleaning, drive, journal, mirror, removal, session, strays
from podwright.run.decide import Act
from podwright.run.states import AllocationPhase
from podwright.rundir import RunDir, write_json
from podwright.targets import machines
from podwright.targets.base import Barred, Job, Polled, Process, Released, Rendered, Traits
from podwright.targets.machines import GONE, AllocationState, ChargedChips, Owned, Request

COST = "16 v6e chips for up to 43.20 USD per hour"


class Cloud:
    """A target, and the cloud that creates its machines: at once, or when `arrive` is called."""

    def __init__(self, storage: Path) -> None:
        self.identity = {"target": "t", "kind": "simulated", "settings": {}}
        self.traits = Traits(poll_s=0.0, lag_s=0.0, zones=("z",), storage=str(storage), pods=True)
        self.provisioner = self
        self.there: dict[str, Request] = {}
        self.under_way: list[Request] = []
        self.is_late = False
        self.fault: UserError | None = None
        self.may_not: UserError | None = None
        self.released: list[int] = []

    def arrive(self) -> None:
        self.there |= {request.name: request for request in self.under_way}
        self.under_way.clear()

    def describe_request(self, run_dir: Path, created: float, number: int, avoid: Any) -> Request:
        return Request(f"pw-{run_dir.parent.name}-{number}", "z", chip="v6e", num_chips=16)

    def create(self, request: Request) -> machines.Allocation:
        self.under_way.append(request)
        if not self.is_late:
            self.arrive()
        return machines.waiting("Creating: x")

    def describe(self, request: Request, ready_since: float | None = None) -> machines.Allocation:
        return machines.waiting("Queued: x") if request.name in self.there else GONE

    def delete(self, request: Request) -> None:
        if self.may_not:
            raise self.may_not
        self.there.pop(request.name, None)

    def list_owned(self) -> list[Owned]:
        if self.fault:
            raise self.fault
        return [Owned(each, "", AllocationState.WAITING, charged=ChargedChips(0)) for each in self.there.values()]

    def render(self, job: Job, hosts: Any = None) -> Rendered:
        return Rendered((), job.cwd, {"attempt": job.attempt, **self.identity})

    def poll(self, handle: Any) -> Polled:
        return Polled(Process.ENDED)

    def release(self, handle: Any) -> Released:
        self.released.append(handle["attempt"])
        return Released(True)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    (tmp_path / "kept").mkdir()
    cloud = Cloud(tmp_path / "kept")
    monkeypatch.setattr(targets, "of_handle", lambda _: cloud)
    monkeypatch.setattr(targets, "current", lambda *_: cloud.identity)
    monkeypatch.setattr("podwright.run.act.write_report", lambda _: None)
    monkeypatch.setattr(drive, "_require_target", lambda *_: None)
    monkeypatch.setattr(drive, "TICK_S", 0.0)
    monkeypatch.setattr(strays, "BARRED_S", 0.1)
    return cloud


@pytest.fixture
def first(cloud: Cloud, tmp_path: Path) -> RunDir:
    """The run on the machine that has started it, whose first request is under way."""
    run = RunDir(tmp_path / "a" / "r")
    run.path.mkdir(parents=True)
    recipe = {"kind": "grpo", "name": "r", "training": {"max_steps": 1}}
    write_json(run.recipe, recipe)
    journal.append(run, "created", recipe="r", target="t", cwd=str(tmp_path), retries=5)
    cloud.is_late = True
    assert drive.Driver(run, lambda *_: None, lambda _: None).step() is Act.REQUEST
    return run


def taken_over(first: RunDir, tmp_path: Path) -> RunDir:
    there = mirror.fetch(first.storage_url, tmp_path / "b")
    mirror.take_over(there)
    return there


def verb(run: RunDir, name: str) -> str:
    """What it prints."""
    out = io.StringIO()
    session.attend(run, name, out)
    return out.getvalue()


def refused(run: RunDir, name: str) -> str:
    """What a verb prints on a run that another machine has gone on with."""
    out = io.StringIO()
    with pytest.raises(mirror.DrivenElsewhere):
        session.attend(run, name, out)
    return out.getvalue()


@pytest.mark.parametrize("name", ["follow", "stop", "resume"])
def test_a_launcher_deletes_what_it_has_requested_of_a_run_that_was_stopped_elsewhere(
    cloud: Cloud, first: RunDir, tmp_path: Path, name: str
) -> None:
    verb(there := taken_over(first, tmp_path), "stop")
    assert journal.read(there).allocation.phase is AllocationPhase.GONE  # type: ignore[union-attr]
    cloud.arrive()
    shown = refused(first, name)
    assert cloud.there == {} and f"warning: pw-a-1 in z ({COST}) exists, and its run has had it deleted" in shown


def test_a_launcher_waits_for_what_may_still_appear_of_its_request(
    cloud: Cloud, first: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb(taken_over(first, tmp_path), "stop")
    looks: list[int] = []

    def describe(request: Request, ready_since: float | None = None) -> machines.Allocation:
        looks.append(1)
        if len(looks) == 3:
            cloud.arrive()
        return machines.waiting("Requesting: gcloud is at work") if cloud.under_way or cloud.there else GONE

    monkeypatch.setattr(cloud, "describe", describe)
    assert COST in refused(first, "follow") and len(looks) > 3 and cloud.there == {}


def test_machines_that_the_other_launcher_counts_on_are_left_alone(cloud: Cloud, first: RunDir, tmp_path: Path) -> None:
    there = taken_over(first, tmp_path)
    cloud.arrive()
    assert "exists, and" not in refused(first, "follow") and list(cloud.there) == ["pw-a-1"]
    verb(there, "stop")
    assert cloud.there == {}


def test_a_launcher_that_leaves_the_run_does_not_wait_for_machines_of_long_ago(
    cloud: Cloud, first: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloud may show objects of the run that count as parts of each of its requests: here the other machine's attempt."""
    cloud.arrive()
    drive.stop(drive.Driver(first, lambda *_: None, lambda _: None))
    journal.append(first, "resumed")
    cloud.is_late = False
    assert drive.Driver(first, lambda *_: None, lambda _: None).step() is Act.REQUEST
    taken_over(first, tmp_path)
    monkeypatch.setattr(cloud, "describe", lambda *_: machines.partial("Incomplete: an attempt exists"))
    monkeypatch.setattr(strays, "LIMIT_S", 0.3)
    assert "may exist" not in refused(first, "follow")


def test_what_cannot_be_deleted_or_seen_is_named_with_its_price(cloud: Cloud, first: RunDir, tmp_path: Path) -> None:
    verb(taken_over(first, tmp_path), "stop")
    cloud.arrive()
    cloud.may_not = Barred("NoPermission: x", "ask for it", "a-code")
    shown = refused(first, "follow")
    assert (
        f"pw-a-1 in z ({COST}) is not deleted (NoPermission: x; ask for it); type podwright clean t pw-a-1 --yes"
        in shown
    )
    cloud.fault = Barred("NoLogin: x", "type gcloud auth login", "a-code")
    shown = refused(first, "follow")
    assert f"pw-a-1 in z ({COST}): whether they exist could not be seen (NoLogin: x; type gcloud auth login)" in shown


@pytest.mark.parametrize("name", ["stop", "watch"])
def test_a_later_verb_deletes_what_its_run_has_had_deleted(
    cloud: Cloud, first: RunDir, tmp_path: Path, name: str
) -> None:
    verb(there := taken_over(first, tmp_path), "stop")
    cloud.arrive()
    assert f"pw-a-1 in z ({COST}) exists" in verb(there, name) and cloud.there == {}
    assert verb(there, name).count("exists") == 0


def test_clean_removes_what_a_run_has_had_deleted_whoever_created_it(
    cloud: Cloud, first: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb(there := taken_over(first, tmp_path), "stop")
    cloud.arrive()
    monkeypatch.setattr(cleaning.entries, "names", lambda: ["t"])
    monkeypatch.setattr(cleaning.entries, "require", lambda _: None)
    monkeypatch.setattr(cleaning.entries, "find", lambda _: SimpleNamespace(traits=lambda: cloud.traits))
    monkeypatch.setattr(targets, "resolve", lambda _: SimpleNamespace(open=lambda: cloud))
    owned = replace(cloud.list_owned()[0], mine=False)
    monkeypatch.setattr(cloud, "list_owned", lambda: [owned] if cloud.there else [])
    (stray,) = cleaning.inventory("t", there.path.parent).slices
    assert (stray.need, stray.removable) == (cleaning.Need.STRAY, True)
    assert stray.detail == "run r has had it deleted, and it exists again"
    assert removal.remove([stray], lambda _: None, 5.0) == {} and cloud.there == {}


def test_a_run_whose_machines_were_never_created_costs_no_look(cloud: Cloud, first: RunDir) -> None:
    journal.append(first, "allocation refused", allocation=1, scope="", reason="x", ending="BAD_INPUT", uncreated=True)
    assert strays.requested(first) == {}


def test_an_attempt_that_was_submitted_late_is_released(cloud: Cloud, first: RunDir, tmp_path: Path) -> None:
    there = taken_over(first, tmp_path)
    for run in (first, there):
        journal.append(run, "submitting", attempt=1, handle={"attempt": 1, **cloud.identity}, on_allocation=1)
    mirror.KeptRun(there).publish(always=True)
    refused(first, "follow")
    assert cloud.released == [], "the other machine follows it"
    verb(there, "stop")
    cloud.released.clear()
    refused(first, "follow")
    assert cloud.released == [1]

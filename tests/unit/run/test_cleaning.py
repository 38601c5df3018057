"""What of runs is listed, what is not, and the removal of what nobody needs."""

import errno
import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from podwright import targets
from podwright.errors import UserError
from podwright.run import cleaning, journal, removal
from podwright.run.attended import attending
from podwright.run.cleaning import CloudSlice, Need
from podwright.rundir import Ending, RunDir
from podwright.targets.base import Barred, MissingProgram, Polled, Process, Traits
from podwright.targets.machines import (
    GONE,
    Allocation,
    AllocationState,
    ChargedChips,
    Owned,
    Request,
    lost,
    ready,
    refused,
    unknown,
    waiting,
)

LEFT = CloudSlice("pod", Owned(Request("pw-r-1", "z"), "", AllocationState.READY), Need.LEFT, "")


@pytest.mark.parametrize(
    ("fault", "lasts_s", "most"),
    [
        (Barred("the cloud does not list what it has: NoLogin: expired", "type gcloud auth login", "a-code"), 60, 1),
        (UserError("the cloud does not list what it has: NoNetwork: x", "try again", "a-code"), 1200, 0),
    ],
)
def test_a_list_that_a_person_must_make_possible_is_waited_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, fault: UserError, lasts_s: float, most: int
) -> None:
    clock = SimpleNamespace(now=1000.0, sleep=lambda s: setattr(clock, "now", clock.now + s))
    clock.time = clock.monotonic = lambda: clock.now

    def listed() -> Any:
        raise fault

    cloud = SimpleNamespace(delete=lambda _: None, list_owned=listed)
    monkeypatch.setattr(removal, "time", clock)
    monkeypatch.setattr(removal, "owning", lambda _: (SimpleNamespace(traits=Traits()), cloud))
    barred: list[UserError] = []
    left = removal.remove([LEFT], lambda _: None, barred=barred)
    assert list(left.values()) == [str(fault)] and len(barred) == most
    assert lasts_s <= clock.now - 1000.0 < lasts_s + 10


def test_a_deletion_that_a_person_must_make_possible_is_left_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def delete(_: Request) -> None:
        raise Barred("pw-r-1 in z cannot be deleted: NoLogin: expired", "type gcloud auth login", "a-code")

    cloud = SimpleNamespace(delete=delete, list_owned=lambda: [LEFT.owned])
    monkeypatch.setattr(removal, "owning", lambda _: (SimpleNamespace(traits=Traits()), cloud))
    barred: list[UserError] = []
    left = removal.remove([LEFT], lambda _: None, barred=barred)
    assert "type gcloud auth login" in left[LEFT.key] and len(barred) == 1


def test_a_fault_of_one_target_is_not_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """One needs a login, and the machines of the other one are gone after two minutes."""
    clock = SimpleNamespace(now=1000.0, sleep=lambda s: setattr(clock, "now", clock.now + s))
    clock.time = clock.monotonic = lambda: clock.now
    other = CloudSlice("other", Owned(Request("pw-s-1", "z"), "", AllocationState.DELETING), Need.LEFT, "")

    def barred_list() -> list[Owned]:
        raise Barred("the cloud does not list what it has: NoLogin: expired", "type gcloud auth login", "a-code")

    def slow_list() -> list[Owned]:
        return [other.owned] if clock.now < 1120 else []

    clouds = {"pod": barred_list, "other": slow_list}
    monkeypatch.setattr(removal, "time", clock)
    monkeypatch.setattr(
        removal,
        "owning",
        lambda name: (
            SimpleNamespace(traits=Traits()),
            SimpleNamespace(delete=lambda _: None, list_owned=clouds[name]),
        ),
    )
    barred: list[UserError] = []
    lines: list[str] = []
    left = removal.remove([LEFT, other], lines.append, barred=barred)
    assert list(left) == [LEFT.key] and len(barred) == 1
    assert lines[1:] == ["waiting until the cloud no longer lists pw-s-1 (the cloud calls it deleting)"]


def test_pools_that_a_list_cannot_show_are_not_called_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where gcloud fails, such a target lists attempts alone."""
    pools = Owned(Request("pw-r-1", "z", details={"pools": ["pw-r-1-0"]}), "", AllocationState.READY)
    slices = [
        CloudSlice("pod", pools, Need.LEFT, ""),
        CloudSlice("pod", Owned(Request("a", "z"), "", AllocationState.READY), Need.LEFT, ""),
    ]
    cloud = SimpleNamespace(
        delete=lambda _: None, list_owned=lambda: [], unlisted=UserError("NoNetwork: x", "try again", "a-code")
    )
    monkeypatch.setattr(removal, "owning", lambda _: (SimpleNamespace(traits=Traits(), attempt_objects=cloud), cloud))
    left = removal.remove(slices, lambda _: None, 1.5)
    assert left == {slices[0].key: str(cloud.unlisted)}


def test_machines_of_a_run_on_a_disk_that_cannot_be_written_are_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: RunDir) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    listed = [LEFT.owned]
    cloud = SimpleNamespace(delete=lambda _: listed.clear(), list_owned=lambda: list(listed))
    monkeypatch.setattr(removal, "owning", lambda _: (SimpleNamespace(traits=Traits()), cloud))
    monkeypatch.setattr(removal, "unattended", refuse)
    assert removal.remove([replace(LEFT, run=RunDir(tmp_path))], lambda _: None) == {}
    assert not listed


GKE = {"kind": "gke", "project": "my-project", "cluster": "c", "zones": ["us-central1-a"]}
TPU = {"kind": "tpu-vm", "project": "my-project", "zones": ["us-central1-a"], "accelerator_type": "v6e-16"}


def requested(runs: Path, entry: dict[str, Any], *events: str, borrowed: bool = False, **fields: Any) -> RunDir:
    """A run that has requested machines from target `pod`, whose entry was `entry`; what happened to them since."""
    run = RunDir(runs / "r")
    run.path.mkdir(parents=True)
    journal.append(run, "created", recipe="x", target="pod", cwd=str(runs), retries=0, slice="")
    request = asdict(Request("pw-r-1", "us-central1-a", borrowed=borrowed))
    target = {"target": "pod", "kind": entry["kind"], "settings": entry}
    journal.append(run, "allocation requested", allocation=1, request=request, target=target)
    for event in events:
        journal.append(run, f"allocation {event}", allocation=1, **fields)
    return run


def unlisted(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    entries: dict[str, Any],
    name: str = "",
    listed: tuple[Owned, ...] = (),
    cloud: Allocation = GONE,
) -> list[str]:
    """`cloud`: what it says of a request that it does not list."""
    (folder / "targets.yaml").write_text(json.dumps(entries))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(folder / "targets.yaml"))
    monkeypatch.setattr(cleaning, "_listed", lambda _: (list(listed), None))
    provisioner = SimpleNamespace(describe=lambda *_: cloud)
    monkeypatch.setattr(targets, "of_handle", lambda _: SimpleNamespace(provisioner=provisioner))
    return [str(each.fault) for each in cleaning.inventory(name, folder / "runs").unlisted]


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        (GKE, {}, "target pod names no cloud now"),
        (TPU, {}, "target pod names no cloud now"),
        (
            GKE,
            {"pod": GKE | {"cluster": "d"}},
            "names my-project/us-central1/d now, and they were requested in my-project/us-central1/c",
        ),
        (GKE, {"pod": GKE | {"project": "another-project"}}, "target pod names another-project/us-central1/c now"),
        (GKE, {"pod": GKE | {"zones": ["us-east5-b"]}}, "target pod names my-project/us-east5/c now"),
        (GKE, {"pod": TPU}, "target pod names my-project now"),
        (GKE, {"pod": {"kind": "slurm", "partition": "gpu"}}, "target pod names no cloud now"),
        (TPU, {"pod": TPU | {"project": "another-project"}, "other": GKE}, "target pod names another-project now"),
        (GKE, {"pod": GKE | {"reservations": ["r"]}}, ""),
        (TPU, {"pod": TPU | {"zones": ["us-east5-b"]}}, ""),
        (GKE, {"renamed": GKE}, ""),
    ],
)
def test_an_allocation_that_no_entry_lists_is_named_with_what_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, was: dict[str, Any], now: dict[str, Any], why: str
) -> None:
    run = requested(tmp_path / "runs", was)
    lines = unlisted(monkeypatch, tmp_path, now)
    assert len(lines) == bool(why)
    for line in lines:
        assert line.startswith("run r: its machines pw-r-1 in us-central1-a (target pod) were not listed: ")
        assert why in line and f"type podwright stop {run.path}, which" in line


@pytest.mark.parametrize(
    ("events", "given"),
    [
        (("deleting", "gone"), {}),
        (("refused",), {"uncreated": True, "reason": "NoPermission: x", "scope": ""}),
        ((), {"borrowed": True}),
    ],
)
def test_an_allocation_of_which_nothing_of_the_run_can_exist_is_not_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, events: tuple[str, ...], given: dict[str, Any]
) -> None:
    requested(tmp_path / "runs", TPU, *events, **given)
    assert unlisted(monkeypatch, tmp_path, {}) == []


def test_an_allocation_is_not_named_where_it_was_listed_or_its_entry_is_a_fault_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    requested(tmp_path / "runs", GKE)
    of_another_name = GKE | {"project": "another-project"}
    ready = Owned(Request("pw-r-1", "us-central1-a"), "", AllocationState.READY, mine=True)
    assert unlisted(monkeypatch, tmp_path, {"pod": of_another_name}, listed=(ready,)) == []
    assert unlisted(monkeypatch, tmp_path, {"pod": GKE | {"clusters": "c"}}) == []
    assert unlisted(monkeypatch, tmp_path, {"other": GKE | {"cluster": "d"}}, "other") == [], "of that target alone"


@pytest.mark.parametrize(
    ("cloud", "why"),
    [
        (waiting("Requesting: gcloud, which creates it, has not ended yet"), "Requesting: gcloud"),
        (ready(()), "the cloud calls them ready"),
        (unknown("NoNetwork: x"), "NoNetwork: x"),
        (refused("", "NoQuota: x"), ""),
    ],
)
def test_an_allocation_that_may_come_and_is_not_listed_is_named_unless_a_launcher_follows_its_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cloud: Allocation, why: str
) -> None:
    run = requested(tmp_path / "runs", TPU)
    lines = unlisted(monkeypatch, tmp_path, {"pod": TPU}, cloud=cloud)
    assert len(lines) == bool(why) and all(f"were not listed: {why}" in line for line in lines)
    with attending(run):
        assert unlisted(monkeypatch, tmp_path, {"pod": TPU}, cloud=cloud) == []


def test_an_allocation_that_cannot_be_asked_for_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any) -> Any:
        raise MissingProgram({"kubectl": "install kubectl"})

    requested(tmp_path / "runs", GKE)
    (tmp_path / "targets.yaml").write_text(json.dumps({"pod": GKE}))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.setattr(cleaning, "_listed", lambda _: ([], None))
    monkeypatch.setattr(targets, "of_handle", refuse)
    (row,) = cleaning.inventory("", tmp_path / "runs").unlisted
    assert "kubectl" in row.fault.what and row.fault.code == "machines-not-listed"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"charged": ChargedChips(0)}, False),
        ({"charged": None}, True),
        ({"mine": False}, False),
    ],
)
def test_only_machines_of_this_user_that_cost_are_undecided(changes: dict[str, Any], expected: bool) -> None:
    usual: dict[str, Any] = {"mine": True, "charged": ChargedChips(8)}
    owned = Owned(Request("pw-r-1", "z", chip="v6e"), "", AllocationState.READY, **usual | changes)
    assert CloudSlice("pod", owned, Need.UNCLEAR, "").undecided is expected
    assert not CloudSlice("pod", owned, Need.LIVING, "").undecided


@pytest.mark.parametrize("state", [state for state in AllocationState if state != "gone"])
@pytest.mark.parametrize(
    ("silent", "described", "need"),
    [
        (False, unknown("x"), Need.LIVING),
        (True, ready(()), Need.UNCLEAR),
        (True, unknown("x"), Need.UNCLEAR),
        (True, GONE, Need.LEFT),
        (True, lost(Ending.PREEMPTED, "x"), Need.LEFT),
    ],
)
def test_an_attempt_is_asked_whether_it_trains_unless_its_machines_are_gone(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    silent: bool,
    described: Allocation,
    need: Need,
    state: AllocationState,
) -> None:
    """A list that lags shows machines that train as not ready yet, and others as ready that the cloud has taken: of those of which
    nobody hears the cloud is asked by name."""
    run = requested(tmp_path / "runs", TPU, "ready", hosts=[])
    journal.append(run, "submitting", attempt=1, handle={"target": "pod"}, on_allocation=1)
    journal.append(run, "submitted", attempt=1, handle={"target": "pod"})
    (tmp_path / "targets.yaml").write_text(json.dumps({"pod": TPU}))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    owned = Owned(Request("pw-r-1", "us-central1-a", chip="v6e"), "", state, charged=ChargedChips(16))
    monkeypatch.setattr(cleaning, "_listed", lambda _: ([owned], None))
    polled = Polled(Process.RUNNING, waiting="Unreachable: host h does not answer", silent=silent)
    cloud = SimpleNamespace(describe=lambda _: described)
    monkeypatch.setattr(targets, "of_handle", lambda _: SimpleNamespace(poll=lambda _: polled, provisioner=cloud))
    (known,) = cleaning.inventory("", tmp_path / "runs").slices
    if need is Need.LEFT or state in ("lost", "refused", "deleting"):
        assert known.need is Need.LEFT and known.removable
        return
    assert known.need is need and known.undecided is silent and not known.removable, known
    assert ("(Unreachable: host h does not answer)" in known.detail) is silent

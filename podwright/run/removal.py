"""The removal of what exists in the cloud and no run needs; the journal of its run hears of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict

from podwright.errors import UserError
from podwright.run import journal, mirror
from podwright.run.allocations import AllocationRecord, due
from podwright.run.attended import unattended
from podwright.run.cleaning import CloudSlice, Key, Need, key_of, owning, traits_of, without_machines
from podwright.run.finish import write_report
from podwright.run.states import AllocationPhase
from podwright.run.unlisted import coming, elsewhere
from podwright.rundir import Ending, RunDir
from podwright.targets.base import Barred
from podwright.targets.machines import AllocationState, ChargedChips, Owned

LIMIT_S = 1200.0
"""until the cloud must no longer list what was removed: a slice takes minutes to delete"""
BARRED_S = 60.0
"""for which a login or a right that is missing is waited for"""
Say = Callable[[str], None]


def remove(
    slices: Sequence[CloudSlice], say: Say, limit_s: float = LIMIT_S, barred: list[UserError] | None = None
) -> dict[Key, str]:
    """Delete them, again where the cloud does not answer, until it no longer lists them; of those that are left, why.

    `barred` gets what a person has to correct before anything more can be deleted, or seen to be.
    """
    barred = [] if barred is None else barred
    barred_since: dict[Key, float] = {}
    left = {each.key: "not deleted yet" for each in slices}
    refused: dict[Key, str] = {}
    calls: dict[Key, tuple[int, float]] = {}
    charged: dict[Key, ChargedChips | None] = {}
    listed = {each.key: each.owned for each in slices}
    end, shown = time.monotonic() + limit_s, ""
    while left and time.monotonic() < end:
        for each in slices:
            if each.key in left:
                seen = listed[each.key].charged
                if charged.get(each.key) != seen:
                    charged[each.key] = seen
                    with contextlib.suppress(UserError, OSError):  # it is deleted all the same
                        _charge(each, seen)
            count, last = calls.get(each.key, (0, 0.0))
            deleting = each.key in left and listed[each.key].state is AllocationState.DELETING
            if each.key in left and not deleting and due(count, last, time.time()):
                calls[each.key] = count + 1, time.time()
                try:
                    _delete(each, listed[each.key])
                except UserError as e:
                    refused[each.key] = str(e)
                    barred += [e] if isinstance(e, Barred) else []
                    del left[each.key]
        before = listed
        listed, pause_s, faults = _listed_again(slices, left, listed)
        still = {key: f"the cloud calls it {listed[key].state}" for key in left if key in listed}
        for each in slices:
            if each.key in left and each.key not in listed:
                try:
                    why = coming(each.run, each.name) if each.run and each.need is not Need.ELSEWHERE else ""
                except UserError as e:
                    refused[each.key] = str(e)
                    continue
                if why:
                    still[each.key], listed[each.key] = why, before[each.key]
                    continue
                with contextlib.suppress(UserError, OSError):  # it is gone all the same
                    _write_down(each)
        left = still | {key: str(fault) for key, fault in faults.items()}
        for key in list(left):
            fault = faults.get(key)
            if not isinstance(fault, Barred):
                barred_since.pop(key, None)
            elif time.monotonic() - barred_since.setdefault(key, time.monotonic()) > BARRED_S:
                barred.append(fault)
                refused[key] = left.pop(key)
        if left:
            waited = ", ".join(sorted(key[2] for key in left))
            line = f"waiting until the cloud no longer lists {waited} ({'; '.join(sorted(set(left.values())))})"
            if line != shown:
                say(line)
                shown = line
            time.sleep(pause_s)
    return refused | left


def _delete(each: CloudSlice, owned: Owned) -> None:
    """`owned`: as the cloud lists it now. UserError where it may not be deleted, or no repetition helps."""
    if (opened := owning(each.target)) is None:
        return
    run = each.run
    if run is None or each.need is Need.STRAY or not run.path.is_dir():
        opened[1].delete(owned.request)
        return
    with contextlib.ExitStack() as stack:
        free = True
        with contextlib.suppress(OSError):  # no launcher could write the journal either
            free = stack.enter_context(unattended(run))  # so that no launcher takes the slice into use now
        if not free:
            raise UserError(f"run {run.name} is followed again", f"type podwright stop {run.typed}", "run-is-busy")
        opened[1].delete(owned.request)


def _charge(each: CloudSlice, charged: ChargedChips | None) -> None:
    """Tell the journal of machines that cost and that no launcher has seen: nobody can once they are gone. UserError, OSError."""
    run = each.run
    if run is None or charged is None or not run.journal.exists():
        return
    with unattended(run) as free:
        if not free:
            return
        record = _record(run, each)
        if record is None:
            return
        unseen = record.phase is AllocationPhase.REQUESTED and charged.chips > 0
        if charged != record.charged and (unseen or record.charged):
            journal.append(run, "allocation charged", allocation=record.number, **asdict(charged))


def _write_down(each: CloudSlice) -> None:
    """Tell the journal of its run that a slice is gone: its hours would count until the run is resumed. UserError, OSError."""
    run = each.run
    if run is None or not run.journal.exists():
        return
    with unattended(run) as free:
        if not free:
            return
        record = _record(run, each)
        if record is None or record.phase is AllocationPhase.GONE:
            return
        number = record.number
        now = journal.now()
        if record.phase is AllocationPhase.READY:
            lost = {"ending": Ending.NODE_LOST, "reason": "Removed: podwright clean has deleted the machines"}
            journal.append(run, "allocation lost", allocation=number, since=now, **lost)
        journal.append(run, "allocation deleting", allocation=number)
        journal.append(run, "allocation gone", allocation=number, since=now)
        state = journal.read(run)
        if state.reported:  # it says that the machines are still allocated
            journal.append(run, "reported", attempt=state.attempt, error=write_report(run))
        mirror.KeptRun(run, mirror.LOOK_PATIENCE_S).publish()


def _record(run: RunDir, each: CloudSlice) -> AllocationRecord | None:
    """Of machines that this machine may write about. None where the journal has others as its newest. UserError, DrivenElsewhere among them, OSError."""
    record = journal.read(run).allocation
    if mirror.observes(run) or record is None or record.request.name != each.name:
        return None
    if elsewhere(run, each.owned, traits_of(each.target)):  # its machines exist
        return None
    mirror.KeptRun(run, mirror.LOOK_PATIENCE_S).publish(always=True)
    return record


def _listed_again(
    slices: Sequence[CloudSlice], left: Collection[Key], before: Mapping[Key, Owned]
) -> tuple[dict[Key, Owned], float, dict[Key, UserError]]:
    """What the cloud still lists of `slices`, how long to wait for another look, and of which of `left` that is not known, with the reason."""
    listed: dict[Key, Owned] = {}
    pause_s = 1.0
    faults: dict[Key, UserError] = {}
    for name in {each.target for each in slices if each.key in left}:
        of_target = {each.key: each.owned for each in slices if each.target == name}
        try:
            if opened := owning(name):
                pause_s = max(pause_s, opened[0].traits.poll_s)
                # Of those of other targets it may list a policy, and no pools.
                listed |= {key: owned for owned in opened[1].list_owned() if (key := key_of(owned)) in of_target}
                if fault := without_machines(opened[0]):
                    unseen = of_target.keys() & set(left) - listed.keys()
                    faults |= {key: fault for key in unseen if "pools" in of_target[key].request.details}
        except UserError as e:
            faults |= dict.fromkeys(of_target.keys() & left, e)
    return listed | {key: before[key] for key in faults}, pause_s, faults

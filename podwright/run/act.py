"""What each act of decide.py does. What is about to exist is written to the journal first; what was answered, after.

Before every call to the target or its provisioner the journal is published, however harmless it is to repeat the call: on a run that another
machine has taken over, a stop or a release would hit that machine's attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from podwright.errors import UserError, from_os
from podwright.recipe import kinds
from podwright.run import journal
from podwright.run.allocations import avoided, hopeless
from podwright.run.attempt_job import job_of
from podwright.run.decide import Act, machines_away, retries
from podwright.run.finish import Mirror, write_report
from podwright.run.journal import RunState
from podwright.run.mirror import keep_in
from podwright.run.states import AllocationPhase
from podwright.rundir import Ending, RunDir, recipe_of
from podwright.storage import inputs
from podwright.storage.base import StorageFailure
from podwright.targets import machines
from podwright.targets.base import Job, Polled, Process, Target
from podwright.targets.machines import Allocation, AllocationState, Provisioner, Request
from podwright.watch.diagnose import AttemptOutcome, outcome

MOST_BARRED = 4
"""calls in a row, within half a minute, that a person has to make possible: a stop then waits no longer"""

_NAME_A_HOST = (Ending.CRASHED, Ending.UNKNOWN, Ending.STALLED, Ending.NODE_LOST)
"""endings of which the host on which a process failed first may be the cause"""


@dataclass(frozen=True)
class ObservedRun:
    """What an act is about: the target, the run by its journal, its process and its machines."""

    target: Target
    state: RunState
    polled: Polled
    cloud: Allocation


class Carrier:
    """Carries out acts on one run; called under its launcher lock."""

    def __init__(self, run: RunDir, mirror: Mirror, warn: Callable[[str], None]):
        self._run = run
        self._mirror = mirror
        self._warn = warn

    def request(self, observed: ObservedRun) -> None:
        target = observed.target
        state = observed.state
        provisioner = _provisioner(target)
        number = state.allocation.number + 1 if state.allocation else 1
        avoid = avoided(state.capacity, target.traits.zones, journal.now())
        try:
            self._job(target, state)
            request = provisioner.describe_request(self._run.path.resolve(), state.created, number, avoid)
        except (UserError, OSError) as e:  # before anything costs
            self._journal("abandoned", state, **asdict(_not_startable(e)))
            return
        fields = {"request": asdict(request), "target": target.identity}
        journal.append(self._run, "allocation requested", allocation=number, **fields)
        self._mirror.publish()
        self._refused_at_once(number, _created(provisioner, request))

    def create(self, observed: ObservedRun) -> None:
        record = observed.state.allocation
        assert record
        self._allocation("requested", observed.state, request=asdict(record.request), target=record.target)
        self._mirror.publish()
        self._refused_at_once(record.number, _created(_provisioner(observed.target), record.request))

    def allocated(self, observed: ObservedRun) -> None:
        hosts = [asdict(host) for host in observed.cloud.hosts]
        self._allocation("ready", observed.state, hosts=hosts, since=observed.cloud.since)

    def charged(self, observed: ObservedRun) -> None:
        assert observed.cloud.charged
        self._allocation("charged", observed.state, **asdict(observed.cloud.charged))

    def lacking(self, observed: ObservedRun) -> None:
        state = observed.state
        missing = observed.cloud.state in (AllocationState.FILLING, AllocationState.REPAIRING)
        self._allocation("lacking", state, state=str(observed.cloud.state) if missing else "")

    def refused(self, observed: ObservedRun) -> None:
        cloud = observed.cloud
        record = observed.state.allocation
        assert record
        if cloud.state is not AllocationState.REFUSED:
            waited = f"for more than {observed.target.traits.place_patience_s / 60:g} min"
            reason = cloud.reason or "Absent: the cloud shows nothing of the request"
            cloud = machines.refused(record.request.zone, f"{reason}, {waited}")
        self._refused_at_once(record.number, cloud)

    def lost(self, observed: ObservedRun) -> None:
        state = observed.state
        cloud = observed.cloud
        ending = cloud.ending or Ending.NODE_LOST
        reason = cloud.reason or "Lost: the machines no longer exist"
        if cloud.state is AllocationState.REPAIRING:
            reason += f", for more than {observed.target.traits.repair_s / 60:g} min"
        elif cloud.ending is None and cloud.state not in (AllocationState.GONE, AllocationState.DELETING):
            reason = f"Silent: no host has answered for {observed.target.traits.silence_s / 60:g} min"
            reason += f"; the cloud says of them: {cloud.reason or cloud.state}"
        self._allocation("lost", state, ending=ending, reason=reason, since=cloud.since)

    def delete(self, observed: ObservedRun) -> None:
        state = observed.state
        record = state.allocation
        assert record
        self._allocation("deleting", state)
        self._mirror.publish()
        refusal = ""
        try:
            _provisioner(observed.target).delete(record.request)
        except UserError as e:  # what keeps a request from being taken often keeps it from being deleted
            refusal = str(e)
        if refusal and record.uncreated:
            self._allocation("gone", state)
        elif refusal != record.undeleted:
            self._allocation("undeleted", state, refusal=refusal)

    def gone(self, observed: ObservedRun) -> None:
        since = observed.cloud.since if observed.cloud.state is AllocationState.GONE else None  # borrowed machines stay
        self._allocation("gone", observed.state, since=since)

    def submit(self, observed: ObservedRun) -> None:
        target = observed.target
        state = observed.state
        record = state.allocation if target.provisioner else None
        try:
            job = self._job(target, state)
            rendered = target.render(job, record.hosts if record else None)
        except (UserError, OSError) as e:
            self._journal("abandoned", state, **asdict(_not_startable(e)))
            return
        if journal.read(self._run).stop_wanted:
            return  # preparing the job may take minutes
        number = record.number if record else 0
        journal.append(self._run, "submitting", attempt=job.attempt, handle=rendered.handle, on_allocation=number)
        self._mirror.publish()
        try:
            handle = target.submit(rendered)
        except (UserError, OSError) as e:
            journal.append(self._run, "ended", attempt=job.attempt, **asdict(_not_startable(e)))
            return
        journal.append(self._run, "submitted", attempt=job.attempt, handle=handle)

    def adopt(self, observed: ObservedRun) -> None:
        self._journal("submitted", observed.state, handle=observed.polled.handle or observed.state.handle)

    def refresh(self, observed: ObservedRun) -> None:
        self._journal("refreshed", observed.state, handle=observed.polled.handle)

    def signal(self, observed: ObservedRun) -> None:
        state = observed.state
        self._mirror.publish()  # `stopping` is in the journal
        answer = observed.target.stop(state.handle or {})
        if answer.acknowledged:
            self._journal("signalled", state)
            return
        self._journal("stop unanswered", state, reason=answer.reason)
        if answer.barred and state.calls >= MOST_BARRED:
            raise UserError(
                f"run {self._run.name} was not stopped: {answer.reason}",
                f"then type podwright stop {self._run.typed}",
                "stop-unanswered",
            )

    def kill(self, observed: ObservedRun) -> None:
        self._journal("killing", observed.state)
        self._mirror.publish()
        observed.target.stop(observed.state.handle or {}, force=True)

    def end(self, observed: ObservedRun) -> None:
        state = observed.state
        polled = observed.polled
        if state.attempt > state.ended_attempt:
            polled = _as_the_cloud_tells(state, polled)
            self._mirror.bring_ended(state.attempt)
            ended = outcome(self._run, state.attempt, polled, state.stop_wanted)
            hosts = list(polled.failed_hosts) if ended.ending in _NAME_A_HOST else []
            self._journal("ended", state, **asdict(ended), failed_hosts=hosts, bootstrap=polled.bootstrap)
        elif state.stop_wanted:
            stopped = AttemptOutcome(Ending.STOPPED, "stopped before an attempt was started")
            self._journal("ended", state, **asdict(stopped))
        else:
            self._journal("abandoned", state, **asdict(_no_machines(state, observed.target.traits.zones)))

    def release(self, observed: ObservedRun) -> None:
        state = observed.state
        self._mirror.publish()
        answer = observed.target.release(state.handle) if state.handle else None
        if answer is None or answer.done:
            self._journal("released", state)
            return
        self._journal("release unanswered", state, reason=answer.reason)
        if answer.given_up or (answer.barred and state.stop_wanted and state.calls >= MOST_BARRED):
            what = f"attempt {state.attempt} of run {self._run.name} has ended ({state.ending}), and what it has created was not seen to be gone"
            verb = "resume" if retries(state) else "stop"
            raise UserError(
                f"{what}: {answer.reason}", f"then type podwright {verb} {self._run.typed}", "release-unanswered"
            )

    def retry(self, observed: ObservedRun) -> None:
        self._journal("retrying", observed.state)

    def report(self, observed: ObservedRun) -> None:
        error = write_report(self._run)
        self._mirror(last=True)  # after the report, which a tracker may keep as an artifact
        if error:
            self._warn(f"the report could not be written: {error}; `podwright report {self._run.typed}` tries again")
        self._journal("reported", observed.state, error=error)
        self._mirror.publish()  # whoever observes the run waits for this

    def _job(self, target: Target, state: RunState) -> Job:
        cwd = self._folder_to_start_in(state)
        failing = sorted(host for host, count in state.host_failures.items() if count >= journal.FAILURES_OF_HOST)
        exclude = tuple(failing) if target.traits.excludes_hosts else ()
        recipe = recipe_of(self._run)
        kind = kinds.find(recipe["kind"])
        return job_of(
            kind,
            recipe,
            self._run.path.resolve(),
            state.attempt + 1,
            cwd,
            state.created,
            storage=self._storage_of(target, state, cwd) if kind.uses_storage else "",
            allocation=state.allocation.request.name if target.provisioner and state.allocation else "",
            takeover=state.attempt > 0 and (state.released or machines_away(state)),
            exclude=exclude,
        )

    def _storage_of(self, target: Target, state: RunState, cwd: Path) -> str:
        """The URL at which the run is kept, or "": as it was when its first attempt started, since its checkpoints are there."""
        base = target.traits.storage
        if self._run.storage_url or (base and not state.attempt):
            return keep_in(self._run, base, state.created, cwd)
        if base:
            what = f"run {self._run.name} started without a storage, and its checkpoints stay in {self._run.path}"
            self._mirror.warn_once(f"{what}: storage={base} of target {state.target} is for new runs")
        return ""

    def _folder_to_start_in(self, state: RunState) -> Path:
        """Where relative paths of the recipe start. On another machine than the one that started the run, and with its inputs
        in a storage, any folder will do: the one in which `resume` was typed."""
        cwd = Path(state.cwd)
        if cwd.is_dir():
            return cwd
        if not self._run.storage_url:
            fix = "bring it back: the recipe's paths start there"
            raise UserError(f"{cwd}, where run {self._run.name} was started, is gone", fix, "no-such-folder")
        if not (self._run.path / inputs.LIST).exists():
            what = (
                f"the files that the recipe of run {self._run.name} names were not uploaded to {self._run.storage_url}"
            )
            raise UserError(
                what,
                f"type podwright resume there: in {cwd}, on the machine where the run was started",
                "inputs-not-uploaded",
            )
        cwd = Path.cwd()
        self._journal("moved", state, cwd=str(cwd))
        return cwd

    def _journal(self, event: str, state: RunState, **fields: object) -> None:
        journal.append(self._run, event, attempt=state.attempt, **fields)

    def _allocation(self, event: str, state: RunState, /, **fields: object) -> None:
        """Write down an event of the newest allocation."""
        assert state.allocation
        journal.append(self._run, f"allocation {event}", allocation=state.allocation.number, **fields)

    def _refused_at_once(self, number: int, cloud: Allocation) -> None:
        if cloud.state is AllocationState.REFUSED:
            fields = {"scope": cloud.scope, "reason": cloud.reason, "ending": cloud.ending}
            journal.append(self._run, "allocation refused", allocation=number, uncreated=cloud.uncreated, **fields)


def _provisioner(target: Target) -> Provisioner:
    if target.provisioner is None:
        raise UserError(
            "the target of this run no longer creates machines", "give its entry the kind it had", "target-changed"
        )
    return target.provisioner


def _created(provisioner: Provisioner, request: Request) -> Allocation:
    """The answer to a request; what keeps this machine from sending it is a refusal, after which nothing exists that was not there before."""
    try:
        return provisioner.create(request)
    except UserError as e:
        return replace(machines.refused("", f"NotRequested: {e}", Ending.BAD_INPUT), uncreated=True)


def _as_the_cloud_tells(state: RunState, polled: Polled) -> Polled:
    """A process on machines that were lost ended by that, whether or not anybody has seen it end."""
    record = state.allocation
    if record is None or record.number != state.attempt_allocation or record.ending is None:
        return polled
    if record.phase is AllocationPhase.READY:
        return polled
    return replace(polled, process=Process.ENDED, ending=record.ending, detail=record.reason)


def _not_startable(fault: UserError | OSError) -> AttemptOutcome:
    """What a run ends with whose next attempt cannot be prepared or submitted."""
    if isinstance(fault, StorageFailure):
        return AttemptOutcome(Ending.STORAGE_UNREACHABLE, fault.what, fault.fix)
    known = fault if isinstance(fault, UserError) else from_os(fault)
    if known is None:
        return AttemptOutcome(Ending.CRASHED, f"the attempt could not be submitted ({fault})")
    return AttemptOutcome(Ending.BAD_INPUT, known.what, known.fix)


def _no_machines(state: RunState, places: Sequence[str]) -> AttemptOutcome:
    record = state.allocation
    waited = f"{(journal.now() - (state.capacity.since or journal.now())) / 3600:.1f} h"
    if state.capacity.final and record:
        return AttemptOutcome(state.capacity.final, f"{record.request.name} was refused: {record.reason}")
    if record and hopeless(state.capacity, places):
        what = f"no place of the target can ever have the machines; the last answer was: {record.reason}"
        return AttemptOutcome(Ending.BAD_INPUT, what)
    last = f"; the last answer was: {record.reason}" if record and record.reason else ""
    return AttemptOutcome(Ending.NO_CAPACITY, f"no machines in {waited}{last}")


# Each act is carried out by the method of its name.
ACTS: dict[Act, Callable[[Carrier, ObservedRun], None]] = {
    act: getattr(Carrier, act.value) for act in Act if act not in (Act.WAIT, Act.DONE)
}

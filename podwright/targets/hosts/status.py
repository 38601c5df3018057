"""The state of an attempt from the answers of its hosts' keepers, or from why they did not answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podwright.rundir import Ending, Record
from podwright.targets.base import Polled, Process
from podwright.targets.hosts import oom
from podwright.targets.hosts.keeper import JOIN_S, SILENCE_S
from podwright.targets.hosts.transport import PORTS, Trouble

_OPEN = (
    f"open the TCP ports {PORTS.start} to {PORTS.stop - 1} of host {{host}} to the other hosts (each attempt uses two of them), or set "
    "address of the target (of kind=ssh) to one at which they reach it; then resume the run"
)
_KEPT = ("returncode", "ending", "detail", "fix", "who", "first", "failed_hosts", "bootstrap", "inferred")
_NOTICE = "the cloud gave notice that it takes the machines"


def combined(names: Sequence[str], answers: Sequence[Record | Trouble]) -> Polled:
    silent = {name: answer.what for name, answer in zip(names, answers, strict=True) if isinstance(answer, Trouble)}
    answered = {n: answer for n, answer in enumerate(answers) if not isinstance(answer, Trouble) and answer["record"]}
    unreachable = f"Unreachable: {'; '.join(silent.values())}" if silent else ""
    first = answered.get(0)
    if first and first["record"]["phase"] == "ended":
        return _over(names, answered, first["record"])
    if first and not first["alive"]:
        return _gone(names[0], first)
    others = [answer["record"] for n, answer in answered.items() if n]
    fault = next((record for record in others if record["fault"]), None)
    if first is None and all(record["phase"] == "ended" for record in others):
        if fault:
            return _over(names, answered, fault)
        return _silent([answer for answer in answers if isinstance(answer, Trouble)]) or Polled(Process.ABSENT)
    missing = first["record"]["missing"] if first else []
    joining = f"Joining: waiting for {', '.join(missing)} to connect to {names[0]}" if missing else ""
    return Polled(Process.RUNNING, waiting=unreachable or joining)


def _silent(troubles: Sequence[Trouble]) -> Polled | None:
    """Of hosts of which none has answered; None where none was in trouble."""
    if not troubles:
        return None
    barred = is_barred(troubles)
    reasons = dict.fromkeys(str(each) if barred else each.what for each in troubles)
    fix = troubles[0].fix if barred else ""
    waiting = f"Unreachable: {'; '.join(reasons)}"
    return Polled(Process.RUNNING, waiting=waiting, silent=True, barred=barred, fix=fix)


def is_barred(answers: Sequence[object]) -> bool:
    """Whether hosts were not reached for what a person has to correct: keys, names, programs."""
    troubles = [answer for answer in answers if isinstance(answer, Trouble)]
    return bool(troubles) and all(each.ending is Ending.BAD_INPUT for each in troubles)


def to_record(polled: Polled) -> Record:
    """Of an ended attempt, to be kept."""
    return {key: getattr(polled, key) for key in _KEPT}


def from_record(kept: Record) -> Polled:
    fields = {key: kept[key] for key in _KEPT if key in kept}
    ending = Ending(kept["ending"]) if kept["ending"] else None
    return Polled(Process.ENDED, **fields | {"ending": ending, "failed_hosts": tuple(kept.get("failed_hosts", ()))})


def _over(names: Sequence[str], answered: dict[int, Record], ended: Record) -> Polled:
    fault = ended["fault"]
    if ended.get("preempted"):  # a trainer that had finished says so itself
        return Polled(Process.ENDED, ended["codes"].get("0"), ending=Ending.PREEMPTED, detail=_NOTICE)
    if fault is None:
        return Polled(Process.ENDED, ended["codes"].get("0"))
    host = fault["host"]
    answer = answered.get(list(names).index(host))
    if fault["kind"] == "process":
        who = f"process {fault['process']} on {host}"
        process = Polled(Process.ENDED, fault["code"], who=who, first=fault["process"], failed_hosts=(host,))
        if fault.get("oom"):
            detail = f"{who}: {fault['oom']}"
            return replace(process, ending=Ending.OUT_OF_MEMORY, detail=detail, fix=oom.FIX)
        return _with_full_disk(process, host, answer)
    if fault["kind"] == "lost":
        if answer and not answer["alive"] and answer["record"]["phase"] != "ended":
            return _gone(host, answer)
        detail = f"host {host} was lost: its connection to the other hosts closed, or was silent for {SILENCE_S:.0f} s"
        return replace(Polled.ended(Ending.NODE_LOST, detail), failed_hosts=(host,))
    if fault["kind"] == "deleted":
        return deleted(host, fault["why"])
    fix = _OPEN.format(host=names[0])
    if fault["kind"] == "port":
        detail = f"host {host} cannot listen for the other hosts on {fault['why']}"
        fix = "resume the run: each attempt uses another port"
    elif fault["kind"] == "absent":
        detail = f"{fault['why']} did not connect to host {host} within {JOIN_S:.0f} s"
    else:
        detail = f"host {host} cannot connect to {fault['why']}"
    return replace(Polled.ended(Ending.CRASHED, detail, fix), bootstrap=True)


def deleted(host: str, folder: str) -> Polled:
    """Of an attempt that was ended because its `folder` was gone."""
    detail = f"the folder of the attempt was deleted on host {host} ({folder})"
    return Polled.ended(Ending.CRASHED, detail, "resume the run: its next attempt has another folder")


def _gone(host: str, answer: Record) -> Polled:
    if answer["rebooted"]:
        detail = f"host {host} was rebooted during the attempt"
        return Polled(Process.ENDED, ending=Ending.NODE_LOST, detail=detail, failed_hosts=(host,))
    detail = f"the keeper of the attempt was killed on host {host}, and the processes that it had started with it"
    return _with_full_disk(Polled.ended(Ending.UNKNOWN, detail), host, answer)


def _with_full_disk(ended: Polled, host: str, answer: Record | None) -> Polled:
    """What failed on a host whose disk is full failed by that."""
    full = (answer or {}).get("full_disk")
    if not full:
        return ended
    detail = f"the disk of host {host} is full: {full}" + (f" ({ended.who} failed)" if ended.who else "")
    fix = "free some space there, or, unless its runs is set, set folder of the target to one on another disk; then resume the run"
    return replace(ended, ending=Ending.CRASHED, detail=detail, fix=fix)

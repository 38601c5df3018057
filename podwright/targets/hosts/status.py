"""The state of an attempt from the answers of its hosts' keepers, or from why they did not answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podwright.rundir import Ending, Record
from podwright.targets.base import Polled, Process
from podwright.targets.hosts.transport import Trouble

_OPEN = "open port {port} of {host} to the other hosts, or set address of the target to a name of it that they reach; then resume the run"


def combined(names: Sequence[str], answers: Sequence[Record | Trouble]) -> Polled:
    silent = {name: answer.what for name, answer in zip(names, answers, strict=True) if isinstance(answer, Trouble)}
    answered = {n: answer for n, answer in enumerate(answers) if not isinstance(answer, Trouble) and answer["record"]}
    unreachable = f"Unreachable: {'; '.join(silent.values())}" if silent else ""
    if not answered:
        return Polled(Process.RUNNING, waiting=unreachable) if silent else Polled(Process.ABSENT)
    first = answered.get(0)
    if first and first["record"]["phase"] == "ended":
        return _over(names, answered, first["record"])
    if first and not first["alive"]:
        return _gone(names[0], first["rebooted"])
    others = [answer["record"] for n, answer in answered.items() if n]
    fault = next((record for record in others if record["fault"]), None)
    if first is None and fault and all(record["phase"] == "ended" for record in others):
        return _over(names, answered, fault)
    missing = first["record"]["missing"] if first else []
    joining = f"Joining: {', '.join(missing)} has not come yet" if missing else ""
    return Polled(Process.RUNNING, waiting=unreachable or joining)


def to_record(polled: Polled) -> Record:
    """Of an ended attempt, to be kept."""
    result: dict[str, Any] = {"returncode": polled.returncode, "ending": polled.ending and str(polled.ending)}
    result |= {"detail": polled.detail, "fix": polled.fix, "who": polled.who, "first": polled.first}
    return result | {"failed_hosts": list(polled.failed_hosts), "bootstrap": polled.bootstrap}


def from_record(kept: Record) -> Polled:
    ending = Ending(kept["ending"]) if kept["ending"] else None
    return Polled(
        Process.ENDED,
        kept["returncode"],
        ending=ending,
        detail=kept["detail"],
        fix=kept["fix"],
        who=kept["who"],
        first=kept["first"],
        failed_hosts=tuple(kept["failed_hosts"]),
        bootstrap=kept["bootstrap"],
    )


def _over(names: Sequence[str], answered: dict[int, Record], ended: Record) -> Polled:
    fault = ended["fault"]
    if fault is None:
        return Polled(Process.ENDED, ended["codes"].get("0"))
    host = fault["host"]
    if fault["kind"] == "process":
        who = f"process {fault['process']} on {host}"
        return Polled(Process.ENDED, fault["code"], who=who, first=fault["process"], failed_hosts=(host,))
    if fault["kind"] == "lost":
        answer = answered.get(list(names).index(host))
        if answer and not answer["alive"] and answer["record"]["phase"] != "ended":
            return _gone(host, answer["rebooted"])
        return Polled(
            Process.ENDED,
            ending=Ending.NODE_LOST,
            detail=f"host {host} was lost: the others heard nothing of it any more",
            failed_hosts=(host,),
        )
    if fault["kind"] == "port":
        detail = f"the processes cannot meet at {host}: {fault['why']}"
        return Polled(
            Process.ENDED,
            ending=Ending.CRASHED,
            detail=detail,
            fix="type podwright resume: each attempt takes another port",
            bootstrap=True,
        )
    detail = (
        f"{fault['why']} did not come to {host} in time"
        if fault["kind"] == "absent"
        else f"{host} cannot reach {fault['why']}"
    )
    fix = _OPEN.format(port=fault["port"], host=names[0])
    return Polled(Process.ENDED, ending=Ending.CRASHED, detail=detail, fix=fix, bootstrap=True)


def _gone(host: str, rebooted: bool) -> Polled:
    if rebooted:
        detail = f"host {host} was started anew"
        return Polled(Process.ENDED, ending=Ending.NODE_LOST, detail=detail, failed_hosts=(host,))
    detail = f"the supervisor of the processes was killed on host {host}"
    return Polled(Process.ENDED, ending=Ending.UNKNOWN, detail=detail)

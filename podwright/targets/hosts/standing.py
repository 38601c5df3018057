"""How an attempt stands, from what the keepers on its hosts say, or why they cannot be asked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podwright.rundir import Ending, Record
from podwright.targets.base import Polled, Process
from podwright.targets.hosts.host import Trouble

_OPEN = "open port {port} of {host} to the other hosts, or set address of the target to a name of it that they reach; then resume the run"


def judged(names: Sequence[str], answers: Sequence[Record | Trouble]) -> Polled:
    silent = {name: answer.what for name, answer in zip(names, answers, strict=True) if isinstance(answer, Trouble)}
    told = {n: answer for n, answer in enumerate(answers) if not isinstance(answer, Trouble) and answer["record"]}
    unreachable = f"Unreachable: {'; '.join(silent.values())}" if silent else ""
    if not told:
        return Polled(Process.RUNNING, waiting=unreachable) if silent else Polled(Process.ABSENT)
    first = told.get(0)
    if first and first["record"]["phase"] == "ended":
        return _over(names, told, first["record"])
    if first and not first["alive"]:
        return _gone(names[0], first["rebooted"])
    others = [answer["record"] for n, answer in told.items() if n]
    fault = next((record for record in others if record["fault"]), None)
    if first is None and fault and all(record["phase"] == "ended" for record in others):
        return _over(names, told, fault)
    missing = first["record"]["missing"] if first else []
    joining = f"Joining: {', '.join(missing)} has not come yet" if missing else ""
    return Polled(Process.RUNNING, waiting=unreachable or joining)


def record(polled: Polled) -> Record:
    """Of an ended one, to be kept."""
    told: dict[str, Any] = {"returncode": polled.returncode, "ending": polled.ending and str(polled.ending)}
    return told | {"detail": polled.detail, "fix": polled.fix, "who": polled.who, "first": polled.first}


def told(kept: Record) -> Polled:
    ending = Ending(kept["ending"]) if kept["ending"] else None
    return Polled(
        Process.ENDED,
        kept["returncode"],
        ending=ending,
        detail=kept["detail"],
        fix=kept["fix"],
        who=kept["who"],
        first=kept["first"],
    )


def _over(names: Sequence[str], told: dict[int, Record], ended: Record) -> Polled:
    fault = ended["fault"]
    if fault is None:
        return Polled(Process.ENDED, ended["codes"].get("0"))
    host = fault["host"]
    if fault["kind"] == "process":
        return Polled(Process.ENDED, fault["code"], who=f"process {fault['process']} on {host}", first=fault["process"])
    if fault["kind"] == "lost":
        answer = told.get(list(names).index(host))
        if answer and not answer["alive"] and answer["record"]["phase"] != "ended":
            return _gone(host, answer["rebooted"])
        return Polled(
            Process.ENDED,
            ending=Ending.NODE_LOST,
            detail=f"host {host} was lost: the others heard nothing of it any more",
        )
    if fault["kind"] == "port":
        detail = f"the processes cannot meet at {host}: {fault['why']}"
        return Polled(
            Process.ENDED,
            ending=Ending.CRASHED,
            detail=detail,
            fix="type podwright resume: each attempt takes another port",
        )
    detail = (
        f"{fault['why']} did not come to {host} in time"
        if fault["kind"] == "absent"
        else f"{host} cannot reach {fault['why']}"
    )
    return Polled(
        Process.ENDED, ending=Ending.CRASHED, detail=detail, fix=_OPEN.format(port=fault["port"], host=names[0])
    )


def _gone(host: str, rebooted: bool) -> Polled:
    if rebooted:
        return Polled(Process.ENDED, ending=Ending.NODE_LOST, detail=f"host {host} was started anew")
    return Polled(
        Process.ENDED, ending=Ending.UNKNOWN, detail=f"somebody killed what watches over the processes on host {host}"
    )

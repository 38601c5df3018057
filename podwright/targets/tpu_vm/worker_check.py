"""Looks at all workers of a slice together before a run is started on them: whether jax sees their chips as one slice, in the right
order, and whether each has the same software, disk space and the storage.

What is wrong with the machines costs the slice, which is replaced; what is wrong with the settings ends the run.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from podwright.failures.match import last_line
from podwright.rundir import Ending, Record
from podwright.targets.hosts.transport import Host, Trouble, explained, of_each, require_all

LEAST_FREE = 10 << 30
_SKEW_S = 10.0
_EXIT = "podwright: the check ended with "
_TIMED_OUT = (124, 137)
_CUT_OFF = -1
_ANOTHER = "resume the run: it requests another slice"


@dataclass
class Answer:
    """Of one worker."""

    name: str
    text: str
    exit: int = _CUT_OFF
    stages: list[Record] = field(default_factory=list)

    @property
    def seen(self) -> Record:
        """Of all stages together."""
        return {key: value for stage in self.stages for key, value in stage.items()}


def check(hosts: Sequence[Host], order: Record) -> None:
    """Trouble that names the worker at fault; nothing if an attempt can start."""
    attempt = shlex.quote(order["handle"]["attempt_dir"])
    limit_s = order["check_limit_s"]

    def ask(number: int, host: Host) -> Answer:
        variables = json.dumps({"env": host.shell.variables(order["env"])}) + "\n"
        limited = f"timeout -k 5 {limit_s:.0f} bash start.sh {number} check 2>&1"
        return parse(
            host.name, host.call(f"cd {attempt} && {{ {limited}; echo '{_EXIT}'$?; }}", variables, limit_s + 60)
        )

    answers = require_all(of_each(hosts, ask))
    if trouble := judge(answers, order["devices_per_host"]):
        raise trouble


def parse(name: str, text: str) -> Answer:
    answer = Answer(name, text)
    for line in text.splitlines():
        if match := re.match(f"{_EXIT}(\\d+)$", line):
            answer.exit = int(match[1])
        if line.startswith("{"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and "stage" in record:
                answer.stages.append(record)
    return answer


def judge(answers: Sequence[Answer], devices_per_host: int) -> Trouble | None:
    """The first cause over all workers: of those that failed by themselves, then of those that kept the others waiting."""
    for seen_in in ("tpu_worker", "tpu_peer"):
        for answer in answers:
            if answer.exit:
                known = explained(answer.text, {"host": answer.name}, seen_in)
                if known:
                    return known
    for answer in answers:
        if answer.exit and answer.exit not in _TIMED_OUT:
            return _failed(answer)
    if any(answer.exit in _TIMED_OUT for answer in answers):
        return _hanging(answers)
    for answer in answers:
        trouble = _of_one(answer, devices_per_host, len(answers))
        if trouble:
            return trouble
    return _differing(answers)


def _failed(answer: Answer) -> Trouble:
    last = last_line(_without_marks(answer.text))
    why = "its answer was cut off" if answer.exit == _CUT_OFF else last or f"exit code {answer.exit}"
    what = f"the check of {answer.name} failed: {why}"
    return Trouble(what, _ANOTHER, Ending.NO_CAPACITY, answer.text)


def _hanging(answers: Sequence[Answer]) -> Trouble:
    """All wait when one does: those that have come least far are to blame."""
    least = min(len(answer.stages) for answer in answers)
    names = [answer.name for answer in answers if len(answer.stages) == least]
    doing = ("starting Python", "joining the others", "initializing its TPU", "trying the storage")[min(least, 3)]
    who = ", ".join(names) if len(names) < len(answers) else "every worker"
    what = f"{who} hangs in the check: {doing} did not end in time"
    return Trouble(what, _ANOTHER, Ending.NO_CAPACITY)


def _of_one(answer: Answer, devices_per_host: int, num_hosts: int) -> Trouble | None:
    seen, name = answer.seen, answer.name
    if fault := seen.get("fault"):
        return Trouble(f"{name}: {fault}", seen["fix"])
    if seen["free_bytes"] < LEAST_FREE:
        what = f"{name} has {seen['free_bytes'] / (1 << 30):.1f} GiB of free disk space, and 10 are needed"
        return Trouble(what, "free some there, or delete the slice", Ending.NO_CAPACITY)
    num_devices = devices_per_host * num_hosts
    what = ""
    if seen["local"] != devices_per_host:
        what = f"sees {seen['local']} of its {devices_per_host} chips (platform {seen['platform']})"
    elif seen["all"] != num_devices:
        what = f"sees {seen['all']} of {num_devices} chips of the slice"
    elif seen["process"] != seen["expected_process"]:
        what = f"is process {seen['process']} for jax and {seen['expected_process']} for the cloud"
    return Trouble(f"{name} {what}", _ANOTHER, Ending.NO_CAPACITY) if what else None


def _differing(answers: Sequence[Answer]) -> Trouble | None:
    first = answers[0]
    for answer in answers[1:]:
        for package, version in answer.seen["versions"].items():
            if version != first.seen["versions"][package]:
                what = f"{answer.name} has {package} {version or 'not'}, and {first.name} {first.seen['versions'][package] or 'not'}"
                return Trouble(what, "install the same on all, or remove python from the target")
        skew = abs(answer.seen["time"] - first.seen["time"])
        if skew > _SKEW_S:
            what = f"the clocks of {first.name} and {answer.name} differ by {skew:.0f} s"
            return Trouble(what, _ANOTHER, Ending.NO_CAPACITY)
    return None


def _without_marks(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith((_EXIT, "{")))

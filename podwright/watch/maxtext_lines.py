"""What single lines of a MaxText log say: a step, an evaluation, the set-up, the end. Formats: MaxText's metric_logger.py, max_utils.py
and train.py, from 2024 to 2026, and the script that xpk starts in a pod."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from podwright.rundir import Record

MOST_SETTINGS = 4000
"""of `Config param`; MaxText has about 830"""
MOST_TEXT = 300  # characters of a value that is kept
_COLOR = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]")
"""a control sequence of a terminal (ECMA-48)"""
_RAMPING = b"[Rampup Batch Size Phase], "
_STEP = re.compile(rb"completed (profiler activation/deactivation )?step: (\d+)(?:, ([^\r\n]*))?$")
_MOST_DIGITS = 9  # of the number of a step
_SHORT = re.compile(rb"^\s*[Ss]tep (\d{1,9}): loss=(\S+?), +~?([\d.]+) ?s\b")
"""a step as people write it down: Step 3: loss=5.272, 7.954s"""
FIGURES = {
    b"seconds": "step_s",
    b"TFLOP/s/device": "tflops_per_device",
    b"Tokens/s/device": "tokens_per_s_per_device",
    b"total_weights": "total_weights",
    b"loss": "loss",
}
"""the fields of every step line, and their names in metrics.jsonl"""


def plain(text: bytes) -> bytes:
    """Lines without the colours of a terminal."""
    return _COLOR.sub(b"", text) if b"\x1b" in text else text


def step_line(line: bytes) -> Record | None:
    """The step that a line without colours reports, without the figures that it lacks; None in the place of one that is not finite.

    None for a line that has no number of a step, ValueError for one that is damaged.
    """
    match = _STEP.search(line)
    if match is None:
        return _short_step(line)
    if len(match[2]) > _MOST_DIGITS:
        raise ValueError("no number of a step")
    fields = _by_name(match[3] or b"")
    record: Record = {"step": int(match[2])}
    for field_name, name in FIGURES.items():
        if field_name in fields:
            record[name] = _finite(float(fields.pop(field_name)))
    if match[1]:
        record["profiler_switched"] = True
    elif "step_s" not in record:
        raise ValueError("no seconds")
    if line.endswith(_RAMPING, 0, match.start()):
        record["ramp_up"] = True
    return _numbers(fields) | record


def _short_step(line: bytes) -> Record | None:
    match = _SHORT.match(line)
    if match is None:
        return None
    return {"step": int(match[1]), "step_s": _finite(float(match[3])), "loss": _finite(float(match[2]))}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _by_name(fields: bytes) -> dict[bytes, bytes]:
    """The first value of each name: two processes may write into one line."""
    named: dict[bytes, bytes] = {}
    for part in fields.split(b", "):
        name, _, value = part.partition(b": ")
        named.setdefault(name, value)
    return named


def _numbers(fields: dict[bytes, bytes]) -> dict[str, float]:
    """The finite ones by name."""
    numbers: dict[str, float] = {}
    for key, value in fields.items():
        with contextlib.suppress(ValueError):
            number = float(value.rstrip(b"%"))
            if key and math.isfinite(number):
                numbers[key.decode(errors="replace")] = number
    return numbers


@dataclass
class SetUp:
    """What lines besides the steps say. None and empty: not in the log."""

    settings: dict[str, str] = field(default_factory=dict)
    """MaxText's configuration as it was printed"""
    versions: dict[str, str] = field(default_factory=dict)
    devices: int | None = None
    mesh: str | None = None
    device_kind: str | None = None
    params_billion: float | None = None
    memory_gib: float | None = None
    """estimated by the compiler, per device"""
    memory_used_gib: float | None = None
    """the largest that Memstats printed"""
    memory_limit_gib: float | None = None
    exit_code: int | None = None
    stopped: str | None = None
    """MaxText's own word of why it stopped before the last step"""
    evaluations: list[Record] = field(default_factory=list)
    """that no event has been made of yet"""


_MEMORY = re.compile(rb"Using \(GB\) ([\d.]+) / ([\d.]+)")
_EVALUATION = re.compile(
    rb"(?:Completed eval after train step|eval metrics after step:) ?(\d{1,15}).{0,300}?\bloss=\s*([^\s,]+)"
)


def _config(line: bytes, known: SetUp) -> None:
    name, _, value = line.partition(b"Config param ")[2].partition(b": ")
    if len(known.settings) < MOST_SETTINGS:
        known.settings[_text(name)] = _text(value)


def _evaluation(line: bytes, known: SetUp) -> None:
    if match := _EVALUATION.search(line):
        fields = (part.partition(b"=") for part in line[match.start() :].split(b", "))
        loss = float(match[2])
        more = _numbers({key: value.strip() for key, _, value in fields})
        known.evaluations.append({"step": int(match[1]), "loss": _finite(loss), **more})


def _memstats(line: bytes, known: SetUp) -> None:
    if match := _MEMORY.search(line):
        known.memory_used_gib = max(known.memory_used_gib or 0.0, float(match[1]))
        known.memory_limit_gib = float(match[2])


def _take(name: str, pattern: bytes, kind: Callable[[bytes], object]) -> Take:
    """Sets the field `name` to the group of `pattern`."""
    compiled = re.compile(pattern)

    def take(line: bytes, known: SetUp) -> None:
        if match := compiled.search(line):
            setattr(known, name, kind(match[1]))

    return take


def _version(line: bytes, known: SetUp) -> None:
    if match := re.search(rb"(?i)\b(jax|jaxlib|libtpu|maxtext) version[:=]? ?v?(\d[\w.+-]*)", line):
        known.versions[match[1].decode().lower()] = _text(match[2])


def _nothing(line: bytes, known: SetUp) -> None:
    pass


def _text(value: bytes) -> str:
    return value.decode(errors="replace").strip()[:MOST_TEXT]


Take = Callable[[bytes, SetUp], None]
_KINDS: dict[str, Callable[[bytes], object]] = {"int": int, "float": float, "text": _text}
_FIELDS = yaml.safe_load(Path(__file__).with_name("maxtext_lines.yaml").read_text())
LINES: tuple[tuple[bytes, Take], ...] = (
    (b"Config param ", _config),
    *((row["mark"].encode(), _take(row["field"], row["pattern"].encode(), _KINDS[row["kind"]])) for row in _FIELDS),
    (b" Version", _version),
    (b" version", _version),
    (b"Using (GB) ", _memstats),
    (b"Completed eval after train step", _evaluation),
    (b"eval metrics after step:", _evaluation),
    (b"XPK Start: ", _nothing),
)
"""the text by which a line is recognized, and what is taken from it"""
START = (b"Num_devices: ", b"number parameters: ", b"XPK Start: ")
"""what a process prints before its first step: after it a step begins another attempt"""

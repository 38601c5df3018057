"""What single lines of a MaxText log say: a step, an evaluation, the set-up, the end. Formats: MaxText's metric_logger.py, max_utils.py
and train.py, from 2024 to 2026, and the script that xpk starts in a pod."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from podwright.rundir import Record
from podwright.watch.step_table import HIDDEN, RAMP_UP

MOST_SETTINGS = 4000
"""of `Config param`; MaxText has about 830"""
MOST_TEXT = 300  # characters of a value that is kept


MOST_DIGITS = 9  # of the number of a step
_COLOR = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]")
"""a control sequence of a terminal (ECMA-48)"""
RAMPING = b"[Rampup Batch Size Phase], "

Row = tuple[int, int, float, float, float, float, float]
"""step, marks, seconds, TFLOP/s, tokens/s, total_weights, loss; NaN for what a line does not have"""


_STEP = re.compile(rb"completed (profiler activation/deactivation )?step: (\d+)(?:, ([^\r\n]*))?$")
_SHORT = re.compile(rb"^\s*[Ss]tep (\d{1,9}): loss=(\S+?), +~?([\d.]+) ?s\b")
"""a step as people write it down: Step 3: loss=5.272, 7.954s"""
_USUAL = re.compile(
    rb"completed step: (\d{1,9}), seconds: ([\d.]+), TFLOP/s/device: ([\d.]+), Tokens/s/device: ([\d.]+), "
    rb"total_weights: ([\d.]+), loss: ([\d.]+)(?:,|$)"
)
_PLAIN_LINES = re.compile(
    rb"(?m)^[IWEF](\d{4} \d\d:\d\d):(\d\d\.\d{1,9}) +\d+ \w+\.py:\d+\] "
    + _USUAL.pattern.removesuffix(rb"(?:,|$)")
    + rb"(?:, (?!version)[a-z_]+: (?:[\d.]+|nan|inf))*$"
)
"""the usual line behind the prefix of absl: its minute, its seconds, and the groups of _USUAL. No text of LINES can stand in it."""
_NAMES = (b"seconds", b"TFLOP/s/device", b"Tokens/s/device", b"total_weights", b"loss")


def plain(text: bytes) -> bytes:
    """Lines without the colours of a terminal."""
    return _COLOR.sub(b"", text) if b"\x1b" in text else text


def step_line(line: bytes) -> Row | None:
    """The step that a line without colours reports; None of a line that has no number of a step, ValueError where it is damaged."""
    usual = _USUAL.search(line)
    if usual:  # most lines: three times as fast as the other way
        step, a, b, c, d, e = usual.groups()
        marks = RAMP_UP if line.endswith(RAMPING, 0, usual.start()) else 0
        return int(step), marks, float(a), float(b), float(c), float(d), float(e)
    match = _STEP.search(line)
    if match is None:
        short = _SHORT.match(line)
        nan = math.nan
        return (int(short[1]), 0, float(short[3]), nan, nan, nan, float(short[2])) if short else None
    if len(match[2]) > MOST_DIGITS:
        raise ValueError("no number of a step")
    marks = (HIDDEN if match[1] else 0) | (RAMP_UP if line.endswith(RAMPING, 0, match.start()) else 0)
    fields = _by_name(match[3] or b"")
    if not marks & HIDDEN and b"seconds" not in fields:
        raise ValueError("no seconds")
    a, b, c, d, e = (fields.get(name, b"nan") for name in _NAMES)
    return int(match[2]), marks, float(a), float(b), float(c), float(d), float(e)


def plain_lines(text: bytes, num_lines: int) -> list[tuple[bytes, ...]]:
    """The groups of _PLAIN_LINES for each line of `text`; [] where a line of the `num_lines` is another one."""
    if text.count(b"] completed step: ") != num_lines:
        return []
    rows = _PLAIN_LINES.findall(text)
    return rows if len(rows) == num_lines else []


def _by_name(fields: bytes) -> dict[bytes, bytes]:
    """ValueError where a name comes twice: two processes wrote into one line."""
    parts = [part.partition(b": ") for part in fields.split(b", ")]
    named = {key: value for key, _, value in parts}
    if len(named) < len(parts):
        raise ValueError("two lines in one")
    return named


def more_of_step(line: bytes) -> dict[str, float]:
    """lm_loss, perplexity, moe_lb_loss, mtp_loss and whatever else a step line has."""
    match = _STEP.search(line)
    try:
        fields = _by_name(match[3] or b"") if match else {}
    except ValueError:
        return {}
    return _numbers({key: value for key, value in fields.items() if key not in _NAMES})


def _numbers(fields: dict[bytes, bytes]) -> dict[str, float]:
    """The finite ones by name."""
    numbers: dict[str, float] = {}
    for key, value in fields.items():
        with contextlib.suppress(ValueError):
            if key and math.isfinite(number := float(value.rstrip(b"%"))):
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
    tflops_per_step: float | None = None
    """of a device, by MaxText's own formula"""
    memory_gib: float | None = None
    """estimated by the compiler, per device"""
    memory_used_gib: float | None = None
    """the largest that Memstats printed"""
    memory_limit_gib: float | None = None
    exit_code: int | None = None
    evaluations: list[Record] = field(default_factory=list)
    stopped: str | None = None
    """MaxText's own word of why it stopped before the last step"""


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
        loss, more = float(match[2]), _numbers({key: value.strip() for key, _, value in fields})
        known.evaluations.append({"step": int(match[1]), "loss": loss if math.isfinite(loss) else None, **more})


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
LINES: tuple[tuple[bytes, Take], ...] = (
    (b"Config param ", _config),
    (b"Num_devices: ", _take("devices", rb"Num_devices: (\d{1,9})\b", int)),
    (b"Num_devices: ", _take("mesh", rb"Num_devices: \d+, shape (.{1,200})", _text)),
    (b"TFRT TPU", _take("device_kind", rb"TFRT (TPU ?\w+(?: lite)?)", _text)),
    (b" Version", _version),
    (b" version", _version),
    (b"number parameters: ", _take("params_billion", rb"number parameters: ([\d.]+) billion", float)),
    (b"otal TFLOPs", _take("tflops_per_step", rb"otal TFLOPs(?: will be|:) ([\d.]+)", float)),
    (b"memory size: ", _take("memory_gib", rb"Total (?:estimated )?memory size: ([\d.]+) GB", float)),
    (b"Using (GB) ", _memstats),
    (b"Completed eval after train step", _evaluation),
    (b"eval metrics after step:", _evaluation),
    (b"XPK Start: ", _nothing),
    (b"EXIT_CODE=", _take("exit_code", rb"(?:^|\s)EXIT_CODE=(\d{1,3})\s*$", int)),
    (b"Aborting training due to", _take("stopped", rb"(Aborting training due to \S+ loss)", _text)),
    (b"Training stopped: ", _take("stopped", rb"(Training stopped: .{1,200})", _text)),
)
"""the text by which a line is recognized, and what is taken from it"""
START = (b"Num_devices: ", b"number parameters: ", b"XPK Start: ")
"""what a process prints before its first step: after it a step begins another attempt"""

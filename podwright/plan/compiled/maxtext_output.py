"""Reads what MaxText's train_compile prints: the sizes of the compiled step, and why there is none.

The texts are those of MaxText 0.2.5 and maxtext-tutorial-v1.5.0 with libtpu 0.0.30 to 0.0.51; tests/unit/plan/maxtext/texts has them as
they were printed, but for paths; vmem.txt is what libtpu printed for another program of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from podwright.accelerators import GIB

_STATS = re.compile(r"Memory analysis: CompiledMemoryStats\(([^)]*)\)")
# E1000 of libtpu 0.0.51, and its template before; G is GiB.
_OOM = (
    re.compile(r"\(([\d.]+)([KMG])\) exceeds available HBM \(([\d.]+)([KMG])\)"),
    re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm", re.IGNORECASE),
)
_UNITS = {"K": 1024, "M": 1024**2, "G": GIB}
_UNSUPPORTED = re.compile(r"NotImplementedError: (Not supported on cpu\.?)", re.IGNORECASE)
_FLAG = re.compile(r"(?:Unknown command line flag|No such compile option:) '(\w+)'")
_FLAG_VALUE = re.compile(r"Illegal value '([^']*)' specified for flag '(\w+)'")
_SCOPED = re.compile(r"Scoped allocation with size [\d.]+\w and limit \S+ exceeded scoped vmem limit by [\d.]+\w")
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.*)$", re.MULTILINE)
MOST = 400
"""characters of an error that are quoted"""


@dataclass(frozen=True)
class CompileFailure:
    """Why a train step was not compiled."""

    kind: Literal["hbm", "vmem", "cpu", "flag", "other"]
    """too large for the device or for a core's own memory; a kernel that is not traced on a CPU; a flag libtpu does not take"""
    reason: str
    need_bytes: int | None = None
    """of a device, where it is too large"""
    limit_bytes: int | None = None


def sizes(log: str) -> Mapping[str, int]:
    """Bytes per device by JAX's `memory_analysis` of the compiled step: argument_size, temp_size and so on; {} where it was not printed."""
    match = _STATS.search(log)
    pairs: Iterable[tuple[str, str]] = re.findall(r"(\w+)_in_bytes=(\d+)", match[1]) if match else ()
    return {name: int(size) for name, size in pairs}


def failure(log: str) -> CompileFailure:
    """By the log of a train_compile that failed."""
    for pattern in _OOM:
        if match := pattern.search(log):
            need, limit = (round(float(match[i]) * _UNITS[match[i + 1]]) for i in (1, 3))
            return CompileFailure("hbm", _line(log, match.start()), need, limit)
    if match := _SCOPED.search(log):
        return CompileFailure("vmem", match[0])
    if match := _UNSUPPORTED.search(log):
        return CompileFailure("cpu", match[1].rstrip("."))
    if match := _FLAG.search(log):
        return CompileFailure("flag", f"unknown flag {match[1]}")
    if match := _FLAG_VALUE.search(log):
        return CompileFailure("flag", f"flag {match[2]} does not take the value {match[1]!r}")
    raised = _RAISED.findall(log)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    words = ": ".join(raised[-1]) if raised else (lines or ["it ended without a message"])[-1]
    return CompileFailure("other", words[:MOST])


def _line(text: str, position: int) -> str:
    begin = text.rfind("RESOURCE_EXHAUSTED", 0, position)
    begin = begin if begin >= 0 else text.rfind("\n", 0, position) + 1
    return " ".join(text[begin:].splitlines()[0].split())[:MOST]


def phase(log: str) -> str:
    """How far it is."""
    if "Jitting and compiling train step" in log:
        return "tracing and compiling"
    return "building the model" if "Starting train_compile" in log else "starting"

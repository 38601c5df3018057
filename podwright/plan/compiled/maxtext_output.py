"""Reads what MaxText's train_compile prints: the sizes of the compiled step, and why there is none.

The texts are those of MaxText 0.2.5 and maxtext-tutorial-v1.5.0 with libtpu 0.0.30 to 0.0.51; tests/unit/plan/maxtext/texts has them as
they were printed, but for paths; vmem.txt is what libtpu printed for another program of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podwright.accelerators import GIB

_STATS = re.compile(r"Memory analysis: CompiledMemoryStats\(([^)]*)\)")
# E1000 of libtpu 0.0.51, and its template before; G is GiB.
_OOM = (
    re.compile(r"\(([\d.]+)([KMG])\) exceeds available HBM \(([\d.]+)([KMG])\)"),
    re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm", re.IGNORECASE),
)
_UNITS = {"K": 1024, "M": 1024**2, "G": GIB}
_UNSUPPORTED = re.compile(r"NotImplementedError: (Not supported on cpu)", re.IGNORECASE)
_OF_LIBTPU = re.compile(
    r"Scoped allocation with size [\d.]+\w and limit \S+ exceeded scoped vmem limit by [\d.]+\w"
    r"|(?:Unknown command line flag|No such compile option:) '\w+'|Illegal value '[^']*' specified for flag '\w+'"
)
"""what libtpu says of a kernel that is too large for a core's own memory, and of a flag that it does not take"""
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (.*)$", re.MULTILINE)
MOST = 400
"""characters of an error that are quoted"""


@dataclass(frozen=True)
class CompileFailure:
    """Why a train step was not compiled."""

    reason: str
    on_cpu: bool = False
    """whether a kernel is not traced on a CPU"""
    need_bytes: int | None = None
    """of a device, where it is too large"""


def sizes(log: str) -> Mapping[str, int]:
    """Bytes per device by JAX's `memory_analysis` of the compiled step: argument_size, temp_size and so on; {} where it was not printed."""
    match = _STATS.search(log)
    pairs: Iterable[tuple[str, str]] = re.findall(r"(\w+)_in_bytes=(\d+)", match[1]) if match else ()
    return {name: int(size) for name, size in pairs}


def failure(log: str) -> CompileFailure:
    """By the log of a train_compile that failed."""
    for pattern in _OOM:
        if match := pattern.search(log):
            need_bytes = round(float(match[1]) * _UNITS[match[2]])
            return CompileFailure(_line(log, match.start()), need_bytes=need_bytes)
    if match := _OF_LIBTPU.search(log):
        return CompileFailure(match[0])
    if match := _UNSUPPORTED.search(log):
        return CompileFailure(match[1], on_cpu=True)
    raised = _RAISED.findall(log)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    words = ": ".join(raised[-1]) if raised else (lines or ["it ended without a message"])[-1]
    return CompileFailure(words[:MOST])


def _line(text: str, position: int) -> str:
    begin = text.rfind("RESOURCE_EXHAUSTED", 0, position)
    begin = begin if begin >= 0 else text.rfind("\n", 0, position) + 1
    return " ".join(text[begin:].splitlines()[0].split())[:MOST]


def phase(log: str) -> str:
    """How far it is."""
    if "Jitting and compiling train step" in log:
        return "tracing and compiling"
    return "building the model" if "Starting train_compile" in log else "starting"

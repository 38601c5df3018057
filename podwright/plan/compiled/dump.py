"""Reads the buffer assignment that XLA's TPU compiler dumps: what a program holds in device memory, and whose it is.

The sum of parameters, outputs, constants and the preallocated temporaries of memory space 0 is the number that the
compiler's own out-of-memory message compares with its limit; thread-local allocations are not counted there either.
What is offloaded to the host lies in a memory space of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from podwright.plan.compiled import hlo

# libtpu 0.0.42 writes "size 16, parameter 0", libtpu 0.0.51 "size 16, page 0, parameter 0"; a colour stands before the page.
_ALLOCATION = re.compile(r"^allocation \d+: size (\d+), ?(?:page \d+, )?(.*)$")
_VALUE = re.compile(r"^ value: <\d+ ([\w.\-]+)(?:\{[^}]*\})? .*?@\d+> \(size=(\d+),offset=(\d+)\): (\w+\[[\d,]*\])")
_METADATA = re.compile(
    r'^\s+(?:ROOT )?%?([\w.\-]+) = .*?metadata=\{(?:op_type="[^"]*" )?op_name="([^"]*)"(?:[^}]*?stack_frame_id=(\d+))?'
)
LARGEST = 8


@dataclass(frozen=True)
class BufferAllocation:
    size_bytes: int
    shape: str
    what: str
    """the operation and the line of the source that made it"""


@dataclass(frozen=True)
class Memory:
    """Bytes per device."""

    arguments: int
    aliased: int
    """of the arguments, what outputs take over"""
    outputs: int
    """beyond the aliased ones"""
    temporaries: int
    constants: int
    largest: tuple[BufferAllocation, ...]
    """of the temporaries, none twice for the same place in memory"""
    host: int = 0
    """of the host's memory, for what is offloaded there"""

    @property
    def need(self) -> int:
        return self.arguments + self.outputs + self.temporaries + self.constants


def of_executable(sizes: Mapping[str, int]) -> Memory:
    """By JAX's `memory_analysis`, which knows no arrays."""
    outputs = sizes["output_size"] - sizes["alias_size"]
    held = sizes["argument_size"], sizes["alias_size"], outputs, sizes["temp_size"]
    return Memory(*held, 0, (), sizes["host_temp_size"])


def memory(folder: Path) -> Memory:
    """What the dump in `folder` says."""
    totals = {"arguments": 0, "aliased": 0, "outputs": 0, "temporaries": 0, "constants": 0, "host": 0}
    values: list[tuple[int, int, str, str]] = []
    path = _first(folder, "*after_optimizations-buffer-assignment.txt")
    assert path, f"no buffer assignment in {folder}"
    for size, kind, lines in _allocations(path):
        name = _kind(kind)
        if name is None:
            continue
        totals[name] += size
        if name == "arguments" and "live-out" in kind:
            totals["aliased"] += size
        if name == "temporaries":
            for match in map(_VALUE.match, lines):
                if match:
                    values.append((int(match[2]), int(match[3]), match[1], match[4]))
    named = Names(folder)
    return Memory(
        **totals,
        largest=tuple(
            BufferAllocation(size, shape, named.of(instruction)) for size, instruction, shape in _distinct(values)
        ),
    )


def schedule(folder: Path) -> Path | None:
    """The program as it was scheduled, for `hlo.read`; written before the buffers are assigned."""
    return _first(folder, "*after_optimizations.txt")


def _first(folder: Path, pattern: str) -> Path | None:
    return min(folder.glob(pattern), default=None)


def _allocations(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    head: tuple[int, str] | None = None
    lines: list[str] = []
    with path.open() as f:
        for line in f:
            match = _ALLOCATION.match(line)
            if match:
                if head:
                    yield *head, lines
                head, lines = (int(match[1]), match[2]), []
            elif head:
                lines.append(line)
    if head:
        yield *head, lines


def _kind(text: str) -> str | None:
    """None for what counts neither against device memory nor the host's: memory on the chip, and thread-local scratch."""
    if text.startswith(f"color {hlo.HOST},"):
        return "host"
    if text.startswith("color ") or "thread-local" in text:
        return None
    if text.startswith("parameter"):
        return "arguments"
    if "preallocated-temp" in text:
        return "temporaries"
    return "constants" if "constant" in text else "outputs"


def _distinct(values: list[tuple[int, int, str, str]]) -> Iterator[tuple[int, str, str]]:
    """The largest values, one for each stretch of memory: values that share it live at different times."""
    taken: list[tuple[int, int]] = []
    for size, offset, instruction, shape in sorted(values, key=lambda v: -v[0]):
        if any(offset < end and begin < offset + size for begin, end in taken):
            continue
        taken.append((offset, offset + size))
        yield size, instruction, shape
        if len(taken) == LARGEST:
            return


class Names:
    """From an instruction of the compiled module to words a reader of the source knows."""

    def __init__(self, folder: Path) -> None:
        names = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
        self._tables: dict[str, dict[str, str]] = {name: {} for name in names}
        self._metadata: dict[str, tuple[str, str | None]] = {}
        table = ""
        path = schedule(folder) or _first(folder, "*oom_intermediate_module.txt")
        for line in path.read_text().splitlines() if path else ():
            if line in self._tables:
                table = line
            elif table and line[:1].isdigit():
                number, _, rest = line.partition(" ")
                self._tables[table][number] = rest
            elif metadata := _METADATA.match(line):
                self._metadata[metadata[1]] = (metadata[2], metadata[3])

    def of(self, instruction: str) -> str:
        op_name, frame = self._metadata.get(instruction, ("", None))
        operation = op_name.rsplit("/", 1)[-1]
        if not operation:
            return instruction
        backward = "backward of " if "transpose(" in op_name else ""
        line = self._line(frame)
        return f"{backward}{operation}{f' ({line})' if line else ''}"

    def _line(self, frame: str | None) -> str:
        """The innermost line of this package on the stack, as 'models/attention.py:46 grouped'."""
        while frame and (entry := self._tables["StackFrames"].get(frame)):
            location = self._tables["FileLocations"].get(_field(entry, "file_location_id"), "")
            file = self._tables["FileNames"].get(_field(location, "file_name_id"), "").strip('"')
            if "/podwright/" in file:
                name = self._tables["FunctionNames"].get(_field(location, "function_name_id"), "")
                function = name.strip('"').split(".")[-1]
                return f"{file.rpartition('/podwright/')[2]}:{_field(location, 'line')} {function}"
            parent = _field(entry, "parent_frame_id")
            frame = parent if parent != frame else None
        return ""


def _field(entry: str, name: str) -> str:
    match = re.search(rf"\b{name}=(\d+)", entry)
    return match[1] if match else ""

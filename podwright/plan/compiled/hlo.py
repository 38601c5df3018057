"""Reads the scheduled, optimized HLO text that XLA's TPU compiler dumps, as far as the time of a step depends on it.

Sizes of arrays are what they take in memory, with the padding of their tiles. How often loops run is `loops.py`.
The text is the compiler's own and the one source: nothing here asks the model.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HBM, HOST = 0, 5
"""memory spaces; 1 and up are on the chip"""

_BITS = {"pred": 8, "token": 0, "opaque": 0}
_SHAPE = re.compile(r"(pred|token|opaque|[a-z]+\d+\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_OPERAND = re.compile(r"%([\w.\-]+(?:#\d+)?)")
_MESH_GROUPS = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\]T\(([\d,]+)\)\))? \{([^}]*)\}")
_COUNTED_GROUPS = re.compile(r"replica_groups=\[\d+,(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_LISTED_GROUPS = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_PAIRS = re.compile(r"source_target_pairs=\{\{(.*?)\}\}")


@dataclass(frozen=True, slots=True)
class Shape:
    dtype: str
    dims: tuple[int, ...]
    space: int
    bytes: int
    """in memory, tiles padded"""
    dense_bytes: int
    """the numbers alone: what goes over a link"""


@dataclass(slots=True)
class Instruction:
    name: str
    opcode: str
    shape_text: str
    operands: tuple[str, ...]
    """names, in the computation it stands in"""
    arguments: str
    """what stands between the parentheses: the value of a constant, the number of a parameter"""
    attributes: str
    is_root: bool

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of the result; several for a tuple, flattened."""
        return shapes_of(self.shape_text)

    def attribute(self, name: str) -> str | None:
        """A word or a number such as direction=LT."""
        match = re.search(rf"\b{name}=([\w.\-%]+)", self.attributes)
        return match[1].lstrip("%") if match else None

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of numbers such as dimensions={0,1}."""
        match = re.search(rf"\b{name}=\{{([\d,]*)\}}", self.attributes)
        if not match:
            return ()
        return tuple(int(n) for n in match[1].split(",") if n)

    @property
    def op_name(self) -> str:
        """Where in the traced function it comes from."""
        match = re.search(r'op_name="([^"]*)"', self.attributes)
        return match[1] if match else ""

    @property
    def calls(self) -> str | None:
        """The computation that a fusion or an asynchronous start carries out."""
        return self.attribute("calls") or (self.attribute("to_apply") if self.opcode == "call" else None)

    @property
    def group(self) -> tuple[int, ...] | None:
        """Devices that a collective joins, by their numbers in the program: one group of several; None when the text leaves it to "all"."""
        return _group(self.attributes)


@dataclass(slots=True)
class Computation:
    name: str
    instructions: list[Instruction]
    by_name: dict[str, Instruction]

    @property
    def root(self) -> Instruction:
        return next((i for i in reversed(self.instructions) if i.is_root), self.instructions[-1])

    def users(self, name: str) -> list[Instruction]:
        return [i for i in self.instructions if name in i.operands]

    def parameter(self, number: int) -> Instruction | None:
        for instruction in self.instructions:
            if instruction.opcode == "parameter" and instruction.arguments == str(number):
                return instruction
        return None


@dataclass(frozen=True)
class Module:
    num_partitions: int | None
    computations: dict[str, Computation]
    entry: Computation


def read(path: Path | str) -> Module:
    """The module in the file `path`, a `*.after_optimizations.txt`."""
    return parse(Path(path).read_text())


def parse(text: str) -> Module:
    partitions: int | None = None
    computations: dict[str, Computation] = {}
    entry: Computation | None = None
    current: Computation | None = None
    for line in _joined(text):
        if current is None:
            if line.startswith("HloModule"):
                match = re.search(r"num_partitions=(\d+)", line)
                partitions = int(match[1]) if match else None
            elif head := _COMPUTATION.match(line):
                current = computations[head[2]] = Computation(head[2], [], {})
                entry = current if head[1] else entry
        elif _ends(line):
            current = None
        elif head := _INSTRUCTION.match(line):
            instruction = _instruction(head[2], line[head.end() :], bool(head[1]))
            for each in (*_elements(instruction, current), instruction):
                current.instructions.append(each)
                current.by_name[each.name] = each
    if entry is None or current is not None:
        raise ValueError("no whole ENTRY computation: this is not the text of an HLO module, or not all of it")
    return Module(partitions, computations, entry)


def _ends(line: str) -> bool:
    """Closes a computation; a kernel's broken metadata goes on with two braces."""
    return line == "}" or line.startswith("}, execution_thread")


def _joined(text: str) -> list[str]:
    """Lines, with those put together again that a kernel's metadata breaks."""
    lines: list[str] = []
    in_computation = False
    for line in text.split("\n"):
        if not in_computation:
            in_computation = line.endswith("{") and _COMPUTATION.match(line) is not None
            lines.append(line)
        elif _ends(line):
            in_computation = False
            lines.append(line)
        elif _INSTRUCTION.match(line):
            lines.append(line)
        else:
            lines[-1] += line
    return lines


def _instruction(name: str, rest: str, is_root: bool) -> Instruction:
    """From `<shape> opcode(operands), attributes`."""
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    opens = rest.index("(", end)
    closes = _closing(rest, opens)
    arguments = rest[opens + 1 : closes]
    opcode = rest[end + 1 : opens]
    operands = () if opcode in ("constant", "parameter") else tuple(_OPERAND.findall(arguments))
    return Instruction(name, opcode, rest[:end], operands, arguments, rest[closes + 1 :], is_root)


def _elements(instruction: Instruction, computation: Computation) -> list[Instruction]:
    """Newer compilers write %x#1 for an element of a tuple: the get-tuple-element instructions that others write out."""
    short = dict.fromkeys(name for name in instruction.operands if "#" in name and name not in computation.by_name)
    elements = []
    for name in short:
        tuple_name, _, number = name.partition("#")
        shape = _split(computation.by_name[tuple_name].shape_text)[int(number)]
        elements.append(
            Instruction(name, "get-tuple-element", shape, (tuple_name,), f"%{tuple_name}", f", index={number}", False)
        )
    return elements


def _split(tuple_text: str) -> list[str]:
    """The shapes in the text of a tuple's."""
    parts, depth, begin = [], 0, 1
    for at, letter in enumerate(tuple_text):
        depth += (letter in "([{") - (letter in ")]}")
        if (letter == "," and depth == 1) or depth == 0:
            parts.append(re.sub(r"/\*.*?\*/", "", tuple_text[begin:at]).strip())
            begin = at + 1
    return parts


_BRACKET = re.compile(r"[()]")


def _closing(text: str, opens: int) -> int:
    depth = 0
    for bracket in _BRACKET.finditer(text, opens):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return bracket.start()
    raise ValueError(f"a bracket is not closed in {text[:80]!r}")


@functools.lru_cache(maxsize=65536)
def shapes_of(text: str) -> tuple[Shape, ...]:
    """The arrays in a shape such as `(f32[2,3]{1,0:T(8,128)}, s32[])`."""
    return tuple(_shape(*groups) for groups in _SHAPE.findall(text))


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    match = re.match(r"(?:bf|f|s|u|c)(\d+)", dtype)
    assert match, dtype
    return int(match[1])


def _shape(dtype: str, dims_text: str, layout: str) -> Shape:
    dims = tuple(int(d) for d in dims_text.split(",") if d)
    order, _, tiling = layout.partition(":")
    if order:
        minor_first = [dims[int(i)] for i in order.split(",") if i]
    else:
        minor_first = list(reversed(dims))
    tile = re.search(r"T\(([\d,]+)\)", tiling)
    if tile:
        for i, size in enumerate(reversed(tile[1].split(","))):
            if i < len(minor_first):
                minor_first[i] = -(-minor_first[i] // int(size)) * int(size)
    space = re.search(r"S\((\d+)\)", tiling)
    bits = _bits(dtype)
    return Shape(
        dtype, dims, int(space[1]) if space else HBM, math.prod(minor_first) * bits // 8, math.prod(dims) * bits // 8
    )


@functools.lru_cache(maxsize=4096)
def _group(attributes: str) -> tuple[int, ...] | None:
    if pairs := _PAIRS.search(attributes):
        return _connected([_numbers(pair) for pair in pairs[1].split("},{")])
    if mesh := _MESH_GROUPS.search(attributes):
        sizes = {}
        for axis in mesh[1].split(","):
            name, size = axis.split("=")
            sizes[name.strip(" '")] = int(size)
        axes = [axis.strip(" '") for axis in mesh[4].split(",")]
        strides = dict(zip(sizes, _strides(list(sizes.values())), strict=True))
        numbers: Sequence[int] = range(math.prod(sizes.values()))
        if mesh[2]:
            numbers = _laid_out(_numbers(mesh[2]), _numbers(mesh[3]))
        places = _places([sizes[axis] for axis in axes], [strides[axis] for axis in axes])
        return tuple(numbers[place] for place in places)
    if counted := _COUNTED_GROUPS.search(attributes):
        return tuple(_laid_out(_numbers(counted[2]), _numbers(counted[3] or ""))[: int(counted[1])])
    listed = _LISTED_GROUPS.search(attributes)
    return _numbers(listed[1]) if listed else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",") if n)


def _strides(dims: Sequence[int]) -> list[int]:
    return [math.prod(dims[d + 1 :]) for d in range(len(dims))]


def _places(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    return [
        sum(n * stride for n, stride in zip(at, strides, strict=True)) for at in itertools.product(*map(range, sizes))
    ]


def _laid_out(dims: Sequence[int], order: Sequence[int]) -> list[int]:
    """Numbers from 0 on, laid out in `dims` and read with these in another order."""
    strides = _strides(dims)
    order = order or range(len(dims))
    return _places([dims[d] for d in order], [strides[d] for d in order])


def _connected(pairs: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The most devices that hand data to each other, over however many others."""
    joined: dict[int, set[int]] = {}
    for pair in pairs:
        together = set(pair).union(*(joined.get(device, ()) for device in pair))
        joined |= dict.fromkeys(together, together)
    most: set[int] = max(joined.values(), key=len)
    return tuple(sorted(most))

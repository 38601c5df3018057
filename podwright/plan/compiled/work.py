"""What one HLO instruction computes and moves, per device: floating-point operations, bytes of HBM, bytes for links and for the host.

Operations are those of products (dots and convolutions, padding left out) and of the Pallas kernels whose shapes tell; a pass over
an array costs its bytes alone. Bytes count what is touched: a slice of an array, not the array; an update in place, not the whole.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

from podwright.plan.compiled.hlo import HBM, HOST, Computation, Instruction, Module, Shape

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
FREE = (
    "parameter",
    "constant",
    "get-tuple-element",
    "tuple",
    "bitcast",
    "partition-id",
    "replica-id",
    "after-all",
    "optimization-barrier",
    "add-dependency",
)
"""instructions that move nothing"""
ROWS_OF_A_TILE = 512  # kernels/grouped.py has the same; a test holds them together
_SLICES = ("slice", "dynamic-slice", "gather")
_NO_WORK = (
    "AllocateBuffer",
    "ConcatBitcast",
    "AssumeGatherIndicesInBound",
    "AsyncCollectiveStart",
    "AsyncCollectiveDone",
    "Sharding",
)


@dataclass(frozen=True)
class Collective:
    kind: str
    group: tuple[int, ...]
    """the devices of one group, by their numbers in the program"""
    whole_bytes: int
    """what a device has of the array once it is whole; of a permute, what it hands on"""

    @property
    def size(self) -> int:
        return len(self.group)

    @property
    def sent_bytes(self) -> float:
        """Bytes each device sends, of any algorithm that wastes none."""
        if self.kind in ("collective-permute", "collective-broadcast"):
            return self.whole_bytes
        share = self.whole_bytes * (self.size - 1) / self.size
        return 2 * share if self.kind == "all-reduce" else share


def base(opcode: str) -> str:
    return opcode.removesuffix("-start").removesuffix("-done").removesuffix("-update")


def called(module: Module, instruction: Instruction) -> Computation | None:
    name = instruction.calls
    return module.computations.get(name) if name else None


def target(instruction: Instruction) -> str:
    match = re.search(r'custom_call_target="([^"]*)"', instruction.attributes)
    return match[1] if match else ""


def moves_nothing(instruction: Instruction) -> bool:
    return instruction.opcode in FREE or (instruction.opcode == "custom-call" and target(instruction) in _NO_WORK)


class Work:
    """The work of a module's instructions; remembers what it has counted."""

    def __init__(self, module: Module):
        self.module = module
        self._of_computation: dict[str, tuple[float, float]] = {}

    def flops(self, computation: Computation, at: Instruction) -> tuple[float, float]:
        """Operations of products, those of groups of rows among them, and of attention kernels."""
        if at.opcode == "dot":
            return _dot(computation, at), 0.0
        if at.opcode == "convolution":
            return _convolution(computation, at), 0.0
        if at.opcode == "custom-call":
            count = kernel_flops(computation, at) or 0.0
            return (count, 0.0) if is_grouped(at) else (0.0, count)
        body = called(self.module, at)
        if body is None:
            return 0.0, 0.0
        if body.name not in self._of_computation:
            parts = [self.flops(body, inner) for inner in body.instructions]
            self._of_computation[body.name] = (sum(p[0] for p in parts), sum(p[1] for p in parts))
        return self._of_computation[body.name]

    def hbm_bytes(self, computation: Computation, at: Instruction) -> int:
        """Bytes read from and written to HBM by an instruction that is no asynchronous one."""
        if moves_nothing(at):
            return 0
        body = called(self.module, at)
        read = 0
        for number, name in enumerate(at.operands):
            shapes = computation.by_name[name].shapes if name in computation.by_name else ()
            if len(shapes) != 1 or shapes[0].space != HBM or name in at.operands[:number]:
                continue
            if body is not None:
                read += _read_inside(self.module, body, number, shapes[0])
            elif at.opcode in _SLICES:
                read += sum(s.bytes for s in at.shapes) if number == 0 else shapes[0].bytes
            elif not (at.opcode == "dynamic-update-slice" and number == 0):
                read += shapes[0].bytes
        return read + _written(computation, at, body)

    def collectives(self, computation: Computation, at: Instruction) -> list[tuple[Collective, Instruction]]:
        """Those that the instruction starts or carries out; a link of a chain that another instruction started does not count."""
        if base(at.opcode) in COLLECTIVES:
            return (
                []
                if at.opcode.endswith(("-done", "-update"))
                else [(self._collective(computation, at, base(at.opcode)), at)]
            )
        if at.opcode.endswith(("-done", "-update")) or self.is_later_link(at):
            return []
        pairs = []
        for body, inner in self._nested(at):
            kind = base(inner.opcode)
            if kind == "all-reduce" and any(i.opcode == "dynamic-slice" for i in body.instructions):
                kind = "reduce-scatter"
            elif kind == "all-reduce" and at.opcode == "async-start" and self._placed(computation, at):
                kind = "all-gather"
            pairs.append((self._collective(body, inner, kind), inner))
        return pairs

    def _nested(self, at: Instruction) -> list[tuple[Computation, Instruction]]:
        """Collectives in what it calls; those handed to another core lie one call deeper."""
        body = called(self.module, at)
        if body is None:
            return []
        nested = [
            (body, i) for i in body.instructions if base(i.opcode) in COLLECTIVES and not i.opcode.endswith("-done")
        ]
        return nested + [deeper for i in body.instructions if i.opcode == "call" for deeper in self._nested(i)]

    def _placed(self, computation: Computation, at: Instruction) -> bool:
        """Whether the first array is a device's own part put into the room for the whole: all there is to reduce is to gather."""
        given = at.operands
        if not given:
            users = [i for i in computation.instructions if at.name in i.operands[:1]]
            given = users[0].operands[1:] if users else ()
        producer = computation.by_name[given[0]]
        while producer.opcode in ("copy-start", "copy-done"):
            producer = computation.by_name[producer.operands[0]]
        body = called(self.module, producer)
        return (body.root if body else producer).opcode == "dynamic-update-slice"

    def is_later_link(self, at: Instruction) -> bool:
        """Whether it goes on with a collective that an AsyncCollectiveStart began."""
        body = called(self.module, at)
        if body is None or not any("async_collective_fusion_config" in i.attributes for i in body.instructions):
            return False
        return not any(target(i) == "AsyncCollectiveStart" for i in body.instructions)

    def _collective(self, computation: Computation, at: Instruction, kind: str) -> Collective:
        group = at.group or tuple(range(self.module.num_partitions or 1))
        given = sum(
            computation.by_name[name].shapes[0].dense_bytes for name in at.operands if computation.by_name[name].shapes
        )
        return Collective(kind, group, given * len(group) if base(at.opcode) == "all-gather" else given)


def moved(module: Module, at: Instruction) -> tuple[int, int]:
    """Bytes that an asynchronous copy moves in HBM and over the link to the host."""
    body = called(module, at)
    if body is None:
        if len(at.shapes) < 2:
            return 0, 0
        ends = at.shapes[:2]  # destination and source
        size = ends[0].bytes
    else:
        root, first = body.root, body.parameter(0)
        result = root.shapes[0]
        if root.opcode == "dynamic-update-slice":
            source = body.by_name[root.operands[1]].shapes[0]
        else:
            source = first.shapes[0] if first and first.shapes else result
        ends = (result, source)
        size = min(result.bytes, source.bytes)
    in_hbm = sum(size for end in ends if end.space == HBM)
    return in_hbm, size if any(end.space == HOST for end in ends) else 0


def kernel_flops(computation: Computation, at: Instruction) -> float | None:
    """Of a Pallas kernel that is known by its name; None for any other custom call."""
    if target(at) != "tpu_custom_call":
        return None
    given = []
    for name in at.operands:
        shapes = computation.by_name[name].shapes
        if shapes and shapes[0].dtype.startswith(("bf", "f")):
            given.append(shapes[0])
    if is_grouped(at) and given:
        matrices = [shape for shape in given if len(shape.dims) >= 2]
        if not matrices:
            return None
        out = at.shapes[0]
        return 2.0 * math.prod(matrices[0].dims) * out.dims[-1] * _shared_tiles([*matrices, out])
    if not re.search(r"splash|flash", at.name):
        return None
    arrays = [s for s in given if len(s.dims) >= 3]
    if len(arrays) < 2:
        return None
    q, k = arrays[0].dims, arrays[1].dims
    scores = math.prod(q[:-1]) * k[-2] * _visited(at, q[-2], k[-2])
    return 2.0 * scores * q[-1] * _products(at)


def is_grouped(at: Instruction) -> bool:
    """A kernel that multiplies groups of rows, each with a matrix of its own; newer jax names it after where it is called."""
    named = re.search(r"gmm|ragged_dot", at.name) or any("group_metadata" in name for name in at.operands)
    return target(at) == "tpu_custom_call" and bool(named)


def _shared_tiles(shapes: list[Shape]) -> float:
    """How much more is multiplied because a tile of rows that two groups share is worked off for each of them."""
    groups = next((s.dims[0] for s in shapes if len(s.dims) == 3), 1)
    flat = [set(s.dims) for s in shapes if len(s.dims) == 2]
    if not flat:
        return 1.0
    rows = max(set.intersection(*flat), default=math.inf)
    return 1 + ROWS_OF_A_TILE * (groups - 1) / rows


def _products(at: Instruction) -> int:
    """Products of the size of the scores: 2 forward; 5 backward, or 4 for keys and values and 3 for queries apart."""
    if re.search(r"dkv|bwd|backward", at.name):
        num_tensors = sum(len(s.dims) >= 3 and s.dtype == "bf16" for s in at.shapes)
        return 5 if num_tensors >= 3 else 4
    return 3 if re.search(r"_dq", at.name) else 2


def _visited(at: Instruction, num_queries: int, num_keys: int) -> float:
    """The share of blocks that a causal mask leaves, the last query seeing the last key; one block is computed whole."""
    if num_queries > num_keys:
        return 1.0
    of_queries, of_keys = _block(at, "q"), _block(at, "kv")
    rows, columns = -(-num_queries // of_queries), -(-num_keys // of_keys)
    last_seen = ((row + 1) * of_queries - 1 + num_keys - num_queries for row in range(rows))
    return sum(min(last // of_keys + 1, columns) for last in last_seen) / (rows * columns)


def _block(at: Instruction, name: str) -> int:
    """Rows of a block of the attention kernel; 1 where the call does not say it."""
    match = re.search(rf'block_{name}(?:_dkv|_dq)?\\?": ?(\d+)', at.attributes)
    return int(match[1]) if match else 1


def _dot(computation: Computation, at: Instruction) -> float:
    left = computation.by_name[at.operands[0]].shapes[0].dims
    return 2.0 * math.prod(at.shapes[0].dims) * math.prod(left[d] for d in at.numbers("lhs_contracting_dims"))


def _convolution(computation: Computation, at: Instruction) -> float:
    """What products become on a TPU, contracted and batch dimensions as windows; positions in the padding are not counted."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", at.attributes)
    assert labels, at.name
    left, right = (computation.by_name[name].shapes[0].dims for name in at.operands[:2])
    out = at.shapes[0].dims
    window = re.search(r"window=\{([^}]*)\}", at.attributes)
    num_dims = sum(c.isdigit() for c in labels[1])

    def field(name: str, default: str) -> list[str]:
        match = re.search(rf"\b{name}=(\S+)", window[1]) if window else None
        return match[1].split("x") if match else [default] * num_dims

    valid = 1
    sizes, strides, pads = field("size", "1"), field("stride", "1"), field("pad", "0_0")
    dilations, spreads = field("lhs_dilate", "1"), field("rhs_dilate", "1")
    for d in range(num_dims):
        given, num_out = left[labels[1].index(str(d))], out[labels[3].index(str(d))]
        pad = pads[d].split("_")[0]
        numbers = (int(sizes[d]), int(strides[d]), int(pad), int(dilations[d]), int(spreads[d]))
        valid *= _positions(given, num_out, *numbers)
    batch, features = out[labels[3].index("b")], out[labels[3].index("f")]
    return 2.0 * valid * batch * features * right[labels[2].index("i")]


@functools.lru_cache(maxsize=4096)
def _positions(given: int, num_out: int, size: int, stride: int, pad: int, dilation: int, spread: int) -> int:
    """Pairs of output position and window position that meet a number of the input."""
    extent = (given - 1) * dilation + 1
    count = 0
    for tap in range(size):
        offset = tap * spread - pad
        if dilation == 1:
            first = max(-(offset // stride), 0)
            last = min((extent - 1 - offset) // stride, num_out - 1)
            count += max(last - first + 1, 0)
        else:
            count += sum(
                1 for q in range(num_out) if 0 <= q * stride + offset < extent and (q * stride + offset) % dilation == 0
            )
    return count


def _same_numbers(at: Instruction) -> bool:
    """Whether it hands on its first operand as it is, at most laid out anew; inside a fusion only what is used of it is made."""
    return at.opcode in ("bitcast", "copy", "convert") or "output_to_operand_aliasing={{}: (0, {})}" in at.attributes


def _aliases(body: Computation, name: str) -> list[tuple[Instruction, str]]:
    """Users of `name` with the name they know it by, seen through what hands it on."""
    aliases = []
    for user in body.users(name):
        aliases += _aliases(body, user.name) if _same_numbers(user) and not user.is_root else [(user, name)]
    return aliases


def _read_inside(module: Module, body: Computation, number: int, shape: Shape) -> int:
    """What a fusion reads of its operand `number`."""
    parameter = body.parameter(number)
    if parameter is None:
        return shape.bytes
    read = 0
    for user, name in _aliases(body, parameter.name):
        nested = called(module, user) if user.opcode == "fusion" else None
        if user.opcode in _SLICES and user.operands[0] == name:
            read += user.shapes[0].bytes
        elif nested is not None:
            read += sum(
                _read_inside(module, nested, n, shape) for n, given in enumerate(user.operands) if given == name
            )
        elif not (user.opcode == "dynamic-update-slice" and user.operands[0] == name):
            return shape.bytes
    return min(read, shape.bytes)


def _written(computation: Computation, at: Instruction, body: Computation | None) -> int:
    outputs = [s for s in at.shapes if s.space == HBM]
    if at.opcode == "dynamic-update-slice":
        return computation.by_name[at.operands[1]].shapes[0].bytes if outputs else 0
    written = sum(s.bytes for s in outputs)
    if body is None:
        return written
    for inner in body.instructions:
        if inner.opcode == "dynamic-update-slice" and any(s.bytes == inner.shapes[0].bytes for s in outputs):
            written += body.by_name[inner.operands[1]].shapes[0].bytes - inner.shapes[0].bytes
    return max(written, 0)

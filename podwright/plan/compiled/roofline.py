"""Predicts the seconds of a compiled program: its schedule is walked with what each instruction computes and moves (work.py).

An instruction takes as long as its slowest resource. Asynchronous copies and collectives run beside it, each resource a queue of its
own, and cost what is not yet done when their end is awaited. Efficiencies are a table per generation, calibrated as it says. Left
out: the cost of starting an instruction, vector arithmetic, sorting; programs of many small steps take longer than predicted here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from podwright.accelerators import Accelerator
from podwright.errors import UserError
from podwright.plan.compiled import loops
from podwright.plan.compiled.hlo import Computation, Instruction, Module
from podwright.plan.compiled.links import Links
from podwright.plan.compiled.work import (
    COLLECTIVES,
    Collective,
    Work,
    base,
    called,
    is_grouped,
    kernel_flops,
    moved,
    moves_nothing,
    target,
)

RESOURCES = ("compute", "hbm", "ici", "dcn", "host")
PARTS = ("embedding", "attention", "kda", "mla", "mlp", "experts", "head", "optimizer")
"""the named scopes of the models and trainers (jax.named_scope)"""
PHASES = ("forward", "recompute", "backward")
"""'recompute': what the backward pass computes a second time instead of having kept it"""
_SCOPE = re.compile(rf"(?<![^/(])({'|'.join(PARTS)})(?![^/)])")


@dataclass(frozen=True)
class Efficiency:
    """Shares of the peak figures that programs reach."""

    matmul: float
    kernel: float
    """attention kernels: heads of 128 fill half the width of a matrix unit of 256. Products of groups of rows count as any product."""
    hbm: float
    ici: float
    dcn: float
    host_bandwidth: float
    """bytes/s between a device and its host's memory"""
    compared: bool = False
    """whether published runs of the generation were compared"""


def _shares(unit: int, compared: bool) -> Efficiency:
    """`unit`: width of the generation's matrix unit. What is not calibrated is what TPUs usually reach."""
    return Efficiency(0.72, 0.72 * min(128 / unit, 1.0), 0.8, 0.8, 0.8, 100e9, compared)


# 0.72 is one number fitted to three published runs of Llama-3.1-8B: v6e-8, v6e-16, v6e-256 (docs/evidence.md). The others have it from v6e;
# two published runs of Llama-3.1-70B on tpu7x agree.
EFFICIENCIES = {
    "v5e": _shares(128, compared=False),
    "v5p": _shares(128, compared=False),
    "v6e": _shares(256, compared=True),
    "tpu7x": _shares(256, compared=True),
}


@dataclass
class Cost:
    """Per device, one run of the program."""

    flops: float = 0.0
    hbm_bytes: float = 0.0
    host_bytes: float = 0.0
    dcn_bytes: float = 0.0
    starts: float = 0.0
    """instructions that compute or move something, those of a loop as often as it turns"""
    collectives: list[tuple[str, tuple[int, ...], float, int]] = field(default_factory=list)
    """kind, the devices of one group, bytes each device sends, how often"""
    seconds: dict[str, float] = field(default_factory=dict)
    """how long each resource is busy"""
    parts: dict[tuple[str, str], float] = field(default_factory=dict)
    """the predicted time, divided among the parts of the model (PARTS, or 'other') and the phases (PHASES)"""
    limits: dict[str, float] = field(default_factory=dict)
    """the predicted time, divided among what it was spent waiting for"""
    predicted_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def bound(self) -> str:
        return max(self.limits, key=lambda resource: self.limits[resource])


def cost(
    module: Module,
    row: Accelerator,
    topology: tuple[int, ...],
    efficiency: Efficiency | None = None,
) -> Cost:
    """What one run of `module` costs on devices of `row`. `topology`: chips along each axis; `efficiency`: instead of the table's."""
    notes = []
    if efficiency is None:
        if row.name not in EFFICIENCIES:
            fix = f"step times are predicted for {', '.join(EFFICIENCIES)}"
            raise UserError(f"there are no efficiencies for {row.name}", fix, "no-estimate")
        efficiency = EFFICIENCIES[row.name]
        if not efficiency.compared:
            what = f"{row.name} is taken to reach the shares of its peaks that fit v6e; no published run was compared"
            notes.append(what)
    walk = _Walk(module, row, topology, efficiency)
    walk.cost.notes += notes
    walk.computation(module.entry, 1.0)
    return walk.result()


@dataclass
class _Queue:
    """Work of one resource that runs beside the schedule, in seconds of it; what was put in first is done first."""

    given: float = 0.0
    done: float = 0.0

    def put(self, seconds: float) -> float:
        """A mark to wait for."""
        self.given += seconds
        return self.given

    def run(self, seconds: float) -> None:
        self.done = min(self.given, self.done + max(seconds, 0.0))

    def left(self, mark: float) -> float:
        return max(mark - self.done, 0.0)


class _Walk:
    def __init__(self, module: Module, row: Accelerator, topology: tuple[int, ...], efficiency: Efficiency):
        self.module, self.row = module, row
        self.work = Work(module)
        self.efficiency = efficiency
        self.links = Links(row, topology, self.efficiency.ici)
        self.cost = Cost(seconds=dict.fromkeys(RESOURCES, 0.0), limits=dict.fromkeys(RESOURCES, 0.0))
        self.counted: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = {}
        self.queues: dict[str, _Queue] = {}
        self.pending: dict[str, tuple[str, float]] = {}
        self.times = 1.0
        self.part = ("other", "forward")

    def result(self) -> Cost:
        self.cost.predicted_s = sum(self.cost.limits.values())
        self.cost.collectives = [
            (kind, group, sent, round(n)) for (kind, group), (sent, n) in sorted(self.counted.items())
        ]
        self.cost.notes = list(dict.fromkeys(self.cost.notes))
        return self.cost

    def computation(self, computation: Computation, times: float) -> None:
        outer, self.times = self.times, times
        for instruction in computation.instructions:
            if not moves_nothing(instruction):
                self.instruction(computation, instruction)
        self.times = outer

    def instruction(self, computation: Computation, at: Instruction) -> None:
        kind = base(at.opcode)
        outer = self.part
        self.part = part_of(at.op_name) or outer
        if at.opcode == "while":
            self.loop(computation, at)
        elif at.opcode == "conditional":
            self.branches(at)
        elif at.opcode == "call":
            if body := called(self.module, at):
                self.computation(body, self.times)
        elif at.opcode.endswith("-done"):
            self.wait(at.operands[0])
        elif kind in ("send", "recv"):
            self.send(computation, at)
        elif at.opcode.endswith("-update"):
            self.pending[at.name] = self.pending.get(at.operands[0], ("hbm", 0.0))
        elif at.opcode.endswith("-start"):
            self.start(computation, at)
        elif kind in COLLECTIVES:
            self.synchronous(computation, at)
        elif at.opcode == "fusion" and self.chain(computation, at):
            pass
        else:
            self.compute(computation, at)
        self.part = outer

    def loop(self, computation: Computation, at: Instruction) -> None:
        trips = loops.trips(self.module, at, computation)
        count = trips.count
        if count is None:
            what = f"how often the loop {at.op_name or at.name} turns depends on its data"
            raise UserError(what, "no time can be predicted", "no-estimate")
        if not trips.exact:
            note = f"the loop {at.op_name or at.name} may end early; counted with the most it can turn, {count}"
            self.cost.notes.append(note)
        before = self._clock()
        outer = self.queues
        self.queues = {}
        for part in ("body", "condition"):
            self.computation(self.module.computations[at.attribute(part) or ""], self.times * count)
        self.queues = outer
        self._drain(*(now - then for now, then in zip(self._clock(), before, strict=True)))

    def _clock(self) -> tuple[float, ...]:
        return sum(self.cost.limits.values()), *(self.cost.seconds[resource] for resource in RESOURCES)

    def _drain(self, passed: float, *busy: float) -> None:
        """What was begun before a loop goes on beside it."""
        for name, queue in self.queues.items():
            queue.run((passed - busy[RESOURCES.index(name.split()[0])]) / self.times if self.times else 0.0)

    def branches(self, at: Instruction) -> None:
        """The dearest branch."""
        named = at.attribute("true_computation"), at.attribute("false_computation")
        names = [n for n in named if n] or _listed(at.attributes)
        flops = {}
        for name in names:
            computation = self.module.computations[name]
            flops[name] = sum(sum(self.work.flops(computation, i)) for i in computation.instructions)
        if flops:
            self.computation(self.module.computations[max(flops, key=lambda n: flops[n])], self.times)

    def send(self, computation: Computation, at: Instruction) -> None:
        """Transfers between slices go through the host's network; what one slice sends another receives, so sends alone count."""
        if at.opcode == "send" and "is_host_transfer=true" in at.attributes:
            size = computation.by_name[at.operands[0]].shapes[0].dense_bytes
            bandwidth = self.row.dcn_bandwidth / self.row.devices_per_chip
            self.cost.dcn_bytes += size * self.times
            self.put("dcn", size / bandwidth / self.efficiency.dcn, at.name)

    def start(self, computation: Computation, at: Instruction) -> None:
        begun = self.work.collectives(computation, at)
        for collective, of in begun:
            self.put(*self.over_links(collective, of), at.name)
        if begun:
            return
        hbm, host = moved(self.module, at)
        self.cost.hbm_bytes += hbm * self.times
        if host:
            self.cost.host_bytes += host * self.times
            self.put("host", host / self.efficiency.host_bandwidth, at.name)
        else:
            self.put("hbm", self.hbm_seconds(hbm), at.name)

    def chain(self, computation: Computation, at: Instruction) -> bool:
        """The two ends of a collective that is spread over fusions; what lies between is computed as any fusion is."""
        body = called(self.module, at)
        targets = set()
        channels = []
        for instruction in body.instructions if body else ():
            targets.add(target(instruction))
            if channel := instruction.attribute("channel_id"):
                channels.append(channel)
        if "AsyncCollectiveStart" in targets and channels:
            for collective, of in self.work.collectives(computation, at):
                self.put(*self.over_links(collective, of), f"chain {channels[0]}")
            return True
        if "AsyncCollectiveDone" in targets and channels:
            self.wait(f"chain {channels[0]}")
            return True
        return False

    def synchronous(self, computation: Computation, at: Instruction) -> None:
        for collective, of in self.work.collectives(computation, at):
            queue, seconds = self.over_links(collective, of)
            self.put(queue, seconds, at.name)
            self.wait(at.name)

    def compute(self, computation: Computation, at: Instruction) -> None:
        products, kernels = self.work.flops(computation, at)
        size = self.work.hbm_bytes(computation, at)
        if at.opcode == "custom-call" and target(at) == "tpu_custom_call" and kernel_flops(computation, at) is None:
            self.cost.notes.append(f"the kernel {at.name.split('.')[0]} is counted by its bytes alone")
        if is_grouped(at):
            self.cost.notes.append(
                "products of experts are taken to reach the share of the peak that others do; no published run was compared"
            )
        if at.opcode == "sort":
            self.cost.notes.append(f"sorting {math.prod(at.shapes[0].dims)} numbers is counted by its bytes alone")
        self.cost.starts += self.times
        self.cost.flops += (products + kernels) * self.times
        self.cost.hbm_bytes += size * self.times
        peak = self.row.bf16_flops or self.row.fp16_flops
        busy = {
            "compute": products / peak / self.efficiency.matmul + kernels / peak / self.efficiency.kernel,
            "hbm": self.hbm_seconds(size),
        }
        for collective, of in self.work.collectives(computation, at):
            _, seconds = self.over_links(collective, of)
            busy["ici"] = busy.get("ici", 0.0) + seconds
        slowest = max(busy, key=lambda resource: busy[resource])
        for resource, seconds in busy.items():
            self.cost.seconds[resource] += seconds * self.times
        self.pass_time(busy[slowest], slowest, busy)

    def over_links(self, collective: Collective, of: Instruction) -> tuple[str, float]:
        """Its queue and its seconds."""
        kind = (collective.kind, collective.group)
        sent, count = self.counted.get(kind, (0.0, 0.0))
        self.counted[kind] = (sent + collective.sent_bytes * self.times, count + self.times)
        if collective.kind == "collective-permute":
            return ("ici backwards" if _backwards(of) else "ici"), self.links.permute(collective)
        return "ici", self.links.seconds(collective)

    def hbm_seconds(self, size: float) -> float:
        return size / self.row.hbm_bandwidth / self.efficiency.hbm

    def put(self, queue: str, seconds: float, name: str) -> None:
        self.cost.seconds[queue.split()[0]] += seconds * self.times
        self.pending[name] = (queue, self.queues.setdefault(queue, _Queue()).put(seconds))

    def wait(self, name: str) -> None:
        if name in self.pending:
            name_of_queue, mark = self.pending[name]
            queue = self.queues.get(name_of_queue)
            if queue:
                seconds = queue.left(mark)
                if seconds:
                    self.pass_time(seconds, name_of_queue.split()[0], {})

    def pass_time(self, seconds: float, spent_on: str, busy: Mapping[str, float]) -> None:
        """The clock goes on; queues work with what the instruction leaves of their resource."""
        self.cost.limits[spent_on] += seconds * self.times
        self.cost.parts[self.part] = self.cost.parts.get(self.part, 0.0) + seconds * self.times
        for name, queue in self.queues.items():
            queue.run(seconds - busy.get(name.split()[0], 0.0))


def part_of(op_name: str) -> tuple[str, str] | None:
    """The part and the phase that an operation belongs to by its name, such as 'jit(step)/transpose(jvp(kda))/mul'; None for no part."""
    scopes = _SCOPE.findall(op_name)
    if not scopes:
        return None
    phase = "backward" if "transpose(" in op_name else "forward"
    if "rematted_computation" in op_name:
        phase = "recompute"
    return scopes[-1], phase


def _backwards(at: Instruction) -> bool:
    """Whether a permute hands data towards lower numbers, over the other half of the links."""
    pairs = at.attributes.partition("source_target_pairs={{")[2].partition("}}")[0].split("},{")
    steps = [int(b) - int(a) for a, b in (pair.split(",") for pair in pairs if "," in pair)]
    return sum(step < 0 for step in steps) > len(steps) / 2


def _listed(attributes: str) -> list[str]:
    inner = attributes.partition("branch_computations={")[2].partition("}")[0]
    return [name.strip(" %") for name in inner.split(",") if name.strip()]

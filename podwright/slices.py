"""What `--on` can name besides this machine: `v6e-16`, `tpu7x-4x4x8`, `2x v6e-16`, `8xH100-80GB`, `cpu-8`.

Decides whether a name stands for something that is sold, what each tool calls it, and which mesh axes may cross from slice to slice.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from podwright.accelerators import CPU, GIB, TPUS, Accelerator, Pod, Topology, gpus_like, nearest_gpus
from podwright.accelerators import gpu as gpu_named
from podwright.errors import UserError, nearest

EXAMPLES = "v6e-16, v5p-16, tpu7x-4x4x8, 2xv6e-16 or 8xH100-80GB"
MOST_DEVICES = 1 << 14  # that a search looks at
_HOST_BOUNDS: dict[int, Topology] = {1: (1, 1, 1), 4: (2, 2, 1), 8: (2, 4, 1)}


class UnknownSlice(UserError):
    """No part of a name is that of an accelerator."""

    guess = ""
    """the slice of TPUs, or the CPU devices, whose name is close"""


@dataclasses.dataclass(frozen=True)
class Slice:
    """Devices to run on: TPU slices of one shape, GPUs, or CPU devices of this machine."""

    accelerator: Accelerator
    chips: Topology
    """of one slice; GPUs and CPU devices stand in a row along x"""
    num_slices: int = 1
    gpus_per_host: int = 0
    """of machines with fewer or more GPUs than a full node of theirs has, or of which a job takes a part; 0: of full nodes"""

    @property
    def name(self) -> str:
        if self.accelerator.node:
            machines = self.num_chips // (self.gpus_per_host or self.num_chips)
            count = f"{machines}x{self.gpus_per_host}" if machines > 1 else self.num_chips
            return f"{count}x{self.accelerator.name}"
        own = self.topology if len(self.dims) == 3 else str(math.prod(self.chips))
        return f"{self._times}{self.accelerator.name}-{own}"

    @property
    def typed(self) -> str:
        """`name` without blanks, so that a shell takes it for one word."""
        return self.name.replace(" ", "")

    @property
    def _times(self) -> str:
        return f"{self.num_slices}x " if self.num_slices > 1 else ""

    @property
    def dims(self) -> tuple[int, ...]:
        """`chips` with as many dims as the interconnect has."""
        pod = self.accelerator.pod
        if not pod:
            return self.chips[:1]
        return self.chips if pod.max_cubes else self.chips[:2]

    @property
    def topology(self) -> str:
        """Of one slice, as GKE writes it: 4x4, 2x2x1."""
        return "x".join(map(str, self.dims))

    @property
    def physical_mesh(self) -> tuple[int, ...]:
        """The devices of one slice as jax sees them: x, y, z and, where a chip has several devices, these."""
        each = self.accelerator.devices_per_chip
        return (*self.chips, each) if each > 1 else self.chips

    @property
    def num_chips(self) -> int:
        return self.num_slices * math.prod(self.chips)

    @property
    def num_devices(self) -> int:
        return self.num_chips * self.accelerator.devices_per_chip

    @property
    def chips_per_host(self) -> int:
        """Of the fewest machines. A v5e-8 or v6e-8 is one machine of 8 chips here; GKE also sells it as two of 4."""
        chips = math.prod(self.chips)
        if self.accelerator.node:
            return self.gpus_per_host or min(chips, self.accelerator.node.size)
        pod = self.accelerator.pod
        return chips if pod is None or chips in pod.machine_types else 4

    @property
    def num_hosts(self) -> int:
        return self.num_chips // self.chips_per_host

    @property
    def num_granules(self) -> int:
        """Groups of devices between which only the data-center network runs: slices, or machines with GPUs."""
        return self.num_hosts if self.accelerator.node else self.num_slices

    @property
    def devices_per_granule(self) -> int:
        return self.num_devices // self.num_granules

    @property
    def wrap(self) -> tuple[bool, bool, bool]:
        """Along which of x, y, z the torus is closed."""
        pod = self.accelerator.pod
        if pod is None:
            return (False, False, False)
        x, y, z = (n >= pod.wraps_from for n in self.chips)
        if not pod.max_cubes:
            return (x, y, False)
        return (x and y and z,) * 3

    @property
    def libtpu(self) -> tuple[str, dict[str, Any]] | None:
        """Topology name and options for jax.experimental.topologies.get_topology_desc; None for what is no TPU, and TPUs without a name there."""
        if self.accelerator.pod is None or not self.accelerator.pod.gke_accelerator:
            return None
        options: dict[str, Any] = {
            "chips_per_host_bounds": _HOST_BOUNDS[self.chips_per_host],
            "num_slices": self.num_slices,
        }
        if any(self.wrap):
            options["wrap"] = self.wrap
        return f"{self.accelerator.name}:{self.topology}", options

    @property
    def counted(self) -> str:
        """One slice by what the names of its generation count, such as tpu7x-256 (devices) and v6e-16 (chips); of TPUs."""
        assert self.accelerator.pod
        return f"{self.accelerator.pod.prefix}-{math.prod(self.chips) * _per_chip(self.accelerator)}"

    def names(self) -> dict[str, str | None]:
        """What other tools call one slice of it; None where they have no name for it."""
        pod, node = self.accelerator.pod, self.accelerator.node
        if node:
            machine = node.machine_types.get(self.chips_per_host)
            return {"gke_accelerator": node.gke_accelerator or None, "machine_type": machine}
        if pod is None:
            return {}
        counted = self.counted
        by_number = self.chips == _of_size(pod, math.prod(self.chips))
        return {
            "libtpu": self.libtpu and self.libtpu[0],
            "xpk": None if not pod.gke_accelerator else f"{pod.prefix}-{self.topology}" if pod.max_cubes else counted,
            "gcloud_accelerator_type": counted if pod.in_tpu_api and by_number else None,
            "runtime": pod.runtime or None,
            "gke_accelerator": pod.gke_accelerator or None,
            "gke_topology": self.topology,
            "machine_type": pod.machine_types.get(self.chips_per_host),
        }

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "accelerator": self.accelerator.name,
            "devices": self.num_devices,
            "chips": self.num_chips,
            "hosts": self.num_hosts,
            "slices": self.num_slices,
            "hbm_gib": round(self.accelerator.hbm_bytes / GIB, 2) or None,
            **self.names(),
        }


def of_hosts(num_hosts: int, per_host: int, name: str) -> Slice:
    """So many hosts with so many GPUs of a name each. UserError for a name or a number that no host has."""
    each = parse(f"{per_host}x{name}")
    devices = dataclasses.replace(each, chips=(num_hosts * per_host, 1, 1))
    return devices if devices.chips_per_host == per_host else dataclasses.replace(devices, gpus_per_host=per_host)


def outer_shape(shape: Sequence[int], num_granules: int) -> tuple[int, ...] | None:
    """How much of each axis of a mesh lies across slices: the first axis as far as it goes, then the second, never another.

    The first two are `data` and `fsdp`; what they cross is a network much slower than the one inside. None if they cannot cover it.
    """
    first = math.gcd(shape[0], num_granules)
    second = num_granules // first
    if shape[1] % second:
        return None
    return (first, second, *(1 for _ in shape[2:]))


def parse(text: str) -> Slice:
    parsed = _find(text)
    if parsed is None:
        raise _unknown(text)
    return parsed


def one_of_tpus(text: str, key: str) -> Slice:
    """As `of_tpus`; UserError for several slices too."""
    devices = of_tpus(text, key)
    if devices.num_slices > 1:
        single = dataclasses.replace(devices, num_slices=1)
        what = f"{key}={text} has {devices.num_slices} slices"
        raise UserError(what, f"type {key}={single.typed}", "several-slices")
    return devices


def of_tpus(text: str, key: str) -> Slice:
    """The slices that the value `text` of `key` names. UserError for everything but slices of TPUs, with KEY=SLICE to type."""
    example = f"type {key}=tpu7x-4x4x8"
    try:
        devices = parse(text)
    except UnknownSlice as e:
        is_close = e.guess and parse(e.guess).accelerator.pod
        fix = f"type {key}={e.guess}" if is_close else example
        raise UserError(f"{key}={text} is no TPU slice", fix, e.code) from e
    except UserError as e:
        raise UserError(f"{key}={text}: {e.what}", e.fix.replace("--on ", f"{key}="), e.code) from e
    pod = devices.accelerator.pod
    if pod is None or not pod.gke_accelerator:
        raise UserError(f"{key}={text} is no TPU slice of GKE", example, "no-tpu-slice")
    return devices


def _find(text: str) -> Slice | None:
    """None where no part of the name is known; a UserError where only its size is wrong."""
    match = re.fullmatch(r"\s*(?:(\d+)\s*x\s*)?(?:(\d+)\s*x\s*)?([a-z][\w-]*(?: [\w-]+)*)\s*", text, re.IGNORECASE)
    if match is None:
        return None
    count = int(match[1] or 1)
    body = match[3].lower()
    kind, _, size = body.partition("-")
    gpu = gpu_named(body)
    tpu = None
    if " " not in body:
        tpu = next((a for a in TPUS if a.pod and kind in (a.name, a.pod.prefix)), None)
    if (gpu or tpu) and not 1 <= count <= MOST:
        raise UserError(f"{text!r}: the count is from 1 to {MOST:,}", f"type --on 2x{match[3]}", "wrong-count")
    if match[2]:
        return of_hosts(count, int(match[2]), match[3]) if gpu else None
    if gpu:
        return _gpus(gpu, count)
    if tpu:
        return Slice(tpu, _chips(tpu, size), count)
    if kind == "cpu" and match[1] is None and re.fullmatch(r"[1-9]\d*", size):
        return Slice(CPU, (int(size), 1, 1))
    return None


def topologies(pod: Pod) -> list[Topology]:
    """Everything that is sold of a generation, by number of chips, the most cubic one of a number first."""
    sides = range(1, pod.max_cubes + 1)
    cubes = []
    for a in sides:
        for b in range(a, pod.max_cubes // a + 1):
            for c in range(b, pod.max_cubes // (a * b) + 1):
                cubes.append((4 * a, 4 * b, 4 * c))
    return sorted([*pod.topologies, *cubes], key=lambda t: (math.prod(t), sum(t)))


def sold(row: Accelerator, most: int = MOST_DEVICES) -> Iterator[Slice]:
    """Slices of a TPU generation, then several of the largest; counts of a GPU: those of one machine, then whole machines. The smallest
    first, up to so many devices."""
    each = row.devices_per_chip
    if row.pod:
        sizes = topologies(row.pod)
        yield from (Slice(row, topology) for topology in sizes if math.prod(topology) * each <= most)
        largest = math.prod(sizes[-1]) * each
        yield from (Slice(row, sizes[-1], number) for number in range(2, most // largest + 1))
    elif row.node:
        size = row.node.size
        machine = [1 << n for n in range(size.bit_length()) if 1 << n < size]
        yield from (Slice(row, (n, 1, 1)) for n in (*machine, *range(size, most + 1, size)) if n <= most)


def _of_size(pod: Pod, chips: int) -> Topology | None:
    """What a bare number stands for: the most cubic one."""
    return next((t for t in topologies(pod) if math.prod(t) == chips), None)


def _gpus(gpu: Accelerator, count: int) -> Slice:
    assert gpu.node
    machines, rest = divmod(count, gpu.node.size)
    if machines and rest:
        size = gpu.node.size
        what = f"{count} {gpu.name} are no whole machines of {size}"
        fix = f"type --on {machines * size}x{gpu.name} or {(machines + 1) * size}x{gpu.name}"
        raise UserError(what, fix, "slice-not-sold")
    return Slice(gpu, (count, 1, 1))


def _per_chip(tpu: Accelerator) -> int:
    """How many of what NAME-N counts make a chip. v5p: two cores, which jax sees as one device."""
    assert tpu.pod
    return {"chips": 1, "cores": 2, "devices": tpu.devices_per_chip}[tpu.pod.counts]


def _chips(tpu: Accelerator, size: str) -> Topology:
    """`size` is a number or a topology."""
    pod = tpu.pod
    assert pod
    if re.fullmatch(r"\d+", size):
        chips, rest = divmod(int(size), _per_chip(tpu))
        sized = None if rest else _of_size(pod, chips)
        if sized is None:
            near = " or ".join(f"{tpu.name}-{n * _per_chip(tpu)}" for n in _near(pod, int(size) / _per_chip(tpu)))
            what = f"no {tpu.name} slice is sold as {tpu.name}-{size} (the number counts {pod.counts})"
            raise UserError(what, f"type --on {near}", "slice-not-sold")
        return sized
    if re.fullmatch(r"\d+(x\d+)+", size):
        parts = tuple(map(int, size.split("x")))
        x, y, z = (*parts, 1, 1)[:3]
        if (x, y, z) in topologies(pod) and len(parts) == (3 if pod.max_cubes else 2):
            return (x, y, z)
        near = " or ".join(f"{tpu.name}-{_shown(pod, each)}" for each in _alike(pod, parts))
        what = f"no {tpu.name} slice is sold with topology {size}"
        raise UserError(what, f"type --on {near}", "slice-not-sold")
    example = f"{tpu.name}-{8 * _per_chip(tpu)} or {tpu.name}-{_shown(pod, pod.topologies[-1])}"
    raise UserError(f"{tpu.name} alone names no size", f"type --on {example}", "no-size")


def _near(pod: Pod, chips: float) -> list[int]:
    """The sizes sold just below and above."""
    sizes = sorted(math.prod(t) for t in topologies(pod))
    below = [size for size in sizes if size < chips]
    above = [size for size in sizes if size > chips]
    return below[-1:] + above[:1] or sizes[:1]


def _alike(pod: Pod, sides: Sequence[int]) -> list[Topology]:
    """The same sides in the order that is sold, or the most cubic topologies of about as many chips."""
    sold_so = [each for each in topologies(pod) if sorted(each) == sorted((*sides, 1)[:3])]
    chips = math.prod(sides)
    if sold_so:
        return sold_so
    near = [_of_size(pod, n) for n in (chips, *_near(pod, chips))]
    return [each for each in near if each][:2]


def _shown(pod: Pod, chips: Topology) -> str:
    return "x".join(map(str, chips if pod.max_cubes else chips[:2]))


MOST = 1 << 17
"""GPUs or slices that are looked at: no machine room has more"""


def _unknown(text: str) -> UnknownSlice:
    what = f"there is no target and no slice {text!r}"
    fix = f"type --on local, cpu-8, or a slice such as {EXAMPLES}"
    close = ""
    if match := re.fullmatch(r"(\s*\d+\s*x\s*)?([a-z].*)", text, re.IGNORECASE):
        times, body = match.groups("")
        kind, _, size = body.partition("-")
        guess = f"{times}{nearest(kind.lower(), [a.name for a in (*TPUS, CPU)])}-{size}".replace(" ", "")
        gpus = gpus_like(body) or nearest_gpus(body)
        if gpus:
            _find(times + gpus[0])  # a wrong number is said first
            fix = "type --on " + " or ".join((times.strip() or "1x") + name for name in gpus)
        elif _holds(guess):
            close = guess
            fix = f"type --on {guess}"
    unknown = UnknownSlice(what, fix, "unknown-slice")
    unknown.guess = close
    return unknown


def _holds(text: str) -> bool:
    try:
        return _find(text) is not None
    except UserError:
        return False

"""Facts about accelerators, from accelerators.yaml, each with its source. One device is what jax.devices() counts; one chip has one or two of them.

`Pod` says how TPU chips are sold and what each tool calls them, `Node` how GPUs are put into machines. 0.0 stands for "has no such
units", or, in the `cpu` row, for what is measured on the machine instead of looked up.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, Literal

import yaml

from podwright.errors import nearest

GIB = 1024**3
GPU_MEMORY_FRACTION = 0.92
"""that jax is given of a GPU's memory; what is left is for NCCL, cuBLAS and the CUDA context. jax's own choice is 0.75"""

Topology = tuple[int, int, int]
"""chips along x, y, z"""


@dataclasses.dataclass(frozen=True)
class Pod:
    """How one TPU generation is sold. `topologies` lists what is, smallest first; libtpu itself would take any."""

    topologies: tuple[Topology, ...]
    max_cubes: int
    """3D tori: besides `topologies` every AxBxC of whole 4x4x4 cubes, A <= B <= C, up to so many; 2D: 0"""
    counts: Literal["chips", "cores", "devices"]
    """what the N of NAME-N counts, in xpk and in gcloud"""
    prefix: str
    """NAME of NAME-N in xpk and in gcloud's --accelerator-type"""
    machine_types: dict[int, str]
    """chips of one VM -> GKE machine type"""
    gke_accelerator: str
    """value of the node label cloud.google.com/gke-tpu-accelerator"""
    in_tpu_api: bool
    """whether `gcloud compute tpus tpu-vm create --accelerator-type` knows it"""
    runtime: str
    """the image for `--version`: a slice made with another one starts, and then libtpu does not find its chips; "": none documented"""
    wraps_from: int
    """a torus has its wrap-around links from so many chips along an axis (3D: along all axes at once)"""
    mesh_may_split: bool
    """what jax.make_mesh gives create_device_mesh as allow_split_physical_axes"""


@dataclasses.dataclass(frozen=True)
class Node:
    """A machine with GPUs. Cloud names are of GKE and Compute Engine; a SLURM cluster has its own."""

    size: int
    """GPUs of a full node"""
    machine_types: dict[int, str]
    """GPUs of one VM -> machine type"""
    gke_accelerator: str
    """value of the node label cloud.google.com/gke-accelerator"""


@dataclasses.dataclass(frozen=True)
class Accelerator:
    name: str
    hbm_bytes: float
    """memory a program can use, per device"""
    bf16_flops: float
    """peak dense FLOP/s per device"""
    hbm_bandwidth: float
    """bytes/s per device"""
    source: str
    kinds: tuple[str, ...]
    """what jax's Device.device_kind and nvidia-smi call it"""
    fp16_flops: float = 0.0
    fp8_flops: float = 0.0
    int8_flops: float = 0.0
    """int8 operations per second"""
    ici_bandwidth: float = 0.0
    """bytes/s per chip over all links to its neighbours, both directions together, as data sheets count; ICI, NVLink or PCIe"""
    dcn_bandwidth: float = 0.0
    """bytes/s per chip and direction between slices or nodes"""
    devices_per_chip: int = 1
    pod: Pod | None = None
    node: Node | None = None
    compute_capability: tuple[int, int] | None = None
    """of an NVIDIA GPU"""
    sold_gb: tuple[int, ...] = ()
    """in the names that a card with one size of memory is also known by"""

    def peak_flops(self, precision: str) -> float:
        """FLOP/s of products in bf16, fp8 or int8; 0.0 of any other."""
        return {"bf16": self.bf16_flops, "fp8": self.fp8_flops, "int8": self.int8_flops}.get(precision, 0.0)

    @property
    def program_bytes(self) -> float:
        """What a trainer's programs in jax can have of `hbm_bytes`."""
        return self.hbm_bytes * (GPU_MEMORY_FRACTION if self.node else 1.0)


_RATES = {
    "hbm_gib": ("hbm_bytes", GIB),
    "bf16_tflops": ("bf16_flops", 1e12),
    "fp16_tflops": ("fp16_flops", 1e12),
    "fp8_tflops": ("fp8_flops", 1e12),
    "int8_tops": ("int8_flops", 1e12),
    "hbm_gb_s": ("hbm_bandwidth", 1e9),
    "ici_gb_s": ("ici_bandwidth", 1e9),
    "dcn_gb_s": ("dcn_bandwidth", 1e9),
}
"""key of accelerators.yaml -> the field that it is of, and its unit"""


def _accelerator(name: str, record: dict[str, Any], pod: Pod | None = None, node: Node | None = None) -> Accelerator:
    figures: dict[str, Any] = {}
    for key, (field, unit) in _RATES.items():
        figures[field] = record.pop(key, 0.0) * unit
    lists = {key: tuple(value) for key, value in record.items() if isinstance(value, list)}
    return Accelerator(name=name, pod=pod, node=node, **figures, **record | lists)


def _tpu(name: str, record: dict[str, Any]) -> Accelerator:
    pod = record.pop("pod")
    pod["topologies"] = tuple(map(tuple, pod["topologies"]))
    return _accelerator(name, record, pod=Pod(**pod))


def _gpu(name: str, record: dict[str, Any]) -> Accelerator:
    node = record.pop("node", {"size": 8, "machine_types": {}, "gke_accelerator": ""})
    return _accelerator(name, record, node=Node(**node))


_TABLE = yaml.load(
    Path(__file__).with_suffix(".yaml").read_text(),
    getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # ten times faster, where PyYAML was built with libyaml
)
TPUS = tuple(_tpu(name, record) for name, record in _TABLE["tpus"].items())
GPUS = tuple(_gpu(name, record) for name, record in _TABLE["gpus"].items())

# Devices share the memory and the cores of their machine, so nothing here is a property of one.
CPU = Accelerator(
    name="cpu", hbm_bytes=0.0, bf16_flops=0.0, hbm_bandwidth=0.0, source="the machine itself", kinds=("cpu",)
)

ACCELERATORS = (*TPUS, *GPUS, CPU)


def by_device_kind(kind: str) -> Accelerator | None:
    """The row for what jax calls a device, or None for one that we do not know."""
    return next((a for a in ACCELERATORS if kind in a.kinds), None)


def _split(name: str) -> tuple[str, str]:
    """Card and memory of a GPU's name in any order, without words of its maker: a100-pcie and 40gb of NVIDIA A100-PCIE-40GB."""
    words = [word for word in re.findall(r"[^\s-]+", name.lower()) if word not in ("nvidia", "tesla", "geforce")]
    sizes = [word for word in words if re.fullmatch(r"\d{1,3}(gb?)?", word)]
    return "-".join(word for word in words if word not in sizes), "-".join(sizes)


_BY_NAME: dict[tuple[str, str], Accelerator] = {}
for _row in GPUS:
    _sold_as = [f"{_row.name}-{size}GB" for size in _row.sold_gb]
    _BY_NAME |= {_split(name): _row for name in (_row.name, *_row.kinds, *_sold_as)}


def gpu(name: str) -> Accelerator | None:
    """The row of a GPU by a name that is typed or that nvidia-smi prints, also with the GB that it is sold with: L4-24GB, H200-141GB."""
    return _BY_NAME.get(_split(name))


def gpus_like(name: str) -> list[str]:
    """The names of the card with other memory, or of all cards that begin so: of A100-24GB, A100-40GB and A100-80GB."""
    card, memory = _split(name)
    begin = [key for key in _BY_NAME if f"{key[0]}-".startswith(f"{card}-")]
    same = [key for key in begin if key[0] == card or key[1] == memory != ""]
    return list(dict.fromkeys(_BY_NAME[key].name for key in same or begin))


def nearest_gpus(name: str) -> list[str]:
    """The names of cards with the first word of `name`, or of the one that is called most like it, with its memory if there are such."""
    card, memory = _split(name)
    first_word = card.partition("-")[0]
    family = [key for key in _BY_NAME if key[0].partition("-")[0] == first_word != "rtx"]
    if family:
        alike = [key for key in family if memory and key[1] == memory] or family
        return list(dict.fromkeys(_BY_NAME[key].name for key in alike))
    known = [each for each, size in _BY_NAME if memory in ("", size)]
    if not known:
        known = [each for each, _ in _BY_NAME]
    near = f"{nearest(card, known, cutoff=0.7)}-{memory}"  # names are short: half of the letters are the same by chance
    row = gpu(near)
    return [row.name] if row else gpus_like(near)

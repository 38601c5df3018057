"""Facts about accelerators, each row with its source. One device is what jax.devices() counts; one chip has one or two of them.

`Pod` says how TPU chips are sold and what each tool calls them, `Node` how GPUs are put into machines. 0.0 stands for "has no such
units", or, in the `cpu` row, for what is measured on the machine instead of looked up.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

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

    @property
    def program_bytes(self) -> float:
        """What a trainer's programs in jax can have of `hbm_bytes`."""
        return self.hbm_bytes * (GPU_MEMORY_FRACTION if self.node else 1.0)


_FLAT = ((1, 1, 1), (2, 2, 1), (2, 4, 1), (4, 4, 1), (4, 8, 1), (8, 8, 1), (8, 16, 1), (16, 16, 1))
_BELOW_A_CUBE: tuple[Topology, ...] = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))

# TPU figures and topologies: docs.cloud.google.com/tpu/docs, one page a generation, and kubernetes-engine/docs/concepts/plan-tpus for
# machine types and labels; runtime images: tpu/docs/runtimes; device names: xpk's system_characteristics. Usable HBM is what libtpu's
# own out-of-memory message states. Documentation counts per chip: a tpu7x device has half of it.
_V5E = Pod(
    topologies=_FLAT,
    max_cubes=0,
    counts="chips",
    prefix="v5litepod",
    machine_types={1: "ct5lp-hightpu-1t", 4: "ct5lp-hightpu-4t", 8: "ct5lp-hightpu-8t"},
    gke_accelerator="tpu-v5-lite-podslice",
    in_tpu_api=True,
    runtime="v2-alpha-tpuv5-lite",
    wraps_from=16,
    mesh_may_split=True,
)
_V5P = Pod(
    topologies=_BELOW_A_CUBE,
    max_cubes=96,  # a pod has 140, "the largest job that can be scheduled is a 96 cube (6144 chip) job"
    counts="cores",
    prefix="v5p",
    machine_types={4: "ct5p-hightpu-4t"},
    gke_accelerator="tpu-v5p-slice",
    in_tpu_api=True,
    runtime="v2-alpha-tpuv5",
    wraps_from=4,
    mesh_may_split=False,
)
_V6E = Pod(
    topologies=_FLAT,
    max_cubes=0,
    counts="chips",
    prefix="v6e",
    machine_types={1: "ct6e-standard-1t", 4: "ct6e-standard-4t", 8: "ct6e-standard-8t"},
    gke_accelerator="tpu-v6e-slice",
    in_tpu_api=True,
    runtime="v2-alpha-tpuv6e",
    wraps_from=16,
    mesh_may_split=False,
)
_TPU7X = Pod(
    topologies=((1, 1, 1), *_BELOW_A_CUBE),
    max_cubes=144,
    counts="devices",
    prefix="tpu7x",
    machine_types={1: "tpu7x-standard-1t", 4: "tpu7x-standard-4t"},
    gke_accelerator="tpu7x",
    in_tpu_api=False,  # offered through GKE and Compute Engine
    runtime="",
    wraps_from=4,
    mesh_may_split=False,
)
# Announced for a pod of 9,600 chips (8t) and with hosts of 4 chips, which have Arm CPUs (Axion). No cloud has a name for them yet, so that they
# can be planned for and not requested. Of 8i only the slice of one host is known. Usable HBM: less by what libtpu takes on tpu7x.
_TPU8T = dataclasses.replace(
    _TPU7X,
    topologies=_BELOW_A_CUBE,
    max_cubes=150,
    counts="chips",
    prefix="tpu8t",
    machine_types={},
    gke_accelerator="",
)
_TPU8I = dataclasses.replace(_TPU8T, topologies=((1, 4, 1),), max_cubes=0, prefix="tpu8i", wraps_from=16)

TPUS = (
    Accelerator(
        name="v5e",
        hbm_bytes=15.75 * GIB,
        bf16_flops=197e12,
        int8_flops=393e12,
        hbm_bandwidth=0.82e12,
        ici_bandwidth=400e9,
        dcn_bandwidth=25e9 / 8,
        source="docs/tpu/v5e",
        kinds=("TPU v5 lite", "TPU v5e"),
        pod=_V5E,
    ),
    Accelerator(
        name="v5p",
        hbm_bytes=95.73 * GIB,
        bf16_flops=459e12,
        fp8_flops=459e12,
        int8_flops=918e12,
        hbm_bandwidth=2.77e12,
        ici_bandwidth=1200e9,
        dcn_bandwidth=50e9 / 8,
        source="docs/tpu/v5p",
        kinds=("TPU v5", "TPU v5p"),
        pod=_V5P,
    ),
    Accelerator(
        name="v6e",
        hbm_bytes=31.24 * GIB,
        bf16_flops=918e12,
        fp8_flops=918e12,
        int8_flops=1836e12,
        hbm_bandwidth=1.64e12,
        ici_bandwidth=800e9,
        dcn_bandwidth=100e9 / 8,
        source="docs/tpu/v6e",
        kinds=("TPU v6 lite", "TPU v6e"),
        pod=_V6E,
    ),
    Accelerator(
        name="tpu7x",
        hbm_bytes=94.74 * GIB,
        bf16_flops=2307e12 / 2,
        fp8_flops=4614e12 / 2,
        hbm_bandwidth=7.38e12 / 2,
        ici_bandwidth=1200e9,
        dcn_bandwidth=100e9 / 8,
        source="docs/tpu/tpu7x, two devices a chip",
        kinds=("TPU7x", "TPU v7x"),
        devices_per_chip=2,
        pod=_TPU7X,
    ),
    Accelerator(
        name="tpu8t",
        hbm_bytes=213.9 * GIB,
        bf16_flops=996e12,
        fp8_flops=5977e12,
        int8_flops=996e12,
        hbm_bandwidth=6.4e12,
        ici_bandwidth=2400e9,
        dcn_bandwidth=400e9 / 8,
        source="jax 0.12.0.1, tpu_info.py; links: Google, 2026-04-22",
        kinds=("TPU8t",),
        pod=_TPU8T,
    ),
    Accelerator(
        name="tpu8i",
        hbm_bytes=142.6 * GIB,
        bf16_flops=1101e12 / 2,
        fp8_flops=8808e12 / 2,
        hbm_bandwidth=8.6e12 / 2,
        ici_bandwidth=2400e9,
        dcn_bandwidth=100e9 / 8,  # that of tpu7x; none is published
        source="jax 0.12.0.1, tpu_info.py, two devices a chip; links: Google, 2026-04-22",
        kinds=("TPU8i",),
        devices_per_chip=2,
        pod=_TPU8I,
    ),
)


# GPU: NVIDIA's data sheets, dense, without sparsity, with float32 accumulation, which training uses. Usable memory as the driver reports it
# less what a context takes, or by xla/backends/gpu/target_config/specs. Links: NVLink, else PCIe x16 (a pair of cards may have an NVLink
# bridge). Network: the DGX of the generation, one port a GPU (V100: four for eight); 100 Gbit/s a node of eight for cards in PCIe slots, 10
# where the card is a consumer's. Machine types and labels: compute/docs/gpus and kubernetes-engine/docs/concepts/gpus.
def _vms(name: str, each: int = 1) -> dict[int, str]:
    """GPUs of one VM -> machine type, whose `name` counts `each` of something for a GPU."""
    return {number: name.format(number * each) for number in (1, 2, 4, 8)}


_NODES = {
    "V100-16GB": Node(8, {}, "nvidia-tesla-v100"),
    "A100-40GB": Node(8, _vms("a2-highgpu-{}g"), "nvidia-tesla-a100"),
    "A100-80GB": Node(8, _vms("a2-ultragpu-{}g"), "nvidia-a100-80gb"),
    "H100-80GB": Node(8, _vms("a3-highgpu-{}g"), "nvidia-h100-80gb"),
    "H200": Node(8, {8: "a3-ultragpu-8g"}, "nvidia-h200-141gb"),
    "B200": Node(8, {8: "a4-highgpu-8g"}, "nvidia-b200"),
    "GB200": Node(4, {4: "a4x-highgpu-4g"}, "nvidia-gb200"),
    "T4": Node(4, {}, "nvidia-tesla-t4"),
    "L4": Node(8, _vms("g2-standard-{}", 12), "nvidia-l4"),
    "RTX-PRO-6000": Node(8, _vms("g4-standard-{}", 48), "nvidia-rtx-pro-6000"),
}

# GB in the names that cards with one size of memory are also known by: two editions of a B200 and of a GB200 are sold
_SOLD_GB = {
    "H100-NVL": (94,),
    "H200": (141,),
    "B200": (180, 192),
    "GB200": (186, 192),
    "T4": (16,),
    "A10": (24,),
    "A6000": (48,),
    "L4": (24,),
    "L40S": (48,),
    "RTX-PRO-6000": (96,),
    "RTX-3090": (24,),
    "RTX-4090": (24,),
    "RTX-5090": (32,),
}


# developer.nvidia.com/cuda-gpus, by a name or what stands before its first hyphen
_CAPABILITIES = {
    "V100": (7, 0),
    "T4": (7, 5),
    "A100": (8, 0),
    "A10": (8, 6),
    "A6000": (8, 6),
    "RTX-3090": (8, 6),
    "L4": (8, 9),
    "L40S": (8, 9),
    "RTX-4090": (8, 9),
    "H100": (9, 0),
    "H200": (9, 0),
    "B200": (10, 0),
    "GB200": (10, 0),
    "RTX-5090": (12, 0),
    "RTX-PRO-6000": (12, 0),
}


def _gpu(
    name: str,
    gib: float,
    tflops: tuple[float, float, float, float],
    memory_tb_s: float,
    links_gb_s: float,
    network_gbit_s: float,
    source: str,
    *kinds: str,
) -> Accelerator:
    """`tflops`: peaks of bf16, fp16, fp8 and int8; 0 where there are no such units (V100 and T4 train in float16)."""
    bf16, fp16, fp8, int8 = (peak * 1e12 for peak in tflops)
    links, network = links_gb_s * 1e9, network_gbit_s * 1e9 / 8
    size, bandwidth, node = gib * GIB, memory_tb_s * 1e12, _NODES.get(name, Node(8, {}, ""))
    figures = bf16, bandwidth, source, kinds, fp16, fp8, int8, links, network
    capability = _CAPABILITIES.get(name) or _CAPABILITIES[name.partition("-")[0]]
    return Accelerator(name, size, *figures, node=node, compute_capability=capability)


_PRO = [f"NVIDIA RTX PRO 6000 Blackwell {edition} Edition" for edition in ("Server", "Workstation")]
GPUS = (
    _gpu("V100-16GB", 15.7, (0, 125, 0, 0), 0.9, 300, 50, "V100 data sheet, SXM2", "Tesla V100-SXM2-16GB"),
    _gpu("V100-32GB", 31.7, (0, 125, 0, 0), 0.9, 300, 50, "V100 data sheet, SXM2", "Tesla V100-SXM2-32GB"),
    _gpu("A100-40GB", 39.4, (312, 312, 0, 624), 1.56, 600, 200, "A100 data sheet, SXM4", "NVIDIA A100-SXM4-40GB"),
    _gpu("A100-80GB", 79.1, (312, 312, 0, 624), 2.04, 600, 200, "A100 data sheet, SXM4", "NVIDIA A100-SXM4-80GB"),
    _gpu("A100-40GB-PCIe", 39.4, (312, 312, 0, 624), 1.56, 64, 12.5, "A100 data sheet, PCIe", "NVIDIA A100-PCIE-40GB"),
    _gpu("A100-80GB-PCIe", 79.1, (312, 312, 0, 624), 1.935, 64, 12.5, "A100 data sheet, PCIe", "NVIDIA A100 80GB PCIe"),
    _gpu("H100-80GB", 79.1, (989, 989, 1979, 1979), 3.35, 900, 400, "H100 data sheet, SXM5", "NVIDIA H100 80GB HBM3"),
    _gpu("H100-80GB-PCIe", 79.1, (756, 756, 1513, 1513), 2.04, 128, 12.5, "H100 data sheet, PCIe", "NVIDIA H100 PCIe"),
    _gpu("H100-NVL", 93.1, (835.5, 835.5, 1671, 1671), 3.94, 128, 12.5, "H100 data sheet, NVL", "NVIDIA H100 NVL"),
    _gpu("H200", 139.8, (989, 989, 1979, 1979), 4.8, 900, 400, "H200 data sheet, SXM5", "NVIDIA H200"),
    _gpu("B200", 178.3, (2250, 2250, 4500, 4500), 7.67, 1800, 400, "DGX B200 data sheet", "NVIDIA B200"),
    _gpu("GB200", 184.3, (2500, 2500, 5000, 5000), 7.93, 1800, 400, "GB200 NVL72 data sheet", "NVIDIA GB200"),
    _gpu("T4", 14.5, (0, 65, 0, 130), 0.32, 32, 12.5, "T4 data sheet", "Tesla T4", "NVIDIA T4"),
    _gpu("A10", 21.9, (125, 125, 0, 250), 0.6, 64, 12.5, "A10 data sheet", "NVIDIA A10"),
    _gpu("A6000", 47.5, (154.8, 154.8, 0, 309.7), 0.768, 64, 12.5, "RTX A6000 data sheet", "NVIDIA RTX A6000"),
    _gpu("L4", 21.9, (121, 121, 242, 242), 0.3, 64, 12.5, "L4 data sheet", "NVIDIA L4"),
    _gpu("L40S", 44.5, (362, 362, 733, 733), 0.864, 64, 12.5, "L40S data sheet", "NVIDIA L40S"),
    _gpu("RTX-PRO-6000", 94.9, (503.8, 503.8, 1007.6, 1007.6), 1.79, 128, 12.5, "RTX Blackwell PRO whitepaper", *_PRO),
    _gpu("RTX-3090", 23.6, (71, 71, 0, 284), 0.936, 64, 1.25, "GA102 whitepaper", "NVIDIA GeForce RTX 3090"),
    _gpu("RTX-4090", 23.6, (165.2, 165.2, 330.3, 660.6), 1.008, 64, 1.25, "Ada whitepaper", "NVIDIA GeForce RTX 4090"),
    _gpu(
        "RTX-5090",
        31.3,
        (209.5, 209.5, 419, 838),
        1.79,
        128,
        1.25,
        "RTX Blackwell whitepaper",
        "NVIDIA GeForce RTX 5090",
    ),
)

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


_SOLD_AS = {row.name: [f"{row.name}-{size}GB" for size in _SOLD_GB.get(row.name, ())] or [row.name] for row in GPUS}
_BY_NAME = {_split(name): row for row in GPUS for name in (row.name, *row.kinds, *_SOLD_AS[row.name])}


def gpu(name: str) -> Accelerator | None:
    """The row of a GPU by a name that is typed or that nvidia-smi prints, also with the GB that it is sold with: L4-24GB, H200-141GB."""
    return _BY_NAME.get(_split(name))


def gpus_like(name: str) -> list[str]:
    """The names of the card with the memory that it is sold with, or of all cards that begin so: of A100-24GB, A100-40GB and A100-80GB."""
    card, memory = _split(name)
    begin = [key for key in _BY_NAME if f"{key[0]}-".startswith(f"{card}-")]
    same = [key for key in begin if key[0] == card or key[1] == memory != ""]
    rows = dict.fromkeys(_BY_NAME[key].name for key in same or begin)
    return [typed for row in rows for typed in (_SOLD_AS[row] if memory else [row])]


def nearest_gpus(name: str) -> list[str]:
    """The names of cards with the first word of `name`, or of the one that is called most like it, with its memory if there are such."""
    card, memory = _split(name)
    family = [key for key in _BY_NAME if key[0].partition("-")[0] == card.partition("-")[0] != "rtx"]
    if family:
        alike = [key for key in family if memory and key[1] == memory] or family
        return list(dict.fromkeys(_BY_NAME[key].name for key in alike))
    known = [each for each, size in _BY_NAME if memory in ("", size)] or [each for each, _ in _BY_NAME]
    near = f"{nearest(card, known, cutoff=0.7)}-{memory}"  # names are short: half of the letters are the same by chance
    return [row.name] if (row := gpu(near)) else gpus_like(near)

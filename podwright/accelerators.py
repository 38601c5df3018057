"""Facts about accelerators, each row with its source. One device is what jax.devices() counts; one chip has one or two of them.

`Pod` says how TPU chips are sold and what each tool calls them, `Node` how GPUs are put into machines. 0.0 stands for "has no such
units", or, in the `cpu` row, for what is measured on the machine instead of looked up.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

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
    """what jax's Device.device_kind calls it"""
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

    @property
    def program_bytes(self) -> float:
        """What a trainer's programs in jax can have of `hbm_bytes`."""
        return self.hbm_bytes * (GPU_MEMORY_FRACTION if self.node else 1.0)


_FLAT: tuple[Topology, ...] = (
    (1, 1, 1),
    (2, 2, 1),
    (2, 4, 1),
    (4, 4, 1),
    (4, 8, 1),
    (8, 8, 1),
    (8, 16, 1),
    (16, 16, 1),
)
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
)

# GPU: NVIDIA's data sheets, dense, without sparsity; usable memory as the driver reports it less what a context takes. Network: the DGX
# of the generation, one port a GPU (V100: four for eight); 10 Gbit/s a node of eight where the card is a consumer's. Machine types and
# labels: compute/docs/gpus and kubernetes-engine/docs/concepts/gpus.
GPUS = (
    Accelerator(
        name="V100-16GB",
        hbm_bytes=15.7 * GIB,
        bf16_flops=0.0,  # no bf16 units: train in float16
        fp16_flops=125e12,
        hbm_bandwidth=0.9e12,
        ici_bandwidth=300e9,
        dcn_bandwidth=50e9 / 8,
        source="V100 data sheet, SXM2",
        kinds=("Tesla V100-SXM2-16GB",),
        node=Node(8, {}, "nvidia-tesla-v100"),
    ),
    Accelerator(
        name="V100-32GB",
        hbm_bytes=31.7 * GIB,
        bf16_flops=0.0,
        fp16_flops=125e12,
        hbm_bandwidth=0.9e12,
        ici_bandwidth=300e9,
        dcn_bandwidth=50e9 / 8,
        source="V100 data sheet, SXM2",
        kinds=("Tesla V100-SXM2-32GB",),
        node=Node(8, {}, ""),
    ),
    Accelerator(
        name="A100-40GB",
        hbm_bytes=39.4 * GIB,
        bf16_flops=312e12,
        fp16_flops=312e12,
        int8_flops=624e12,
        hbm_bandwidth=1.56e12,
        ici_bandwidth=600e9,
        dcn_bandwidth=200e9 / 8,
        source="A100 data sheet, SXM4",
        kinds=("NVIDIA A100-SXM4-40GB",),
        node=Node(
            8, {1: "a2-highgpu-1g", 2: "a2-highgpu-2g", 4: "a2-highgpu-4g", 8: "a2-highgpu-8g"}, "nvidia-tesla-a100"
        ),
    ),
    Accelerator(
        name="A100-80GB",
        hbm_bytes=79.1 * GIB,
        bf16_flops=312e12,
        fp16_flops=312e12,
        int8_flops=624e12,
        hbm_bandwidth=2.04e12,
        ici_bandwidth=600e9,
        dcn_bandwidth=200e9 / 8,
        source="A100 data sheet, SXM4",
        kinds=("NVIDIA A100-SXM4-80GB",),
        node=Node(
            8, {1: "a2-ultragpu-1g", 2: "a2-ultragpu-2g", 4: "a2-ultragpu-4g", 8: "a2-ultragpu-8g"}, "nvidia-a100-80gb"
        ),
    ),
    Accelerator(
        name="H100-80GB",
        hbm_bytes=79.1 * GIB,
        bf16_flops=989e12,
        fp16_flops=989e12,
        fp8_flops=1979e12,
        int8_flops=1979e12,
        hbm_bandwidth=3.35e12,
        ici_bandwidth=900e9,
        dcn_bandwidth=400e9 / 8,
        source="H100 data sheet, SXM5",
        kinds=("NVIDIA H100 80GB HBM3",),
        node=Node(
            8, {1: "a3-highgpu-1g", 2: "a3-highgpu-2g", 4: "a3-highgpu-4g", 8: "a3-highgpu-8g"}, "nvidia-h100-80gb"
        ),
    ),
    Accelerator(
        name="H200",
        hbm_bytes=139.8 * GIB,
        bf16_flops=989e12,
        fp16_flops=989e12,
        fp8_flops=1979e12,
        int8_flops=1979e12,
        hbm_bandwidth=4.8e12,
        ici_bandwidth=900e9,
        dcn_bandwidth=400e9 / 8,
        source="H200 data sheet, SXM5",
        kinds=("NVIDIA H200",),
        node=Node(8, {8: "a3-ultragpu-8g"}, "nvidia-h200-141gb"),
    ),
    Accelerator(
        name="RTX-3090",
        hbm_bytes=23.6 * GIB,
        bf16_flops=71e12,  # with float32 accumulation, which training uses; so is the next row
        fp16_flops=71e12,
        int8_flops=284e12,
        hbm_bandwidth=0.936e12,
        ici_bandwidth=64e9,  # PCIe 4.0 x16; a pair may have an NVLink bridge
        dcn_bandwidth=10e9 / 8 / 8,
        source="GA102 whitepaper",
        kinds=("NVIDIA GeForce RTX 3090",),
        node=Node(8, {}, ""),
    ),
    Accelerator(
        name="RTX-4090",
        hbm_bytes=23.6 * GIB,
        bf16_flops=165.2e12,
        fp16_flops=165.2e12,
        fp8_flops=330.3e12,
        int8_flops=660.6e12,
        hbm_bandwidth=1.008e12,
        ici_bandwidth=64e9,
        dcn_bandwidth=10e9 / 8 / 8,
        source="Ada whitepaper",
        kinds=("NVIDIA GeForce RTX 4090",),
        node=Node(8, {}, ""),
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

"""What the simulated cloud offers: zones, accelerator types with chips and hosts, runtime versions.

Sources: Cloud TPU documentation, "TPU regions and zones", "TPU versions" and "TPU software versions".
"""

from typing import Any

ZONES = {
    "us-central1-a": ("v2", "v5litepod"),
    "us-central1-b": ("v2", "v3", "v6e"),
    "us-central2-b": ("v4",),
    "us-east1-d": ("v6e",),
    "us-east5-a": ("v5p", "v6e"),
    "us-east5-b": ("v6e",),
    "us-west4-a": ("v5litepod",),
    "europe-west4-a": ("v3", "v6e"),
    "europe-west4-b": ("v5litepod",),
    "asia-northeast1-b": ("v6e",),
}
FLEX_ZONES = {"v6e": ("asia-northeast1-b", "us-east5-a"), "v5litepod": ("us-west4-a", "us-central1-a")}
CORES_PER_CHIP = {"v2": 2, "v3": 2, "v4": 2, "v5p": 2, "v5litepod": 1, "v6e": 1}
SIZES = {"v5litepod": (1, 4, 8, 16, 32, 64, 128, 256), "v6e": (1, 4, 8, 16, 32, 64, 128, 256)}
TOPOLOGIES = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
TOPOLOGIES_3D = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4"}
RUNTIMES = ("v2-alpha-tpuv6e", "v2-alpha-tpuv5", "v2-alpha-tpuv5-lite", "tpu-ubuntu2204-base", "tpu-vm-tf-2.18.0-pjrt")
API_TYPES = {"v5litepod": "V5LITE_POD", "v5p": "V5P", "v6e": "V6E", "v4": "V4", "v3": "V3", "v2": "V2"}


def region(zone: str) -> str:
    return zone.rpartition("-")[0]


def generation(accelerator_type: str) -> str:
    return accelerator_type.rpartition("-")[0]


def chips(accelerator_type: str) -> int:
    """v6e-16 has 16 chips; v4-16 and v5p-16 count cores, two a chip."""
    name, _, size = accelerator_type.rpartition("-")
    return int(size) // CORES_PER_CHIP[name]


def num_hosts(accelerator_type: str, overrides: dict[str, int]) -> int:
    """Hosts of four chips; up to eight chips of v5e and v6e are one host unless `overrides` says otherwise."""
    if accelerator_type in overrides:
        return overrides[accelerator_type]
    number = chips(accelerator_type)
    single = 8 if CORES_PER_CHIP[generation(accelerator_type)] == 1 else 4
    return 1 if number <= single else number // 4


def topology(name: str, size: int) -> str:
    return (TOPOLOGIES_3D if name in ("v4", "v5p") else TOPOLOGIES)[size]


def offered(accelerator_type: str, zone: str) -> bool:
    name, _, size = accelerator_type.rpartition("-")
    return name in ZONES.get(zone, ()) and size.isdigit() and int(size) in SIZES.get(name, (int(size) & -2,))


def accelerator_types(parent: str, zone: str) -> list[dict[str, Any]]:
    """Items of the API's list for a zone."""
    return [
        {
            "name": f"{parent}/acceleratorTypes/{name}-{size * CORES_PER_CHIP[name]}",
            "type": f"{name}-{size * CORES_PER_CHIP[name]}",
            "acceleratorConfigs": [{"type": API_TYPES[name], "topology": topology(name, size)}],
        }
        for name in ZONES[zone]
        for size in SIZES.get(name, (4, 8, 16))
    ]

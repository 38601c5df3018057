"""Compiles programs of a recipe for NVIDIA GPUs that are not here; run by a Python that has JAX's CUDA plugin (CONTRIBUTING.md).

    PYTHON tests/unit/kernels/gpu_compile.py GPU DEVICES RECIPE PROGRAM [KEY=VALUE ...] [vocab_size=V]

The last line is JSON: bytes of the program's arguments, outputs and temporaries on a device, and how often it has each custom call. XLA
counts no buffers of cuDNN's own here: it asks the card for those.
"""

import collections
import dataclasses
import json
import os
import re
import sys
import types

os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false " + os.environ.get(
    "XLA_FLAGS", ""
)

import jax
from jax._src.cudnn import fused_attention_stablehlo
from jax._src.pallas.triton import gpu_info
from jax.experimental import topologies
from jax.extend import backend

from podwright.recipe import dimensions, load
from podwright.train import entry

# Compute capability, multiprocessors, float32 lanes of each, clock in GHz, bytes/s, bytes, bytes of L2, KiB of shared memory of a
# multiprocessor and of a block, threads of a multiprocessor: xla/backends/gpu/target_config/specs.
GPUS = {
    "A100": ((8, 0), 108, 64, 1.41, 2039040000000, 85100068864, 40 * 2**20, 164, 163, 2048),
    "H100": ((9, 0), 132, 128, 1.98, 3352320000000, 84942979072, 50 * 2**20, 228, 227, 2048),
}


def devices(gpu: str, number: int) -> list[jax.Device]:
    (major, minor), cores, lanes, clock, bandwidth, memory, l2, shared, of_block, threads = GPUS[gpu]
    features = "ACCELERATED_FEATURES" if major >= 9 else "NONE"
    config = f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {features} }}
  core_count: {cores} fpus_per_core: {lanes} clock_rate_ghz: {clock}
  memory_bandwidth: {bandwidth} device_memory_size: {memory} l2_cache_size: {l2}
  shared_memory_per_core: {shared * 1024} shared_memory_per_block_optin: {of_block * 1024} shared_memory_per_block: 49152
  threads_per_core_limit: {threads} threads_per_block_limit: 1024 threads_per_warp: 32
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 12 minor: 9 patch: 0 }}
device_description_str: "NVIDIA {gpu}"
"""
    described = topologies.get_topology_desc(platform="cuda", target_config=config, topology=f"1x1x{number}")
    return list(described.devices)


def main(gpu: str, number: str, name: str, program: str, *overrides: str) -> None:
    # JAX asks the card of this machine; this process compiles for another one, and for that alone.
    fused_attention_stablehlo.check_compute_capability = lambda least: GPUS[gpu][0] >= tuple(map(int, least.split(".")))
    fused_attention_stablehlo.is_cuda_compute_capability_equal = lambda one: (
        GPUS[gpu][0] == tuple(map(int, one.split(".")))
    )
    major, minor = GPUS[gpu][0]
    gpu_info.get_gpu_info = lambda: types.SimpleNamespace(compute_capability=10 * major + minor)
    keys = [override for override in overrides if not override.startswith("vocab_size=")]
    recipe = load.load(name, keys)
    cards = devices(gpu, int(number))
    backend.get_default_device = lambda: cards[0]  # tokamax asks that one
    dims = dataclasses.asdict(dimensions.find(recipe.model.name))
    for override in overrides:
        if override not in keys:
            dims["vocab_size"] = int(override.partition("=")[2])
    compiled = entry.of(recipe.kind).programs(recipe, dims, cards)[program].trace().lower().compile()
    text, sizes = compiled.as_text(), compiled.memory_analysis()
    calls = collections.Counter(re.findall(r'custom_call_target="([^"]+)"', text))
    memory = {part: getattr(sizes, f"{part}_size_in_bytes") for part in ("argument", "output", "alias", "temp")}
    print(json.dumps({"gpu": gpu, "program": program, **memory, "calls": calls}))


if __name__ == "__main__":
    main(*sys.argv[1:])

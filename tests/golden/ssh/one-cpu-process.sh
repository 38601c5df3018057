#!/bin/bash
# One process of the attempt: $1 is its number, $2 that on its host.
rank=$1 local=$2 size=1
run=$(cd "$(dirname "$0")/../.." && pwd)
python=python3
echo "podwright: process $rank of $size on $(hostname)"
export RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$local LOCAL_WORLD_SIZE=1
export JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES= XLA_FLAGS="$XLA_FLAGS --xla_force_host_platform_device_count=1"
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)} # PyTorch else takes every core of the node

exec "$python" -m podwright.train "$run" --attempt 1

#!/bin/bash
# One process of the attempt: $1 is its number, $2 that on its host.
rank=$1 local=$2 size=2
run=$(cd "$(dirname "$0")/../.." && pwd)
python="$HOME"/venv/bin/python
echo "podwright: process $rank of $size on $(hostname)"
export RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$local LOCAL_WORLD_SIZE=1
export JAX_COORDINATOR_ADDRESS=$MASTER_ADDR:$MASTER_PORT JAX_NUM_PROCESSES=$size JAX_PROCESS_ID=$rank
export PODWRIGHT_GPUS_PER_NODE=8 # a trainer that sees none of them refuses
# Without it jax takes the number of the process on its node for the one GPU that it is to use.
export JAX_LOCAL_DEVICE_IDS=0,1,2,3,4,5,6,7
export JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu}
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)} # PyTorch else takes every core of the node

exec "$python" -m podwright.train "$run" --attempt 2

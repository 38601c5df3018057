export RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$local LOCAL_WORLD_SIZE={{ per_node }}
{% if several -%}
export JAX_COORDINATOR_ADDRESS=$MASTER_ADDR:$MASTER_PORT JAX_NUM_PROCESSES=$size JAX_PROCESS_ID=$rank
{% endif -%}
{% if gpus -%}
export PODWRIGHT_GPUS_PER_NODE={{ gpus }} # a trainer that sees none of them refuses
# Without it jax takes the number of the process on its node for the one GPU that it is to use.
export JAX_LOCAL_DEVICE_IDS={{ "$local" if per_node > 1 else range(gpus) | join(",") }}
export JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu}
{% elif tpus -%}
export JAX_PLATFORMS=${JAX_PLATFORMS:-tpu,cpu}
{% else -%}
export JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES= XLA_FLAGS="$XLA_FLAGS --xla_force_host_platform_device_count=1"
{% endif -%}
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-{{ cpus }}} # PyTorch else takes every core of the node

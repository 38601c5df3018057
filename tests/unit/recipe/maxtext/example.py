"""A recipe of MaxText that is ours, for tests: with quotes, a glob, a variable of the pod and values that a user fills in."""

from typing import Any

from podwright.recipe import load
from podwright.recipe.maxtext.schema import MaxTextRecipe

RAW: dict[str, Any] = {
    "kind": "maxtext",
    "name": "toy-4k-bf16-tpu7x-4x4x4",
    "description": "a small model",
    "expect": {"hardware": "tpu7x-4x4x4", "time": "not measured", "metric": "step_s"},
    "topology": "tpu7x-4x4x4",
    "launch": {
        "module": "MaxText.train",
        "base_config": "MaxText/configs/base.yml",
        "setup": ["cd /app"],
        "after": "| tee train.log && gsutil cp train.log ${BASE_OUTPUT_DIR}/logs/train-${TPU_WORKER_ID}.log",
    },
    "arguments": {
        "model_name": "toy",
        "grain_train_files": "/data/*.arrayrecord",
        "prompt": "two words",
        "base_output_directory": "${BASE_OUTPUT_DIR}",
        "run_name": "${WORKLOAD_NAME}",
        "steps": "30",
    },
    "xla_flags": ["--xla_tpu_scoped_vmem_limit_kib=65536", "--xla_enable_async_all_gather=true"],
    "environment": {"JAX_PLATFORMS": "tpu,cpu"},
    "xpk": {"priority": "very-high", "max-restarts": "0", "enable-debug-logs": ""},
}


def example(**changes: Any) -> MaxTextRecipe:
    return load.require(load.parse(RAW | changes), MaxTextRecipe)

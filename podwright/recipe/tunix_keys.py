"""Keys of tunix with a counterpart of the same meaning, with a fixed value, or for which nothing is needed; and what notes are made of."""

from __future__ import annotations

from typing import Any

from podwright.errors import UserError
from podwright.recipe.load import Raw
from podwright.recipe.tunix_file import OPTIMIZER

Settings = dict[str, Any]
TRAINING = "rl_training_config"
NOTHING = "nothing to do: "
SAME = {
    "grpo_config.num_iterations": "grpo.num_iterations",
    "grpo_config.beta": "grpo.beta",
    "grpo_config.epsilon": "grpo.epsilon",
    "grpo_config.epsilon_high": "grpo.epsilon_high",
    "rollout_config.temperature": "rollout.temperature",
    f"{OPTIMIZER}.b1": "optimizer.b1",
    f"{OPTIMIZER}.b2": "optimizer.b2",
    f"{OPTIMIZER}.weight_decay": "optimizer.weight_decay",
    f"{TRAINING}.eval_every_n_steps": "evaluation.every_n_steps",
    f"{TRAINING}.checkpointing_options.save_interval_steps": "checkpoint.every_n_steps",
}
CHOICES: dict[str, tuple[str, dict[Any, str]]] = {
    "grpo_config.kl_loss_mode": ("grpo.kl", {"kl": "k1", "mse_kl": "k2", "low_var_kl": "k3"}),
    "grpo_config.loss_algo": ("grpo.loss", {"grpo": "grpo", "gspo-token": "gspo"}),
    "grpo_config.loss_agg_mode": (
        "grpo.loss",
        {"token-mean": "dapo", "sequence-mean-token-mean": "grpo", "sequence-mean-token-scale": "dr_grpo"},
    ),
    "dtype": ("model.compute_dtype", {"bfloat16": "bfloat16", "float32": "float32"}),
    "remat": ("model.remat", {"NONE": "none", "none": "none", 1: "none", "DECODER": "layer", 3: "layer"}),
}
FIXED: dict[str, tuple[Any, ...]] = {
    "training_mode": ("grpo",),
    "verl_compatible": (False,),
    "offload_to_cpu": (False,),
    "apply_chat_template_to_dataset": (True,),
    "data_module": ("", None),
    "train_fraction": (1,),
    f"{OPTIMIZER}.opt_type": ("adamw",),
    f"{OPTIMIZER}.schedule_type": ("warmup_cosine_decay_schedule",),
    f"{OPTIMIZER}.init_value": (0,),
    f"{OPTIMIZER}.end_value": (0,),
    "grpo_config.algo_variant": ("grpo",),
    "grpo_config.advantage_estimator": ("grpo",),
    "grpo_config.policy_loss_fn": ("grpo",),
    "grpo_config.reward_manager": ("sequence-level",),
}
DERIVED = {
    "data_source": "data.source says where the examples are",
    "data_directory": "data.source says where the examples are",
    "tfds_download": "data that is not here is fetched from the hub",
    "max_target_length": "it belongs to supervised training",
    "rollout_engine": "completions are sampled by the trainer itself, in the same processes",
    "critic_model_config": "GRPO has no critic",
    "override_config_file": "it is this file",
    "base_config": "values of tunix's base_config.yaml that change what is trained are taken over, each with a note",
    "grpo_config.use_rollout_logps": "log-probabilities of the rollout are always kept; see grpo.importance_cap",
    f"{OPTIMIZER}.learning_rate": "tunix does not use it with a schedule",
    f"{OPTIMIZER}.value": "tunix does not use it with a schedule",
    f"{TRAINING}.critic_optimizer_config": "GRPO has no critic",
    f"{TRAINING}.data_sharding_axis": "the batch is sharded over mesh.data and mesh.fsdp",
    f"{TRAINING}.max_inflight_computations": "steps are not queued",
    f"{TRAINING}.rollout_micro_batch_size": "a rollout takes all prompts of a step at a time",
    f"{TRAINING}.compute_logps_micro_batch_size": "logits exist for 512 tokens of a device at a time",
    f"{TRAINING}.metrics_logging_options.project_name": "a run has the name of its recipe",
    f"{TRAINING}.metrics_logging_options.log_dir": "records and TensorBoard's files are in the directory of the run",
    f"{TRAINING}.metrics_logging_options.flush_every_n_steps": "every step is written when it ends",
    f"{TRAINING}.checkpointing_options.max_to_keep": "the newest two checkpoints are kept",
    "tokenizer_config.tokenizer_type": "the tokenizer is that of the checkpoint",
    "tokenizer_config.add_bos": "the chat template of the checkpoint says it",
    "tokenizer_config.add_eos": "the chat template of the checkpoint says it",
}
DERIVED_BELOW = {
    "vllm_config": "completions are sampled by the trainer itself",
    "sglang_jax_config": "completions are sampled by the trainer itself",
    "ppo_config": "it belongs to PPO",
    "training_config": "it belongs to supervised training; rl_training_config is read",
    "optimizer_config": "it belongs to supervised training; rl_training_config.actor_optimizer_config is read",
    f"{TRAINING}.perf_metrics_options": "the seconds of each part of a step are in metrics.jsonl",
    f"{TRAINING}.checkpointing_options": "checkpoints are written in the background where the storage allows it",
}


def assign(raw: Raw, key: str, value: Any) -> str:
    section, _, last = key.rpartition(".")
    (raw[section] if section else raw)[last] = value
    return f"{key} is {value}"


def chosen(key: str, value: Any, ours: str, choices: dict[Any, str], raw: Raw) -> str:
    if isinstance(value, list | dict | bool) or value not in choices:
        raise UserError(f"{key}={value!r:.40} has no counterpart", f"write {', '.join(map(str, choices))}")
    if key == "grpo_config.loss_agg_mode" and raw["grpo"]["loss"] == "gspo":
        return f"{NOTHING}gspo counts every completion the same"
    return assign(raw, ours, choices[value])


def number(key: str, value: Any, least: float = 0) -> Any:
    """`value`, where it is a number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 2**31:
        raise UserError(f"{key}={value!r:.40} must be a number from {least:g} to {2**31 - 1}", "change this value")
    return value


def count(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise UserError(f"{key}={value!r:.40} must be a whole number from 1 to {2**31 - 1}", "change this value")
    return value

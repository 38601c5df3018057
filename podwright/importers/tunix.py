"""tunix's settings of GRPO as a recipe. What the table of keys cannot say is here: how long to train, batches, meshes, data.

What has another meaning here is converted, and the note says how. A value that this trainer cannot honour is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from podwright.errors import UserError, nearest
from podwright.importers import tunix_file, tunix_mesh, tunix_rewards
from podwright.importers.key_table import NOTHING, Settings, assign, count, number
from podwright.importers.tunix_file import OPTIMIZER, ROLES, TRAINING, table
from podwright.recipe.load import Raw, load, settled
from podwright.recipe.schema import recipe_name

_BASE = "qwen3-1.7b-gsm8k-grpo"
_DATA_SETS = {"gsm8k": "openai/gsm8k"}
_UNSAID = {
    f"{OPTIMIZER}.peak_value": "it is missing, and tunix needs it; optimizer.learning_rate is that of {base}: type optimizer.learning_rate=VALUE",
    "prompts": "data.instruction and data.enable_thinking are those of {base}, in the chat template of the checkpoint: no key of tunix says how a "
    "question is asked; type data.instruction='...' for another",
    "grpo_config.kl_loss_mode": "grpo.kl is k3; the file does not say it, and tunix's default is kl, whose gradient is 0 on average: for that, "
    "type grpo.kl=k1",
}
"""what to say of keys that a file does not have, and whose values are not as in tunix"""


def converted(path: Path, settings: Settings) -> tuple[Raw, dict[str, str]]:
    """(recipe, notes): `settings` by dotted key, as tunix_file.settings gives them. UserError for values with no counterpart."""
    raw = load(_BASE).model_dump(mode="json")
    absent = tunix_file.defaults(settings)
    values = settings | {key: value for key, (value, _) in absent.items()}
    raw["rewards"], of_rewards = tunix_rewards.converted(path, settings.get("reward_functions"), raw["rewards"])
    raw["evaluation"]["every_n_steps"], raw["trackers"] = 0, ["tensorboard"]
    notes = {key: of_rewards if key == "reward_functions" else _note(key, values, raw) for key in values}
    notes |= _length(values, raw)
    notes |= {key: text.format(base=_BASE) for key, text in _UNSAID.items() if key not in values}
    for key, (_, where) in absent.items():
        notes[key] += f"; the file does not say it, and {where} does"
    raw |= {"name": recipe_name(path.stem) or "tunix-grpo", "description": f"the settings of tunix in {path.name}"}
    raw["expect"] = {"hardware": "", "time": "not measured", "metric": "accuracy_after"}
    return settled(raw), notes


def _note(key: str, values: Settings, raw: Raw) -> str:
    """What became of `key`; its value is in `raw` then, where it has a counterpart."""
    value = values[key]
    role, _, rest = key.partition(".")
    if role in ROLES and rest in ("mesh.shape", "mesh.axis_names"):
        return tunix_mesh.note(key, values, raw)
    if role in ROLES and rest:
        _require_equal(key, rest, values)
    of_model = _OF_MODEL.get(rest if role in ROLES else "")
    convert = _PARTICULAR.get(key) or of_model
    if convert:
        return convert(key, values, raw)
    if key == "grpo_config.loss_agg_mode" and raw["grpo"]["loss"] == "gspo":
        return f"{NOTHING}gspo counts every completion the same"
    note = table().note(f"model.{rest}" if role in ROLES else key, value, raw, key)
    return _without_counterpart(key, value) if note is None else note


def _require_equal(key: str, rest: str, values: Settings) -> None:
    """UserError where policy, reference and rollout differ, which are one model here."""
    for role in ROLES:
        other = values.get(f"{role}.{rest}", values[key])
        if other != values[key] and not rest.startswith("mesh"):
            what = f"{key}={values[key]!r:.40} and {role}.{rest}={other!r:.40} differ: policy, reference and rollout are one model here"
            raise UserError(what, "write the same in both", "settings-contradict")


def _without_counterpart(key: str, value: Any) -> str:
    if value in (None, {}):
        return f"{NOTHING}it is empty"
    names = [*table().names(), *_PARTICULAR, *ROLES, "reward_functions"]
    fix = "take it out; `podwright recipes show` lists ours"
    if guess := nearest(key, names):
        fix = f"did you mean {guess}? Else take it out"
    raise UserError(f"{key} is no key of tunix that is known here", fix, "unknown-key")


def _batch(key: str, values: Settings, raw: Raw) -> str:
    prompts = count("batch_size", values["batch_size"])
    group = count("grpo_config.num_generations", values["grpo_config.num_generations"])
    sequences = f": {prompts} prompts x {group} completions = {prompts * group} sequences a step, over all devices"
    return assign(raw, "batch_size", prompts) + sequences


def _micro_batch(key: str, values: Settings, raw: Raw) -> str:
    """Prompts of a micro-batch there, parts of a batch here."""
    size = count(key, values[key])
    batch = count("batch_size", values["batch_size"])
    if batch % size:
        raise UserError(f"{key}={size} must divide batch_size={batch}", "write a divisor", "does-not-divide")
    return assign(raw, "training.gradient_accumulation_steps", batch // size) + f": {batch} / {size} prompts"


def _mini_batch(key: str, values: Settings, raw: Raw) -> str:
    size = count(key, values[key])
    batch = count("batch_size", values["batch_size"])
    if size == batch:
        return f"{NOTHING}an update takes the whole batch"
    return f"an update takes all {batch} prompts of a step, not {size}; for updates as large as there, type batch_size={size}"


def _accumulation(key: str, values: Settings, raw: Raw) -> str:
    parts = count(key, values[key])
    if f"{TRAINING}.train_micro_batch_size" in values and parts != 1:
        raise UserError(
            f"{key}={parts} and {TRAINING}.train_micro_batch_size are both set",
            "leave one of them out",
            "settings-contradict",
        )
    if parts == 1:
        return f"{NOTHING}it is so here"
    note = assign(raw, "training.gradient_accumulation_steps", parts)
    return note + ": a batch is split into so many parts, and is not larger for it"


def _warmup(key: str, values: Settings, raw: Raw) -> str:
    """Steps there, a share of all steps here; tunix reads the ratio only where it has no steps."""
    steps = values.get(f"{OPTIMIZER}.warmup_steps")
    ratio = values.get(f"{OPTIMIZER}.warmup_ratio")
    if steps is None:
        return assign(raw, "optimizer.warmup_ratio", number(key, ratio))
    if key.endswith("warmup_ratio"):
        return f"{NOTHING}tunix reads warmup_steps where both are set"
    number(key, steps)
    total = values.get(f"{OPTIMIZER}.decay_steps") or values.get(f"{TRAINING}.max_steps")
    if total is None:
        return f"optimizer.warmup_ratio is {raw['optimizer']['warmup_ratio']}; for {steps} steps of N, type optimizer.warmup_ratio={steps}/N as a number"
    share = steps / count(f"{OPTIMIZER}.decay_steps", total)
    return assign(raw, "optimizer.warmup_ratio", share) + f": {steps} of {total} steps, as a share of all steps"


def _decay(key: str, values: Settings, raw: Raw) -> str:
    length = "the learning rate reaches 0 at the last step of the run"
    decay = count(key, values[key])
    if decay == values.get(f"{TRAINING}.max_steps"):
        return f"{NOTHING}{length}"
    return f"{length}; for {decay} steps type training.max_steps={decay} training.num_epochs=0"


def _length(values: Settings, raw: Raw) -> dict[str, str]:
    """Notes of the keys that say how long to train: updates there, rollouts here."""
    steps = values.get(f"{TRAINING}.max_steps")
    epochs = values.get("num_train_epochs", 1)
    batches = values.get("num_batches")
    notes = {}
    if not steps and batches:
        steps = count("num_batches", batches) * count("num_train_epochs", epochs)
        note = assign(raw, "training.max_steps", steps) + f": {batches} batches x {epochs} epochs"
        return {key: note for key in ("num_batches", "num_train_epochs") if key in values}
    if not steps:
        raw["training"]["max_steps"] = 0
        note = assign(raw, "training.num_epochs", count("num_train_epochs", epochs))
        notes["num_train_epochs" if "num_train_epochs" in values else f"{TRAINING}.max_steps"] = (
            note + ", as tunix trains without max_steps; for N steps type training.max_steps=N training.num_epochs=0"
        )
        return notes
    updates = count(f"{TRAINING}.max_steps", steps)
    each = count("num_iterations", values["grpo_config.num_iterations"])
    detail = f": {updates} updates, {each} on each batch of rollouts" if each > 1 else ""
    notes[f"{TRAINING}.max_steps"] = assign(raw, "training.max_steps", -(-updates // each)) + detail
    for key in ("num_train_epochs", "num_batches"):
        if key in values:
            notes[key] = f"{NOTHING}training.max_steps says how long"
    return notes


def _unused_length(key: str, values: Settings, raw: Raw) -> str:
    return f"{NOTHING}it is 0"  # _length replaces it where it has a value


def _dataset(key: str, values: Settings, raw: Raw) -> str:
    name = values[key]
    is_text = isinstance(name, str)
    if is_text and name in _DATA_SETS and not values.get("data_directory"):
        return assign(raw, "data.source", _DATA_SETS[name])
    if is_text and values.get("data_source") == "huggingface":
        return (
            assign(raw, "data.source", name)
            + "; for rows with other columns type data.columns={question: ..., answer: ...}"
        )
    raise UserError(
        f"{key}={name!r:.40} is not read here",
        "write gsm8k, and type data.source=FILE.jsonl when it runs",
        "no-counterpart",
    )


def _importance(key: str, values: Settings, raw: Raw) -> str:
    mode = values.get("grpo_config.sampler_is")
    cap = values.get("grpo_config.sampler_is_threshold", 2.0)
    if mode not in (None, "token"):
        raise UserError(
            f"grpo_config.sampler_is={mode!r:.40} has no counterpart", "write token or null", "no-counterpart"
        )
    if "grpo_config.sampler_is" not in values:
        return f"{NOTHING}tunix reads it with sampler_is: token only; grpo.importance_cap is {raw['grpo']['importance_cap']}"
    return assign(raw, "grpo.importance_cap", None if mode is None else cap)


def _model_source(key: str, values: Settings, raw: Raw) -> str:
    if values[key] in ("huggingface", "", None):
        return f"{NOTHING}model.source is a directory or an id of the Hugging Face hub"
    if values[key] in ("kaggle", "gcs", "internal", "maxtext"):
        return f"weights are read in Hugging Face's layout; type model.source=DIRECTORY of such a checkpoint, in place of {values[key]}"
    raise UserError(f"{key}={values[key]!r:.40} is no source", "write huggingface", "no-counterpart")


_OF_MODEL: dict[str, Callable[[str, Settings, Raw], str]] = {"model_source": _model_source}
_PARTICULAR: dict[str, Callable[[str, Settings, Raw], str]] = {
    "batch_size": _batch,
    "grpo_config.sampler_is": _importance,
    "grpo_config.sampler_is_threshold": _importance,
    f"{OPTIMIZER}.warmup_steps": _warmup,
    f"{OPTIMIZER}.warmup_ratio": _warmup,
    f"{OPTIMIZER}.decay_steps": _decay,
    f"{TRAINING}.max_steps": _unused_length,
    "num_train_epochs": _unused_length,
    "num_batches": _unused_length,
    f"{TRAINING}.mini_batch_size": _mini_batch,
    f"{TRAINING}.train_micro_batch_size": _micro_batch,
    f"{TRAINING}.gradient_accumulation_steps": _accumulation,
    "dataset_name": _dataset,
}

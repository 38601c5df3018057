"""tunix's settings of GRPO as a recipe: for each key its counterpart and value, what to type instead, or why nothing is needed.

What has another meaning here is converted, and the note says how. A value that this trainer cannot honour is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podwright.errors import UserError, nearest
from podwright.recipe import tunix_file, tunix_model, tunix_rewards
from podwright.recipe.load import Raw, load, settled
from podwright.recipe.tunix_file import OPTIMIZER, ROLES
from podwright.recipe.tunix_keys import (
    CHOICES,
    DERIVED,
    DERIVED_BELOW,
    FIXED,
    NOTHING,
    SAME,
    TRAINING,
    Settings,
    assign,
    chosen,
    count,
    number,
)

_BASE = "qwen3-1.7b-gsm8k-grpo"
_NO_CLIPPING = 1e9
_NO_RATE = (
    f"it is missing, and tunix needs it; optimizer.learning_rate is that of {_BASE}: type optimizer.learning_rate=VALUE"
)
_DATA_SETS = {"gsm8k": "openai/gsm8k"}


def converted(path: Path, settings: Settings) -> tuple[Raw, dict[str, str]]:
    """(recipe, notes): `settings` by dotted key, as tunix_file.settings gives them. UserError for values with no counterpart."""
    raw = load(_BASE).model_dump(mode="json")
    notes: dict[str, str] = {}
    absent = tunix_file.defaults(settings)
    values = settings | {key: value for key, (value, _) in absent.items()}
    raw["rewards"], of_rewards = tunix_rewards.converted(path, settings.get("reward_functions"), raw["rewards"])
    raw["evaluation"]["every_n_steps"], raw["trackers"] = 0, ["tensorboard"]
    for key in values:
        notes[key] = of_rewards if key == "reward_functions" else _note(key, values, raw)
    notes |= _length(values, raw) | _unsaid(values)
    for key, (_, where) in absent.items():
        notes[key] += where
    raw |= {"name": _name(path), "description": f"the settings of tunix in {path.name}"}
    raw["expect"] = {"hardware": "", "time": "not measured", "metric": "accuracy_after"}
    return settled(raw), notes


def _name(path: Path) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", path.stem.lower()).strip("-.") or "tunix-grpo"


def _note(key: str, values: Settings, raw: Raw) -> str:
    """What became of `key`; its value is in `raw` then, where it has a counterpart."""
    value = values[key]
    role, _, rest = key.partition(".")
    if role in ROLES and rest:
        return tunix_model.note(key, rest, values, raw)
    if key in SAME:
        return assign(raw, SAME[key], value)
    if key in CHOICES:
        return chosen(key, value, *CHOICES[key], raw)
    if key in FIXED:
        return _fixed(key, value, *FIXED[key])
    if key in _PARTICULAR:
        return _PARTICULAR[key](key, values, raw)
    if key in DERIVED:
        return NOTHING + DERIVED[key]
    for section, why in DERIVED_BELOW.items():
        if f"{key}.".startswith(f"{section}."):
            return NOTHING + why
    return _section_or_unknown(key, value)


def _section_or_unknown(key: str, value: Any) -> str:
    known = [*SAME, *CHOICES, *FIXED, *_PARTICULAR, *DERIVED, *DERIVED_BELOW, *ROLES, "reward_functions"]
    if any(name.startswith(f"{key}.") for name in known) or key in ROLES:
        if value in (None, {}):
            return f"{NOTHING}it is empty"
        raise UserError(f"{key}={value!r:.40} is a section", f"write {key}:, and its keys indented below it")
    guess = nearest(key, known)
    fix = f"did you mean {guess}? Else take it out" if guess else "take it out; `podwright recipes show` lists ours"
    raise UserError(f"{key} is no key of tunix that is known here", fix)


def _fixed(key: str, value: Any, *wanted: Any) -> str:
    if value not in wanted or isinstance(value, bool) != isinstance(wanted[0], bool):
        shown = str(wanted[0]).lower() if wanted[0] != "" else "''"
        raise UserError(f"{key}={value!r:.40} is not implemented", f"set it to {shown}, or leave it out")
    return f"{NOTHING}it is so here"


def _batch(key: str, values: Settings, raw: Raw) -> str:
    prompts = count("batch_size", values["batch_size"])
    group = count("grpo_config.num_generations", values["grpo_config.num_generations"])
    raw["batch_size"], raw["grpo"]["num_generations"] = prompts, group
    name = {"batch_size": "batch_size", "grpo_config.num_generations": "grpo.num_generations"}[key]
    return f"{name} is {values[key]}: {prompts} prompts x {group} completions = {prompts * group} sequences a step, over all devices"


def _micro_batch(key: str, values: Settings, raw: Raw) -> str:
    """Prompts of a micro-batch there, parts of a batch here."""
    size, batch = count(key, values[key]), count("batch_size", values["batch_size"])
    if batch % size:
        raise UserError(f"{key}={size} must divide batch_size={batch}", "write a divisor")
    return assign(raw, "training.gradient_accumulation_steps", batch // size) + f": {batch} / {size} prompts"


def _mini_batch(key: str, values: Settings, raw: Raw) -> str:
    size, batch = count(key, values[key]), count("batch_size", values["batch_size"])
    if size == batch:
        return f"{NOTHING}an update takes the whole batch"
    return f"an update takes all {batch} prompts of a step, not {size}; for updates as large as there, type batch_size={size}"


def _accumulation(key: str, values: Settings, raw: Raw) -> str:
    parts = count(key, values[key])
    if f"{TRAINING}.train_micro_batch_size" in values and parts != 1:
        raise UserError(f"{key}={parts} and {TRAINING}.train_micro_batch_size are both set", "leave one of them out")
    if parts == 1:
        return f"{NOTHING}it is so here"
    note = assign(raw, "training.gradient_accumulation_steps", parts)
    return note + ": a batch is split into so many parts, and is not larger for it"


def _prompt_tokens(key: str, values: Settings, raw: Raw) -> str:
    return assign(raw, "rollout.max_prompt_length", values[key]) + " tokens; longer prompts are left out, not cut"


def _new_tokens(key: str, values: Settings, raw: Raw) -> str:
    return (
        assign(raw, "rollout.total_generation_steps", values[key]) + " new tokens at most, without those of the prompt"
    )


def _top_k(key: str, values: Settings, raw: Raw) -> str:
    off = values[key] in (None, -1) and not isinstance(values[key], bool)
    note = assign(raw, "rollout.top_k", 0 if off else values[key])
    return note + "; log-probabilities of the sampler are those of the filtered distribution, see grpo.importance_cap"


def _top_p(key: str, values: Settings, raw: Raw) -> str:
    return assign(raw, "rollout.top_p", 1.0 if values[key] is None else values[key])


def _peak(key: str, values: Settings, raw: Raw) -> str:
    note = assign(raw, "optimizer.learning_rate", values[key])
    return note + ": linear from 0 over the warm-up, then a cosine to 0 at the last step"


def _clipping(key: str, values: Settings, raw: Raw) -> str:
    if values[key] is None:
        return assign(raw, "optimizer.max_grad_norm", _NO_CLIPPING) + ", so that no gradient is clipped"
    return assign(raw, "optimizer.max_grad_norm", values[key])


def _warmup(key: str, values: Settings, raw: Raw) -> str:
    """Steps there, a share of all steps here; tunix reads the ratio only where it has no steps."""
    steps, ratio = values.get(f"{OPTIMIZER}.warmup_steps"), values.get(f"{OPTIMIZER}.warmup_ratio")
    total = values.get(f"{OPTIMIZER}.decay_steps") or values.get(f"{TRAINING}.max_steps")
    last = key.rpartition(".")[2]
    if last == "decay_steps":
        length = "the learning rate reaches 0 at the last step of the run"
        decay, most = count(key, values[key]), values.get(f"{TRAINING}.max_steps")
        if decay == most:
            return f"{NOTHING}{length}"
        return f"{length}; for {decay} steps type training.max_steps={decay} training.num_epochs=0"
    if steps is None:
        return assign(raw, "optimizer.warmup_ratio", number(key, ratio))
    if last == "warmup_ratio":
        return f"{NOTHING}tunix reads warmup_steps where both are set"
    number(key, steps)
    if total is None:
        return f"optimizer.warmup_ratio is {raw['optimizer']['warmup_ratio']}; for {steps} steps of N, type optimizer.warmup_ratio={steps}/N as a number"
    share = steps / count(f"{OPTIMIZER}.decay_steps", total)
    return assign(raw, "optimizer.warmup_ratio", share) + f": {steps} of {total} steps, as a share of all steps"


def _length(values: Settings, raw: Raw) -> dict[str, str]:
    """Notes of the keys that say how long to train: updates there, rollouts here."""
    steps, epochs = values.get(f"{TRAINING}.max_steps"), values.get("num_train_epochs", 1)
    batches, notes = values.get("num_batches"), {}
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
    updates, each = count(f"{TRAINING}.max_steps", steps), count("num_iterations", values["grpo_config.num_iterations"])
    ours = -(-updates // each)
    detail = f": {updates} updates, {each} on each batch of rollouts" if each > 1 else ""
    notes[f"{TRAINING}.max_steps"] = assign(raw, "training.max_steps", ours) + detail
    if "num_train_epochs" in values:
        notes["num_train_epochs"] = f"{NOTHING}training.max_steps says how long"
    if "num_batches" in values:
        notes["num_batches"] = f"{NOTHING}training.max_steps says how long"
    return notes


def _unsaid(values: Settings) -> dict[str, str]:
    """What no key of the file says, and is not as in tunix."""
    notes = {} if f"{OPTIMIZER}.peak_value" in values else {f"{OPTIMIZER}.peak_value": _NO_RATE}
    notes |= {
        "prompts": f"data.instruction and data.enable_thinking are those of {_BASE}, in the chat template of the checkpoint: no key of tunix "
        "says how a question is asked; type data.instruction='...' for another"
    }
    if "grpo_config.kl_loss_mode" not in values:
        notes["grpo_config.kl_loss_mode"] = (
            "grpo.kl is k3; the file does not say it, and tunix's default is kl, whose gradient is 0 on average: for that, type grpo.kl=k1"
        )
    return notes


def _length_key(key: str, values: Settings, raw: Raw) -> str:
    return f"{NOTHING}it is 0"  # _length replaces it where it has a value


def _dataset(key: str, values: Settings, raw: Raw) -> str:
    name = values[key]
    if name in _DATA_SETS and not values.get("data_directory"):
        return assign(raw, "data.source", _DATA_SETS[name])
    if values.get("data_source") == "huggingface" and isinstance(name, str):
        return assign(raw, "data.source", name) + "; its rows need question and answer, the answer with a line '#### n'"
    raise UserError(f"{key}={name!r:.40} is not read here", "write gsm8k, and type data.source=FILE.jsonl when it runs")


def _test_batches(key: str, values: Settings, raw: Raw) -> str:
    number = count(key, values[key]) * count("batch_size", values["batch_size"])
    return f"all test questions are asked; for {values[key]} batches of them type data.num_test={number}"


def _tokenizer(key: str, values: Settings, raw: Raw) -> str:
    sources = [values[f"{role}.model_id"] for role in ROLES if f"{role}.model_id" in values]
    if not sources or values[key] in sources:
        return f"{NOTHING}the tokenizer is that of the checkpoint"
    return f"the tokenizer is that of model.source={sources[0]}; for {values[key]} put its files into a directory with the weights and type model.source=DIRECTORY"


def _run_name(key: str, values: Settings, raw: Raw) -> str:
    return (
        f"type --name {shlex.quote(str(values[key]))}" if values[key] else f"{NOTHING}a run has the name of its recipe"
    )


def _folder(key: str, values: Settings, raw: Raw) -> str:
    place = shlex.quote(str(values[key]))
    return f"checkpoints are in the directory of the run; to have runs there, type --runs {place}"


def _profiler(key: str, values: Settings, raw: Raw) -> str:
    section = f"{TRAINING}.profiler_options"
    if key == section or values.get(key) is None:
        return f"{NOTHING}nothing is traced"
    if key == f"{section}.log_dir":
        return f"{NOTHING}traces are in the directory of the run"
    first = int(number(f"{section}.skip_first_n_steps", values.get(f"{section}.skip_first_n_steps", 1))) + 1
    steps = count(f"{section}.profiler_steps", values.get(f"{section}.profiler_steps", 9))
    return f"type --profile {first}-{first + steps - 1}"


def _importance(key: str, values: Settings, raw: Raw) -> str:
    mode, cap = values.get("grpo_config.sampler_is"), values.get("grpo_config.sampler_is_threshold", 2.0)
    if mode not in (None, "token"):
        raise UserError(f"grpo_config.sampler_is={mode!r:.40} has no counterpart", "write token or null")
    if "grpo_config.sampler_is" not in values:
        return f"{NOTHING}tunix reads it with sampler_is: token only; grpo.importance_cap is {raw['grpo']['importance_cap']}"
    return assign(raw, "grpo.importance_cap", None if mode is None else cap).replace("None", "null")


_PARTICULAR: dict[str, Callable[[str, Settings, Raw], str]] = {
    "batch_size": _batch,
    "grpo_config.num_generations": _batch,
    "grpo_config.sampler_is": _importance,
    "grpo_config.sampler_is_threshold": _importance,
    "rollout_config.max_prompt_length": _prompt_tokens,
    "rollout_config.total_generation_steps": _new_tokens,
    "rollout_config.top_k": _top_k,
    "rollout_config.top_p": _top_p,
    f"{OPTIMIZER}.peak_value": _peak,
    f"{OPTIMIZER}.warmup_steps": _warmup,
    f"{OPTIMIZER}.warmup_ratio": _warmup,
    f"{OPTIMIZER}.decay_steps": _warmup,
    f"{TRAINING}.max_steps": _length_key,
    "num_train_epochs": _length_key,
    "num_batches": _length_key,
    "num_test_batches": _test_batches,
    f"{TRAINING}.mini_batch_size": _mini_batch,
    f"{TRAINING}.train_micro_batch_size": _micro_batch,
    f"{TRAINING}.gradient_accumulation_steps": _accumulation,
    f"{TRAINING}.checkpoint_root_directory": _folder,
    f"{TRAINING}.metrics_logging_options.run_name": _run_name,
    f"{TRAINING}.profiler_options": _profiler,
    f"{TRAINING}.profiler_options.log_dir": _profiler,
    f"{TRAINING}.profiler_options.skip_first_n_steps": _profiler,
    f"{TRAINING}.profiler_options.profiler_steps": _profiler,
    f"{OPTIMIZER}.max_grad_norm": _clipping,
    "dataset_name": _dataset,
    "tokenizer_config.tokenizer_path": _tokenizer,
}

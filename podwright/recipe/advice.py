"""What to change in a recipe after a run of its kind has failed, with keys that the kind has. Plans, trainers and `diagnose` say the same."""

from __future__ import annotations

import json
import re
import string
from dataclasses import asdict, dataclass
from pathlib import Path

DEVICE_MEMORY_FULL = re.compile(
    r"[Rr]an out of memory (on|in memory space) (hbm|HBM)|CompileTimeHbmOom|Exceeded hbm capacity|HBM_OUT_OF_MEMORY"
    r"|Attempting to (reserve|allocate) \d|RESOURCE_EXHAUSTED: .*([Oo]ut of (device )?memory|[Ff]ailed to allocate|device buffer|HBM)"
)
"""What XLA says when a device's memory does not hold a program. RESOURCE_EXHAUSTED alone may be a quota, a rate or a full disk too."""


@dataclass(frozen=True)
class RecipeAdvice:
    device_memory: str
    """when a device's memory is full"""
    host_memory: str
    """when the memory of the machine is full"""
    not_finite: str = "a smaller optimizer.learning_rate"
    fewer_steps: str = "a smaller training.max_steps"
    resumes: str = "resumes from the last checkpoint"
    """what `podwright resume` does"""
    compiler: str = "install g++ there"
    """when torch.compile finds no compiler"""

    def filled(self, text: str) -> str:
        """`text` with the values of this advice in place of their names in braces."""
        names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        return text.format(**asdict(self)) if names else text


_PLANNED = "; podwright plan says what fits"
_JAX = "a larger training.gradient_accumulation_steps or mesh.fsdp, model.remat=layer, or a smaller"
ADVICE = {
    "grpo": RecipeAdvice(
        f"type {_JAX} rollout.total_generation_steps or batch_size{_PLANNED}", "type a smaller batch_size"
    ),
    "pretrain": RecipeAdvice(f"type {_JAX} sequence_length or batch_size{_PLANNED}", "type a smaller batch_size"),
    "multimodal": RecipeAdvice(
        "type a smaller per_device_batch_size with a larger training.gradient_accumulation_steps, or "
        f"model.gradient_checkpointing=true{_PLANNED}",
        "type a smaller data.num_workers or per_device_batch_size",
        "a smaller optimizer.learning_rate, or model.mixed_precision=bf16 in place of fp16",
        compiler="install g++ there, or type training.compile=false",
    ),
    "contrastive": RecipeAdvice(
        "type a smaller per_device_batch_size, or take GPUs with more memory",
        "type a smaller data.num_workers or per_device_batch_size",
    ),
    "maxtext": RecipeAdvice(
        f"type a smaller arguments.per_device_batch_size, or arguments.remat_policy=full{_PLANNED}",
        "take machines with more memory, or a slice with more hosts",
        "a smaller arguments.learning_rate",
        "a smaller arguments.steps",
        "starts it again: from its last checkpoint, or from step 0 with arguments.enable_checkpointing=false",
    ),
}
"""by kind of recipe"""
GENERAL = RecipeAdvice(
    f"type a smaller batch_size (of some kinds: per_device_batch_size){_PLANNED}",
    "type a smaller batch_size (of some kinds: per_device_batch_size)",
)
"""where the kind is not known, as of a log that is no run's"""


def of_kind(kind: str) -> RecipeAdvice:
    return ADVICE.get(kind, GENERAL)


def of_run(recipe: Path) -> RecipeAdvice:
    """By a run's recipe.json; GENERAL where that cannot be read."""
    return of_kind(kind_of(recipe))


def kind_of(recipe: Path) -> str:
    """The kind that a run's recipe.json names; "" where that cannot be read."""
    try:
        return str(json.loads(recipe.read_text())["kind"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""

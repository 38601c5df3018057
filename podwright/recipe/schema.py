"""The typed recipe: every key, its default, its bounds and its meaning.

A recipe says what to train, never where: hardware is an argument of a run.
Loading files and overrides is `load.py`; nothing here does I/O.
"""

from __future__ import annotations

import functools
import math
import os
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from podwright.errors import counted
from podwright.recipe.paths import check_options

LIMIT = 2**31
"""of whole numbers: sizes, steps and seeds are of 32 bits in jax"""
_SMALLEST, _LARGEST = 1.2e-38, 3.4e38  # of floats, in the 32 bits that trainers compute with
_LEAST_TEMPERATURE = 1e-3  # sampling is greedy before; at 1e-36 the tempered logits are infinite in 32 bits
PositiveInt = Annotated[int, Field(gt=0, lt=LIMIT)]
MOST_ROWS = 1 << 20
"""of a batch, so that settings which divide it can be searched"""
BatchSize = Annotated[int, Field(gt=0, le=MOST_ROWS)]
Count = Annotated[int, Field(ge=0, lt=LIMIT)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
MaxGradNorm = Annotated[float, Field(gt=0, description="gradients are clipped to this global norm")]
RecipeName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
Description = Annotated[str, Field(description="one sentence for `podwright recipes list`")]
Trackers = Annotated[
    tuple[Literal["tensorboard", "mlflow", "wandb"], ...], Field(description="mirrors of metrics.jsonl")
]


def with_known_home(path: str) -> str:
    """`path`; ValueError where it begins with a user that has no home here, so that no ~ in it can be replaced."""
    if path.startswith("~") and os.path.expanduser(path).startswith("~"):
        raise ValueError(f"must not begin with {path.partition('/')[0]}, which is no user of this machine")
    return path


def recipe_name(text: str) -> str:
    """A text as the name of a recipe; "" where nothing of it may stand in one."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


PathText = Annotated[str, AfterValidator(with_known_home)]
Source = Annotated[str, Field(min_length=1), AfterValidator(with_known_home)]


class RefusedValue(ValueError):
    """Of a validator: `what` is wrong with which values, and the `fix` to type. pydantic hands it on in its own error."""

    def __init__(self, what: str, fix: str):
        super().__init__(what)
        self.fix = fix


@functools.cache
def divisors(number: int) -> tuple[int, ...]:
    """Of a number of at least 1, the smallest first."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}))


def require_divisor(batch_size: int, parts: int) -> None:
    """RefusedValue for micro-batches that a batch cannot be split into."""
    if batch_size % parts:
        divisor = max(n for n in divisors(batch_size) if n < parts)
        raise RefusedValue(
            f"training.gradient_accumulation_steps={parts} must divide batch_size={batch_size}",
            f"type training.gradient_accumulation_steps={divisor}",
        )


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False, defer_build=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_number_is_true(cls, value: object, info: ValidationInfo) -> object:
        """pydantic reads `true` as 1."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and annotation in (int, float):
            raise ValueError("must be a number")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _is_a_float_of_32_bits(cls, value: object) -> object:
        """Beyond them a float is infinite where it is used, or 0, by which a temperature divides."""
        if isinstance(value, float) and value and not _SMALLEST <= abs(value) <= _LARGEST:
            raise ValueError(f"must be 0, or from {_SMALLEST:g} to {_LARGEST:g} in size, as floats of 32 bits are")
        return value


class Expect(Section):
    """What the author of the recipe measured, so that a user can tell a good run from a bad one."""

    hardware: str = Field(description="the machine the figures below are for")
    time: str = Field(description="how long the whole run takes there")
    metric: str = Field(description="the figure of result.json that measures success")
    value: float | None = Field(None, description="its expected value; null: not measured yet")
    tolerance: float = Field(0.0, ge=0, description="how far from `value` is still normal")
    evidence: str = Field("", description="where the figure comes from")


class GrpoModel(Section):
    name: str = Field(
        description="dimensions of random weights: a row of podwright.recipe.models; of a checkpoint any name (its config.json decides)"
    )
    source: Source = Field(description="weights: 'random', a Hugging Face directory, or a hub id")
    compute_dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16",
        description="dtype of activations, of the rollout's weights and of frozen ones; weights that are trained are float32",
    )
    remat: Literal["none", "layer"] = Field(
        "layer", description="'layer' recomputes each layer in the backward pass instead of keeping its activations"
    )
    lora_rank: Count = Field(
        0, description="train adapters of this rank and freeze the weights (LoRA); 0: train all parameters"
    )
    lora_alpha: Positive = Field(32.0, description="LoRA only: what adapters add is scaled by lora_alpha / lora_rank")


class GrpoColumns(Section):
    """Which columns of a table hold questions and answers, where its layout is none that is read by itself."""

    question: str = Field(
        min_length=1, description="column of the question: a text, or turns of a chat without the answer"
    )
    answer: str = Field(min_length=1, description="column of the answer: '#### n' in a text, or a number alone")


class GrpoData(Section):
    source: Source = Field(description="'arithmetic' (generated), a file of rows, a directory, or a hub id")
    num_train: Count = Field(0, description="use the first N training examples (0: all; arithmetic: how many to make)")
    num_test: Count = Field(0, description="use the first N test examples (0: all; arithmetic: how many to make)")
    max_operations: PositiveInt = Field(
        2, le=50, description="arithmetic only: the largest number of steps in a problem, at most 50"
    )
    columns: GrpoColumns | None = Field(
        None, description="columns of the source, as {question: COLUMN, answer: COLUMN}; null: by its layout"
    )
    instruction: str = Field("", description="text added after each question, as the peers' prompts have it")
    enable_thinking: bool | None = Field(
        False, description="the chat template with thinking on or off; null: as the template has it"
    )

    @property
    def check_options(self) -> str:
        return check_options("", columns=dict(self.columns or ()))


class GrpoMesh(Section):
    data: PositiveInt = Field(1, description="replicas of the whole model")
    fsdp: int = Field(-1, description="devices that weights and batch are sharded over; -1 takes all that remain")
    tensor: PositiveInt = Field(1, description="devices that heads, FFN width and vocabulary are sharded over")


class Grpo(Section):
    num_generations: BatchSize = Field(8, description="completions sampled per prompt: the size of a group")
    num_iterations: PositiveInt = Field(1, description="optimizer steps taken on each batch of rollouts")
    loss: Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo"] = Field("grpo", description="the policy loss")
    epsilon: Positive = Field(0.2, description="lower (and by default upper) clip of the ratio")
    epsilon_high: float | None = Field(None, gt=0, description="upper clip of the ratio; null for the same as epsilon")
    beta: NotNegative = Field(0.08, description="weight of the KL to the frozen reference; 0: no reference")
    offload_reference: bool = Field(
        False, description="keep the reference in the hosts' memory while nothing is scored: a step waits for its copy"
    )
    kl: Literal["k1", "k2", "k3"] = Field(
        "k3",
        description="estimator of that KL, whose gradient is of KL(policy || reference) with k2, of the reverse with k3, 0 with k1",
    )
    dynamic_sampling: Count = Field(
        0, description="extra rollouts allowed per step to replace groups whose rewards are all equal (DAPO); 0: off"
    )
    mask_truncated: bool = Field(False, description="leave completions that ran out of tokens out of the loss")
    overlong_buffer: Count = Field(
        0, description="tokens before the limit over which a length penalty grows from 0 to 1 (DAPO); 0: off"
    )
    importance_cap: float | None = Field(
        2.0, gt=0, description="truncation of learner/sampler probability ratios; null: no correction"
    )

    @property
    def num_scores(self) -> int:
        """How often a step scores its completions: under the frozen reference, and before the first of several updates."""
        return (self.beta > 0) + (self.num_iterations > 1)


class Rollout(Section):
    max_prompt_length: PositiveInt = Field(
        256, description="longest prompt in tokens; longer ones are left out and counted"
    )
    total_generation_steps: PositiveInt = Field(2048, description="most new tokens per completion")
    temperature: Annotated[float, Field(ge=_LEAST_TEMPERATURE)] = Field(
        1.0, description="divides the logits before sampling"
    )
    top_k: Count = Field(0, description="sample among the k likeliest tokens; 0: all")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="sample among the likeliest tokens of this total mass"
    )
    min_p: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="drop tokens below this share of the likeliest one"
    )


class Reward(Section):
    function: PathText = Field(description="'package.module:function' or 'file.py:function'")
    weight: float = Field(1.0, description="factor of this reward in the sum")


class GrpoOptimizer(Section):
    learning_rate: Positive = Field(3e-6, description="peak learning rate of AdamW; decays to 0 by a cosine")
    warmup_ratio: Fraction = Field(0.1, description="share of the steps spent warming up linearly from 0")
    b1: Decay = Field(0.9, description="AdamW's first decay rate")
    b2: Decay = Field(0.99, description="AdamW's second decay rate")
    weight_decay: NotNegative = Field(0.1, description="AdamW's weight decay (not on norms)")
    max_grad_norm: MaxGradNorm = 0.1


class GrpoTraining(Section):
    max_steps: Count = Field(0, description="GRPO steps; 0: as num_epochs says")
    num_epochs: Count = Field(
        0, description="how often every training example is used, in place of max_steps; 0: as max_steps says"
    )
    gradient_accumulation_steps: PositiveInt = Field(1, description="micro-batches the update is split into")


class WarmStart(Section):
    """Supervised steps on worked answers before GRPO, for a model that starts from random weights."""

    max_steps: PositiveInt = Field(description="supervised steps")
    batch_size: BatchSize = Field(description="worked answers per supervised step")
    learning_rate: Positive = Field(description="peak learning rate of the supervised steps")
    terse_share: Fraction = Field(
        0.0, description="share of the answers that are bare results in the last third of these steps"
    )


class GrpoEvaluation(Section):
    every_n_steps: Count = Field(0, description="greedy test every N steps besides before and after; 0: only those two")
    batch_size: BatchSize = Field(256, description="prompts decoded at a time")


class Checkpoint(Section):
    every_n_steps: PositiveInt = Field(50, description="save a checkpoint every N steps")


class GrpoRecipe(Section):
    kind: Literal["grpo"] = Field(description="which trainer runs this recipe")
    name: RecipeName = Field(description="model-task-method")
    description: Description
    expect: Expect
    model: GrpoModel
    data: GrpoData
    batch_size: BatchSize = Field(description="prompts per step, over all devices")
    mesh: GrpoMesh = GrpoMesh()
    grpo: Grpo = Grpo()
    rollout: Rollout = Rollout()
    rewards: tuple[Reward, ...] = Field(min_length=1, description="rewards that are added up")
    rewards_timeout: Positive = Field(
        60.0, description="seconds that a call of a reward may take; then the run ends and names the completion"
    )
    optimizer: GrpoOptimizer = GrpoOptimizer()
    training: GrpoTraining
    warm_start: WarmStart | None = Field(None, description="supervised start for random weights; null: none")
    evaluation: GrpoEvaluation = GrpoEvaluation()
    checkpoint: Checkpoint = Checkpoint()
    trackers: Trackers = ()
    seed: Count = Field(0, description="seed of weights, data order and sampling")

    def in_steps(self, num_examples: int) -> GrpoRecipe:
        """With `training.max_steps` in the place of `training.num_epochs`, for so many training examples.

        The examples that remain after the last whole batch are not used. There is at least one step, and fewer than 2^31.
        """
        if self.training.max_steps:
            return self
        steps = min(LIMIT - 1, max(1, self.training.num_epochs * num_examples // self.batch_size))
        training = self.training.model_copy(update={"max_steps": steps, "num_epochs": 0})
        return self.model_copy(update={"training": training})

    @model_validator(mode="after")
    def _has_a_length(self) -> GrpoRecipe:
        steps, epochs = self.training.max_steps, self.training.num_epochs
        if steps and epochs:
            raise RefusedValue(
                f"training.max_steps={steps} and training.num_epochs={epochs} are both set",
                f"type training.max_steps=0 to train {counted(epochs, 'epoch')}, or training.num_epochs=0 to train {counted(steps, 'step')}",
            )
        if not steps and not epochs:
            raise RefusedValue(
                "neither training.max_steps nor training.num_epochs is set",
                "type training.max_steps=N, or training.num_epochs=1 with training.max_steps=0",
            )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> GrpoRecipe:
        if self.grpo.num_generations < 2:
            raise RefusedValue(
                f"grpo.num_generations={self.grpo.num_generations} must be at least 2: an advantage compares completions of one group",
                "type grpo.num_generations=2 or more",
            )
        require_divisor(self.batch_size, self.training.gradient_accumulation_steps)
        if not any(reward.weight for reward in self.rewards):
            raise RefusedValue(
                "all rewards have weight 0: no completion is better than another, and nothing is learned",
                f"type rewards=[{{function: {self.rewards[0].function}, weight: 1}}], or another weight in the recipe",
            )
        steps = self.rollout.total_generation_steps
        if self.grpo.overlong_buffer >= steps:
            raise RefusedValue(
                f"grpo.overlong_buffer={self.grpo.overlong_buffer} must be smaller than rollout.total_generation_steps={steps}",
                f"type grpo.overlong_buffer={steps - 1} or less",
            )
        return self

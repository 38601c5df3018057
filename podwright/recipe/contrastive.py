"""The typed recipe of Phase 1: heads that bring features of text, pictures and sounds into one space, by contrast alone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from podwright.recipe.multimodal import (
    Column,
    Encoders,
    LineSource,
    MultimodalCheckpoint,
    NumTest,
    NumTrain,
    Root,
    Workers,
    require_drawn,
)
from podwright.recipe.paths import check_options
from podwright.recipe.schema import (
    BatchSize,
    Count,
    Description,
    Expect,
    MaxGradNorm,
    NotNegative,
    Positive,
    PositiveInt,
    RecipeName,
    Section,
    Source,
    Trackers,
)


class TextEncoder(Section):
    """Frozen like those of pictures and sounds."""

    name: Literal["tiny", "minilm"] = Field(
        "minilm", description="'tiny', or MiniLM-L6-H384 with random weights; of a directory its config.json decides"
    )
    source: Source = Field(
        "random", description="weights: 'random', or a Hugging Face directory of a text encoder and its tokenizer"
    )
    pooling: Literal["mean", "cls"] = Field(
        "mean", description="of the last layer: the mean over all tokens, or the first token"
    )
    max_tokens: PositiveInt = Field(64, description="a text is cut to this many tokens")


class Heads(Section):
    source: Source = Field("random", description="'random', or an aligner.pt to start from")
    dim: PositiveInt = Field(512, description="size of the space that all modalities share")
    learnable_scales: bool = Field(
        True, description="train the factors of the similarities, one for each modality, or keep them"
    )


PairColumns = dict[Literal["text", "image", "audio", "video"], Column]


class Pairs(Section):
    source: LineSource
    columns: PairColumns = Field(
        {}, description="columns of the source, as {text: COLUMN, image: COLUMN}; else by its layout"
    )
    num_train: NumTrain = 0
    num_test: NumTest = 0
    num_workers: Workers = 0
    root: Root = ""

    @property
    def check_options(self) -> str:
        return check_options(self.root, columns=self.columns)


class ContrastiveOptimizer(Section):
    learning_rate: Positive = Field(1e-3, description="AdamW's peak learning rate; decays to 0 by a cosine")
    warmup_steps: Count = Field(1000, description="steps spent warming up linearly from 0; at most a tenth of all")
    weight_decay: NotNegative = Field(0.01, description="AdamW's weight decay (not on vectors)")
    max_grad_norm: MaxGradNorm = 1.0


class ContrastiveTraining(Section):
    num_epochs: PositiveInt = Field(1, description="epochs, where max_steps does not say")
    max_steps: Count = Field(0, description="optimizer steps; 0: as num_epochs says")


class ContrastiveEvaluation(Section):
    every_n_steps: Count = Field(
        0, description="retrieval among held-out lines every N steps besides before and after; 0: only those two"
    )


class ContrastiveRecipe(Section):
    kind: Literal["contrastive"] = Field(description="which trainer runs this recipe")
    name: RecipeName = Field(description="task-model-hardware")
    description: Description
    expect: Expect
    encoders: Encoders = Encoders()
    text_encoder: TextEncoder = TextEncoder()
    aligner: Heads = Heads()
    data: Annotated[Pairs, AfterValidator(require_drawn)]
    per_device_batch_size: BatchSize = Field(
        description="lines that a device holds; each is scored against those of all devices, so there is no gradient accumulation"
    )
    optimizer: ContrastiveOptimizer = ContrastiveOptimizer()
    training: ContrastiveTraining = ContrastiveTraining()
    evaluation: ContrastiveEvaluation = ContrastiveEvaluation()
    checkpoint: MultimodalCheckpoint = MultimodalCheckpoint()
    trackers: Trackers = ()
    seed: Count = Field(0, description="seed of weights and data order")

"""The typed recipe of pretraining: next-token prediction on a stream of tokens, from random weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from podwright.recipe.hybrid import BLOCK
from podwright.recipe.paths import check_options
from podwright.recipe.schema import (
    BatchSize,
    Checkpoint,
    Count,
    Decay,
    Description,
    Expect,
    Fraction,
    MaxGradNorm,
    NotNegative,
    PathText,
    Positive,
    PositiveInt,
    RecipeName,
    Section,
    Source,
    Trackers,
    require_divisor,
)


class PretrainModel(Section):
    name: str = Field(
        description="dimensions: a row of podwright.recipe.hybrid, or a dense Qwen3 of podwright.recipe.models"
    )
    compute_dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16", description="dtype of matrix products; weights are float32"
    )
    remat: Literal["none", "layer", "attention", "products"] = Field(
        "layer",
        description="what the backward pass computes again: nothing, layers, all but attention's output, or all but that and products",
    )
    gate: Literal["", "softplus", "bounded"] = Field(
        "", description="KDA's decay: of Kimi-Linear (low rank) or of Ling 3.0 (full rank); empty for the model's own"
    )
    kda: Literal["chunked", "tokamax"] = Field(
        "chunked",
        description="what runs KDA: plain JAX, or the Pallas kernel of the library tokamax (TPUs from v6e on, bounded decays)",
    )

    @property
    def document_multiple(self) -> int:
        """Documents begin at multiples of so many tokens."""
        return BLOCK if self.kda == "tokamax" else 1


class TextColumns(Section):
    """Which column of a table holds the text, where its layout is none that is read by itself."""

    text: str = Field(min_length=1, description="column of the text")


class PretrainData(Section):
    source: Source = Field(
        description="'arithmetic' (generated), a directory of token shards (`podwright data tokenize`), or a file of texts"
    )
    tokenizer: PathText = Field(
        "", description="of text: 'bytes' or a Hugging Face tokenizer; token shards bring their own"
    )
    columns: TextColumns | None = Field(
        None, description="column of the texts in a file of rows, as {text: COLUMN}; null: by its layout"
    )
    eos_id: Count | None = Field(
        None,
        description="token that ends a document, for files that do not say it; without it they are cut every 65,536 tokens",
    )
    num_documents: Count = Field(0, description="arithmetic only: how many documents to make")
    num_epochs: Count = Field(
        1, description="how often the data may be seen before it counts as used up; 0: without end"
    )

    @property
    def check_options(self) -> str:
        return check_options("", columns=dict(self.columns or ()))


class PretrainMesh(Section):
    data: PositiveInt = Field(1, description="replicas of the whole model; over slices of a multi-slice first")
    fsdp: int = Field(-1, description="devices that weights and batch are sharded over; -1 takes all that remain")
    context: PositiveInt = Field(
        1, description="devices that a sequence is split over; they share weights as fsdp's do"
    )
    expert: PositiveInt = Field(1, description="devices that experts are split over and tokens are sent between")
    tensor: PositiveInt = Field(1, description="devices that heads, FFN widths and vocabulary are sharded over")


class PretrainOptimizer(Section):
    name: Literal["muon", "adamw"] = Field(
        "muon", description="for hidden matrices; embeddings, norms and gates get AdamW with either"
    )
    learning_rate: Positive = Field(5e-4, description="peak learning rate")
    warmup_ratio: Fraction = Field(0.1, description="share of the steps spent warming up linearly from 0")
    final_ratio: Fraction = Field(0.1, description="learning rate at the end of the cosine, as a share of the peak")
    momentum: Decay = Field(0.95, description="Muon's")
    muon_weight_decay: NotNegative = Field(0.1, description="Muon's weight decay")
    b1: Decay = Field(0.9, description="AdamW's first decay rate")
    b2: Decay = Field(0.95, description="AdamW's second decay rate")
    weight_decay: NotNegative = Field(0.1, description="AdamW's weight decay (not on norms and gates)")
    max_grad_norm: MaxGradNorm = 1.0


class PretrainTraining(Section):
    max_steps: PositiveInt = Field(description="optimizer steps")
    gradient_accumulation_steps: PositiveInt = Field(1, description="micro-batches a step is split into")


class PretrainEvaluation(Section):
    every_n_steps: Count = Field(
        0, description="loss on held-out documents every N steps besides before and after; 0: only those two"
    )
    num_batches: PositiveInt = Field(8, description="batches of it, of documents that are never trained on")


class PretrainRecipe(Section):
    kind: Literal["pretrain"] = Field(description="which trainer runs this recipe")
    name: RecipeName = Field(description="model-task-hardware")
    description: Description
    expect: Expect
    model: PretrainModel
    data: PretrainData
    batch_size: BatchSize = Field(description="sequences per step, over all devices")
    sequence_length: PositiveInt = Field(description="tokens of a sequence; documents are packed into it")
    mesh: PretrainMesh = PretrainMesh()
    optimizer: PretrainOptimizer = PretrainOptimizer()
    training: PretrainTraining
    evaluation: PretrainEvaluation = PretrainEvaluation()
    checkpoint: Checkpoint = Checkpoint()
    trackers: Trackers = ()
    seed: Count = Field(0, description="seed of weights and data order")

    @model_validator(mode="after")
    def _fits_together(self) -> PretrainRecipe:
        require_divisor(self.batch_size, self.training.gradient_accumulation_steps)
        return self

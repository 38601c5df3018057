"""The typed recipe of multimodal training: aligned features of pictures and sounds as soft tokens before a language model's prompt."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from podwright.errors import UserError
from podwright.recipe import answers
from podwright.recipe.answers import AnswerSchema
from podwright.recipe.paths import check_options
from podwright.recipe.schema import (
    BatchSize,
    Count,
    Decay,
    Description,
    Expect,
    MaxGradNorm,
    NotNegative,
    PathText,
    Positive,
    PositiveInt,
    RecipeName,
    RefusedValue,
    Section,
    Source,
    Trackers,
    with_known_home,
)

Root = Annotated[PathText, Field(description="folder that paths in lines are relative to; empty: that of their file")]
LineSource = Annotated[
    Source,
    Field(description="'drawn' (generated), a directory with train.jsonl and perhaps val.jsonl, or a file of lines"),
]
NumTrain = Annotated[Count, Field(description="use the first N training lines (0: all; drawn: how many to make)")]
NumTest = Annotated[
    Count,
    Field(
        description="held-out lines, the last ones where there is no val.jsonl (0: all of it, or a tenth; drawn: how many)"
    ),
]
MOST_DRAWN = 1_000_000
"""lines that are generated, of each part: about 3 GB of pictures and sounds"""
MOST_WORKERS = 256
Column = Annotated[str, Field(min_length=1)]
LineColumns = dict[Literal["instruction", "response", "image", "audio", "video"], Column]
Workers = Annotated[
    Count,
    Field(le=MOST_WORKERS, description="threads that decode files; 0: one for each core of the process, at most 16"),
]
Module = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class MultimodalModel(Section):
    name: str = Field(
        description="dimensions of random weights: a row of podwright.recipe.llm; of a checkpoint its config.json decides"
    )
    source: Source = Field(description="weights: 'random', a Hugging Face directory, or a hub id")
    lora_rank: Count = Field(
        16, description="train adapters of this rank and freeze the weights (LoRA); 0: train all parameters"
    )
    lora_alpha: Positive = Field(32.0, description="what adapters add is scaled by lora_alpha / lora_rank")
    lora_dropout: Decay = Field(0.1, description="share of an adapter's inputs that are left out in training")
    lora_target_modules: tuple[Module, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj"), min_length=1, description="the products that get adapters"
    )
    gradient_checkpointing: bool = Field(
        False, description="compute layers again in the backward pass instead of keeping what they gave"
    )
    mixed_precision: Literal["no", "bf16", "fp16"] = Field(
        "bf16",
        description="dtype of matrix products and frozen weights; fp16 scales the loss; trained weights are float32",
    )

    @field_validator("mixed_precision", mode="before")
    @classmethod
    def _written_plainly(cls, value: object) -> object:
        return "no" if value is False else value  # which YAML makes of a no without quotes


class Encoders(Section):
    """What turns a file into features, before the aligner. Never trained, so each file is looked at once and remembered."""

    image: str = Field("mobilenetv4_conv_small", description="'tiny', or a model of timm")
    image_weights: PathText = Field("random", description="'random', 'pretrained' (timm fetches them), or a file")
    image_size: PositiveInt = Field(
        224, le=4096, description="pixels of each side of the square that a picture becomes"
    )
    image_preprocessing: Literal["stretch", "purrsight"] = Field(
        "stretch",
        description="'stretch': the picture scaled to the square; 'purrsight': its shorter side to 8/7 of that, and the middle cut out",
    )
    audio: Literal["tiny", "cnn14"] = Field("cnn14", description="'tiny', or PANNs' CNN14 on log-mel")
    audio_weights: PathText = Field("random", description="'random', or a file such as Cnn14_16k_mAP=0.438.pth")
    audio_seconds: Positive = Field(10.24, description="a sound is cut or padded to this length")
    audio_preprocessing: Literal["start", "purrsight"] = Field(
        "start",
        description="'start': power of the first audio_seconds; 'purrsight': magnitudes of the middle, silence at both ends cut off",
    )
    audio_pooling: Literal["panns", "purrsight"] = Field(
        "panns", description="end of CNN14: maximum plus mean and a ReLU, as published, or the mean alone (PurrSight)"
    )


class AlignerSection(Section):
    source: Source = Field(description="'random', or the aligner.pt of Phase 1")
    dim: PositiveInt = Field(512, description="size of the space that all modalities share")
    features: Literal["unit", "scaled"] = Field(
        "unit",
        description="what the projector gets: vectors of length 1, or of length exp(logit_scale), as in runs that lack this key",
    )


class ProjectorSection(Section):
    hidden_size: PositiveInt = Field(2048, description="width of the projector's hidden layer")
    num_soft_tokens: PositiveInt = Field(4, description="soft tokens of a modality")


class MultimodalData(Section):
    source: LineSource
    columns: LineColumns = Field(
        {},
        description="columns of the source, as {instruction: COLUMN, response: COLUMN, image: COLUMN}; else by its layout",
    )
    num_train: NumTrain = 0
    num_test: NumTest = 0
    system_prompt: str = Field("", description="what stands before every instruction")
    max_text_length: PositiveInt = Field(
        512, description="tokens of prompt and response; a line that needs more is refused, never cut"
    )
    num_workers: Workers = 0
    root: Root = ""
    answers: str | dict[str, Any] = Field(
        answers.DEFAULT,
        description="schema of answers: 'ethogram', or a YAML file, whose content is kept with the run",
    )

    @field_validator("answers")
    @classmethod
    def _known_schema(cls, value: str | dict[str, Any]) -> str | dict[str, Any]:
        try:
            answers.of(with_known_home(value) if isinstance(value, str) else value)
        except UserError as e:
            raise RefusedValue(e.what, e.fix) from e
        return value

    @property
    def schema_of_answers(self) -> AnswerSchema:
        return answers.of(self.answers)

    @property
    def check_options(self) -> str:
        return check_options(self.root, self.schema_of_answers.file, self.columns)


class MultimodalOptimizer(Section):
    learning_rate: Positive = Field(
        2e-4, description="AdamW's peak learning rate, before the factors below; decays to 0 by a cosine"
    )
    projector_factor: Positive = Field(5.0, description="learning rate of the projector, as a multiple")
    lora_factor: Positive = Field(0.5, description="learning rate of adapters, as a multiple")
    scale_with_devices: bool = Field(
        True, description="multiply the learning rate by the number of devices, as the batch is"
    )
    warmup_steps: Count = Field(500, description="steps spent warming up linearly from 0; at most a tenth of all")
    weight_decay: NotNegative = Field(0.01, description="AdamW's weight decay (not on vectors)")
    max_grad_norm: MaxGradNorm = 1.0


class MultimodalTraining(Section):
    num_epochs: PositiveInt = Field(1, description="epochs, where max_steps does not say")
    max_steps: Count = Field(0, description="optimizer steps; 0: as num_epochs says")
    gradient_accumulation_steps: PositiveInt = Field(
        1, description="batches of per_device_batch_size that a step adds up"
    )
    fsdp: bool = Field(
        False, description="every device keeps a part of weights and optimizer state (FSDP2), not a copy (DDP)"
    )
    compile: bool = Field(
        False,
        description="torch.compile of the language model's layers; takes a C++ compiler and some minutes to begin",
    )


class MultimodalEvaluation(Section):
    every_n_steps: Count = Field(
        0, description="answers to held-out lines every N steps besides before and after; 0: only those two"
    )
    batch_size: BatchSize = Field(64, description="lines answered at a time")
    max_new_tokens: PositiveInt = Field(96, description="most tokens of each free text in an answer")


class MultimodalCheckpoint(Section):
    every_n_steps: Count = Field(0, description="save a checkpoint every N steps; 0: at the end of every epoch")


def completed(raw: dict[str, Any]) -> dict[str, Any]:
    """A stored recipe with the value that a key had before it existed: features were scaled before aligner.features."""
    section = raw.get("aligner")
    if raw.get("kind") != "multimodal" or not isinstance(section, dict) or "features" in section:
        return raw
    return raw | {"aligner": section | {"features": "scaled"}}


def require_drawn(data: Any) -> Any:
    """The section `data` of Phase 1 or Phase 2; RefusedValue where its source is `drawn` and its lines cannot be generated."""
    if data.source != "drawn":
        return data
    counts = {"num_train": data.num_train, "num_test": data.num_test}
    if not all(counts.values()):
        fixes = {"data.num_train=2000": data.num_train, "data.num_test=64": data.num_test}
        raise RefusedValue(
            f"data.source=drawn makes at least 1 line of each part, and has data.num_train={data.num_train} and data.num_test={data.num_test}",
            "type " + " ".join(fix for fix, number in fixes.items() if not number),
        )
    for key, number in counts.items():
        if number > MOST_DRAWN:
            what = f"data.{key}={number} is more than {MOST_DRAWN:,}, which data.source=drawn makes at most: each line writes its files"
            raise RefusedValue(what, f"type data.{key}={MOST_DRAWN}")
    if data.root:
        what = f"data.root={data.root} is for lines in files, and data.source=drawn has none"
        raise RefusedValue(what, "type data.root=")
    return data


class MultimodalRecipe(Section):
    kind: Literal["multimodal"] = Field(description="which trainer runs this recipe")
    name: RecipeName = Field(description="task-model-hardware")
    description: Description
    expect: Expect
    model: MultimodalModel
    encoders: Encoders = Encoders()
    aligner: AlignerSection
    projector: ProjectorSection = ProjectorSection()
    data: Annotated[MultimodalData, AfterValidator(require_drawn)]
    per_device_batch_size: BatchSize = Field(description="lines that a device holds at a time")
    optimizer: MultimodalOptimizer = MultimodalOptimizer()
    training: MultimodalTraining = MultimodalTraining()
    evaluation: MultimodalEvaluation = MultimodalEvaluation()
    checkpoint: MultimodalCheckpoint = MultimodalCheckpoint()
    trackers: Trackers = ()
    seed: Count = Field(0, description="seed of weights, data order and dropout")

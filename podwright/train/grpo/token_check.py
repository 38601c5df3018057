"""What a plan says of weights, tokenizer, chat template and lengths of GRPO, by the code of training on a sample of the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from podwright.data.gsm8k import SampledData, SampledPart
from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, expanded
from podwright.recipe import hf_config, hf_weights, models, positions
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Record
from podwright.train.answers import record, without_weights
from podwright.train.grpo import prompts
from podwright.train.grpo.token_limits import PromptTokens, TokenLimits

_SPREAD = 8_000  # examples of all lengths that are tokenized
_END = 500  # and of the shortest and of the longest, besides
_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_STAND_INS = [Example(f"{n}+1?", str(n + 1), f"#### {n + 1}") for n in range(2)]


def findings(recipe: GrpoRecipe, sample: SampledData | None) -> list[Record]:
    """Each {check, level, code, message, fix}. `sample`: None for a data set on the hub that cannot be had."""
    check, source = "model", recipe.model.source
    records: list[Record] = []
    try:
        directory = _directory(recipe)
        dims = hf_config.qwen3(hf_config.read(directory)) if directory else models.find(recipe.model.name)
        if directory and expanded(source).exists():
            records = without_weights(source, hf_weights.qwen3(dims))
        if records and not (expanded(source) / "tokenizer.json").is_file():
            return records  # a directory that is no checkpoint yet
        tokenizer = (
            prompts.load_tokenizer(directory, dims.vocab_size)
            if directory
            else prompts.learned_tokenizer(sample.train.examples if sample else (), dims.vocab_size)
        )
        if sample is None:
            prompts.tokenized(_STAND_INS, tokenizer, recipe.data, dims.max_positions)
            return [*records, _uncounted(recipe, f"data.source={recipe.data.source} is on the Hugging Face hub")]
        limits = _limits(recipe, dims, tokenizer, (sample.train, sample.test))
        check = "context"
        if refused := positions.exceeded(recipe.rollout, dims.max_positions):
            raise UserError(refused.what, limits.remedy())
        limits.require()
    except UserError as e:
        return [*records, record(check, "error", e.what, e.fix, e.code)]
    return [*records, *_counted(recipe, limits)]


def _directory(recipe: GrpoRecipe) -> Path | None:
    """Of the model's tokenizer and configuration, fetched from the hub for an id; None for random weights."""
    source = recipe.model.source
    if source == "random":
        return None
    if (path := expanded(source)).exists():
        return path
    import huggingface_hub

    return Path(huggingface_hub.snapshot_download(source, allow_patterns=list(_FILES)))


def _limits(recipe: GrpoRecipe, dims: Qwen3Dims, tokenizer: Tokenizer, parts: Sequence[SampledPart]) -> TokenLimits:
    """With the tokens of a sample of each part."""
    counted, lessons = [], []
    for name, part in zip(("training", "test"), parts, strict=True):
        spread, ends = _sample(part.examples)
        chosen = [*spread, *ends]
        lengths = prompts.tokenized(chosen, tokenizer, recipe.data, dims.max_positions).lengths()
        counted.append(PromptTokens(name, part.total, lengths[: len(spread)], lengths[len(spread) :]))
        if recipe.warm_start and name == "training":
            worked = prompts.worked_answers(chosen, tokenizer, dims.max_positions)
            lessons = list(zip(lengths, map(len, worked), strict=True))
    return TokenLimits(recipe.rollout, dims.max_positions, counted, lessons)


def _sample(examples: Sequence[Example]) -> tuple[Sequence[Example], Sequence[Example]]:
    """(examples of all lengths, the shortest and the longest): all and none where they are few."""
    if len(examples) <= _SPREAD + 4 * _END:
        return examples, ()
    spread = [examples[n * len(examples) // _SPREAD] for n in range(_SPREAD)]
    ends = []
    for text in ("question", "solution"):
        ordered = sorted(examples, key=lambda e: len(getattr(e, text).encode()))
        ends += [*ordered[:_END], *ordered[-_END:]]
    return spread, ends


def _counted(recipe: GrpoRecipe, limits: TokenLimits) -> list[Record]:
    """How long the prompts are, and what is left out."""
    train, test = limits.parts
    of = f"{train.total:,} training and {test.total:,} test prompts"
    counted = [len(part.spread) + len(part.ends) for part in limits.parts]
    every = all(n == part.total for n, part in zip(counted, limits.parts, strict=True))
    longest = (
        f"has {limits.stated(limits.longest())} tokens, rollout.max_prompt_length={recipe.rollout.max_prompt_length}"
    )
    what = (
        f"the longest of {of} {longest}"
        if every
        else f"the longest of {sum(counted):,} prompts, out of {of}, {longest}"
    )
    records = [record("context", "info", what)]
    if left_out := limits.left_out():
        keys = [f"rollout.max_prompt_length={recipe.rollout.max_prompt_length}"]
        keys += [f"rollout.total_generation_steps={recipe.rollout.total_generation_steps}"] * bool(recipe.warm_start)
        about = "" if every else "about "
        wrong = f"{about}{', '.join(left_out)} do not fit {' and '.join(keys)} and are left out"
        fix = f"type {enough}, or give shorter examples" if (enough := limits.enough()) else "give shorter examples"
        records.append(record("context", "warning", wrong, fix))
    return records


def _uncounted(recipe: GrpoRecipe, why: str) -> Record:
    what = f"whether prompts fit rollout.max_prompt_length={recipe.rollout.max_prompt_length} was not checked: {why}"
    return record("context", "inconclusive", what, "plan where the hub can be reached, or give a directory")

"""What a plan says of weights, tokenizer, chat template and lengths of GRPO, by the code of training on a sample of the data."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.data.gsm8k import SampledData, SampledPart
from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, expanded
from podwright.recipe import hf_config, hf_weights, models, positions
from podwright.recipe.location import Unreachable
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Record
from podwright.train import hub
from podwright.train.answers import record, without_weights
from podwright.train.grpo import prompts
from podwright.train.grpo.token_limits import PromptTokens, TokenLimits

_STAND_INS = [Example(f"{n}+1?", str(n + 1), f"#### {n + 1}") for n in range(2)]


def findings(recipe: GrpoRecipe, sample: SampledData | None) -> list[Record]:
    """Each {check, level, code, message, fix}. `sample`: None for a data set on the hub that cannot be had."""
    check, source = "model", recipe.model.source
    records: list[Record] = []
    try:
        directory = hub.tokenizer(source)
        if directory:
            dims = hf_config.qwen3(hf_config.read(directory))
            if directory == expanded(source):
                records = without_weights(source, hf_weights.qwen3(dims))
            if records and not (directory / "tokenizer.json").is_file():
                return records  # a directory that is no checkpoint yet
            tokenizer = prompts.load_tokenizer(directory, dims.vocab_size)
        else:
            dims = models.find(recipe.model.name)
            tokenizer = prompts.learned_tokenizer(sample.train.examples if sample else (), dims.vocab_size)
        if sample is None:
            prompts.tokenized(_STAND_INS, tokenizer, recipe.data)
            return [*records, _uncounted(recipe, f"data.source={recipe.data.source} is on the Hugging Face hub")]
        limits = _limits(recipe, dims, tokenizer, (sample.train, sample.test))
        check = "context"
        if refused := positions.exceeded(recipe.rollout, dims.max_positions):
            raise UserError(refused.what, limits.remedy(), refused.code)
        limits.require()
    except Unreachable:
        raise
    except UserError as e:
        return [*records, record(check, "error", e.what, e.fix, e.code)]
    return [*records, *_counted(recipe, limits)]


def _limits(recipe: GrpoRecipe, dims: Qwen3Dims, tokenizer: Tokenizer, parts: Sequence[SampledPart]) -> TokenLimits:
    """With the tokens of what was read of each part."""
    counted, lessons = [], []
    for name, part in zip(("training", "test"), parts, strict=True):
        lengths = prompts.tokenized(part.examples, tokenizer, recipe.data).lengths()
        counted.append(PromptTokens(name, part.total, lengths))
        if recipe.warm_start and name == "training":
            worked = prompts.worked_answers(part.examples, tokenizer)
            lessons = list(zip(lengths, map(len, worked), strict=True))
    return TokenLimits(recipe.rollout, dims.max_positions, counted, lessons)


def _counted(recipe: GrpoRecipe, limits: TokenLimits) -> list[Record]:
    """How long the prompts are, and what is left out."""
    train, test = limits.parts
    counted = sum(len(part.counted) for part in limits.parts)
    every = counted == train.total + test.total
    of = f"{train.total:,} training and {test.total:,} test prompts"
    of = of if every else f"{counted:,} prompts, out of {of},"
    what = f"the longest of {of} has {limits.longest()} tokens, rollout.max_prompt_length={recipe.rollout.max_prompt_length}"
    records = [record("context", "info", what, code="prompt-lengths")]
    if left_out := limits.left_out():
        about = "" if every else "about "
        wrong = f"{about}{', '.join(left_out)} are too long for rollout and left out"
        fix = "give shorter examples"
        if enough := limits.enough():
            fix = f"type {enough}, or {fix}"
        records.append(record("context", "warning", wrong, fix, "too-long"))
    return records


def _uncounted(recipe: GrpoRecipe, why: str) -> Record:
    what = f"whether prompts fit rollout.max_prompt_length={recipe.rollout.max_prompt_length} was not checked: {why}"
    return record(
        "context", "inconclusive", what, "plan where the hub can be reached, or give a directory", "not-checked"
    )

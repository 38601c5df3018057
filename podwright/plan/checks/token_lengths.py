"""Whether tokenizer, chat template and lengths fit the data: counted by the compute half, in a process without JAX and PyTorch.

That half refuses in the words in which training would. What cannot be counted here is said, and such a plan is not ok.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from podwright.errors import expanded
from podwright.plan.checks import hub, patience
from podwright.plan.findings import Finding
from podwright.recipe import corpus, extras
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Record
from podwright.shell import Shell

_PATIENCE_S = 60.0  # a busy machine takes as long; a file without end is left to the guess
_MISSING = re.compile(r"No module named '(\w+)")
_COUNTED = ("model", "data", "rollout", "warm_start", "seed")  # sections of GRPO on which lengths depend
_HUB = "plan where the hub can be reached, or give {} as a directory"


def counted(recipe: MultimodalRecipe, findings: list[Finding]) -> list[Finding]:
    """`findings` of the static plan, with what was counted in the place of what was guessed."""
    if any(f.level == "error" and f.check in ("data", "model") for f in findings):
        return findings
    answer, _ = _ask(["lengths"], recipe.model_dump(mode="json"), Path.cwd())
    if answer is None:
        what = "the tokens of prompts and responses could not be counted"
        fix = "type pip install -e '.[torch]' in podwright's clone, or watch the notices of the run"
        return [*findings, Finding("context", "inconclusive", what, fix)]
    if not answer.get("known", True):
        return findings
    rest = [f for f in findings if f.check != "context"]
    return [*rest, Finding("context", "error", answer["error"], answer["fix"])] if "error" in answer else rest


def of_prompts(recipe: GrpoRecipe, findings: list[Finding], cwd: Path) -> list[Finding]:
    """`findings` of the static plan of GRPO, with those about its tokenizer, and what was counted in the place of what was guessed."""
    if any(f.level == "error" and f.check in ("data", "model") for f in findings):
        return findings
    sources = {"model": (recipe.model.source, "random"), "data": (recipe.data.source, "arithmetic")}
    unreachable = [
        section
        for section, (source, word) in sources.items()
        if source != word and not os.path.exists(cwd / expanded(source)) and not _on_hub(section, source)
    ]
    if "model" in unreachable or (unreachable and recipe.model.source == "random"):
        keys = " and ".join(f"{section}.source" for section in unreachable)
        limit = f"rollout.max_prompt_length={recipe.rollout.max_prompt_length}"
        what = f"whether prompts fit {limit} was not checked: {keys} cannot be read here"
        return [*findings, Finding("context", "inconclusive", what, _HUB.format(keys))]
    answers = _tokens(
        _only_counted(recipe), tuple(unreachable), cwd, _stamps(cwd, [recipe.model.source, recipe.data.source])
    )
    guessed = any(f.check == "context" and f.level != "inconclusive" for f in answers)
    return [*(f for f in findings if f.check != "context" or not guessed), *answers]


def of_texts(recipe: PretrainRecipe, findings: list[Finding], cwd: Path) -> list[Finding]:
    """`findings` of the static plan of pretraining, with those about its tokenizer and its array_record files."""
    source, tokenizer = recipe.data.source, recipe.data.tokenizer
    named = tokenizer or os.path.join(source, "tokenizer")  # which shards bring along
    refused = any(f.level == "error" and f.check in ("data", "model") for f in findings)
    loaded = tokenizer != "bytes" and bool(tokenizer or (cwd / expanded(named)).exists())
    recorded = next((cwd / expanded(source)).glob(f"*{corpus.RECORDS}"), None)
    if refused or not (loaded or recorded):
        return findings
    return [*findings, *_tokens(recipe.model_dump_json(), (), cwd, _stamps(cwd, [named, source]))]


def _on_hub(section: str, source: str) -> bool:
    if patience.left_out("context"):
        return False
    answer = hub.model(source)[0] if section == "model" else hub.dataset(source)
    return answer.level == "info"


def _only_counted(recipe: GrpoRecipe) -> str:
    """As JSON, with the defaults of what lengths do not depend on: one question for all settings that are searched."""
    record = recipe.model_dump(mode="json")
    kept = {
        key: value for key, value in record.items() if key in _COUNTED or GrpoRecipe.model_fields[key].is_required()
    }
    kept["model"] = {key: record["model"][key] for key in ("name", "source")}
    return json.dumps(kept | {"training": {"max_steps": 1}, "batch_size": 1})


def _stamps(cwd: Path, sources: list[str]) -> tuple[tuple[str, int, int], ...]:
    """Of the files that sources name: a file that has changed is counted again."""
    paths = [path for source in sources if (path := cwd / expanded(source)).exists()]
    files = [file for path in paths for file in ([path, *path.iterdir()] if path.is_dir() else [path])]
    stats = [(str(file), file.stat()) for file in sorted(files) if file.exists()]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


@functools.lru_cache(maxsize=16)  # a plan needs the answer several times
def _tokens(
    recipe: str, unreachable: tuple[str, ...], cwd: Path, stamps: tuple[tuple[str, int, int], ...]
) -> list[Finding]:
    answer, why = _ask(["tokens", *unreachable], json.loads(recipe), cwd)
    if answer is None:
        what = f"tokenizer, chat template and lengths of the data were not checked: {why}"
        missing = _MISSING.search(why)
        extra = extras.of(missing.group(1)) if missing else ""
        fix = (
            extras.install(extra)
            if extra
            else "plan again when this machine is less busy, or try the run with --smoke 1"
        )
        return [Finding("context", "inconclusive", what, fix)]
    return [Finding(**finding) for finding in answer["findings"]]


def _ask(words: list[str], recipe: Record, cwd: Path) -> tuple[Record | None, str]:
    """The answer of a verb of the compute half; None, and why, where there is none."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(recipe, file)
        file.flush()
        verb, *arguments = words
        argv = [sys.executable, "-m", "podwright.train", verb, file.name, *arguments]
        _, out, errors = Shell().ask(argv, _PATIENCE_S, cwd)
    try:
        answer: Record = json.loads(out)
    except ValueError:
        return None, (errors.strip().splitlines() or ["the process that counts them was killed"])[-1]
    return answer, ""

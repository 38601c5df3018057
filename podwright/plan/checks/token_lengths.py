"""Whether data, tokenizer, chat template and lengths fit together: `python -m podwright.train check` asks the loaders that train.

It is a process without JAX; of Phase 1 and 2 it imports PyTorch for files of weights. What cannot be checked here is said, and such a plan
is not ok.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from pathlib import Path

from podwright.errors import expanded
from podwright.plan.checks import hub, patience
from podwright.plan.findings import MISSING_PACKAGE, Finding
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Record
from podwright.shell import Shell

_STORE_PATIENCE_S = 12.0  # of a store, whose client would try again for minutes
_PATIENCE_S = 60.0  # a busy machine takes as long; a file without end is left to the guess
_COUNTED = ("model", "data", "rollout", "warm_start", "seed")  # sections of GRPO on which lengths depend
_CHECKS = ("data", "context", "model")  # about which it is asked
EXAMPLES = "examples"
"""code of the record that has the numbers of examples"""
_HUB = "plan where the hub can be reached, or give {} as a directory"


def records(recipe: str, without: tuple[str, ...], sources: list[str], cwd: Path) -> list[Record]:
    """What the compute half says of a recipe, as JSON, whose `sources` are on this machine or not.

    Where there was no answer, one of the checks that were asked for says so.
    """
    wanted = next((check for check in _CHECKS if not patience.left_out(check)), _CHECKS[0])
    answers = _checked(recipe, without, cwd, _stamps(cwd, sources))
    return [record | {"check": record["check"] or wanted} for record in answers]


def of_prompts(recipe: GrpoRecipe, findings: list[Finding], cwd: Path) -> list[Finding]:
    """`findings` of the static plan of GRPO, with those about its tokenizer, and what was counted in the place of what was guessed."""
    if any(f.level == "error" and f.check in ("data", "model") for f in findings) or _is_left_out(recipe):
        return findings
    without = _unreachable(recipe, cwd)
    if "model" in without or (without and recipe.model.source == "random"):
        keys = " and ".join(f"{section}.source" for section in without)
        limit = f"rollout.max_prompt_length={recipe.rollout.max_prompt_length}"
        what = f"whether prompts fit {limit} was not checked: {keys} cannot be read here"
        return [*findings, Finding("context", "inconclusive", what, _HUB.format(keys), "not-checked")]
    taken = ("data",) if is_local(recipe, cwd) else ()  # by examples.py
    others = [r for r in checked(recipe, cwd) if r["check"] not in taken and r.get("code") != EXAMPLES]
    answers = [finding(record) for record in others]
    guessed = any(f.check == "context" and f.level != "inconclusive" for f in answers)
    return [*(f for f in findings if f.check != "context" or not guessed), *answers]


def is_local(recipe: GrpoRecipe, cwd: Path) -> bool:
    """Whether a recipe names data of this machine."""
    source = recipe.data.source
    return source != "arithmetic" and os.path.exists(cwd / expanded(source))


def checked(recipe: GrpoRecipe, cwd: Path) -> list[Record]:
    """What the loaders of training say of data, tokenizer and lengths, {check, level, code, message, fix} each; [] where --only leaves
    both out. Asked once for all settings that these do not depend on."""
    if _is_left_out(recipe):
        return []
    sources = [recipe.model.source, recipe.data.source]
    return records(_only_counted(recipe), _unreachable(recipe, cwd), sources, cwd)


def finding(record: Record) -> Finding:
    """A finding of the plan, of what the compute half says."""
    return Finding(**{name: record.get(name, "") for name in ("check", "level", "message", "fix", "code")})


def _is_left_out(recipe: GrpoRecipe) -> bool:
    return all(map(patience.left_out, ("data", "context", *[patience.WEIGHTS] * (recipe.model.source != "random"))))


def _unreachable(recipe: GrpoRecipe, cwd: Path) -> tuple[str, ...]:
    """Sections whose source is neither here nor on the hub."""
    sources = {"model": (recipe.model.source, "random"), "data": (recipe.data.source, "arithmetic")}
    return tuple(
        section
        for section, (source, word) in sources.items()
        if source != word and not os.path.exists(cwd / expanded(source)) and not _on_hub(section, source)
    )


def checked_texts(recipe: PretrainRecipe, cwd: Path) -> list[Record]:
    """What the loaders of pretraining say of data and tokenizer."""
    data = recipe.data
    named = data.tokenizer or os.path.join(data.source, "tokenizer")  # which shards bring along
    record = recipe.model_dump(mode="json", include={"kind", "name", "description", "expect", "data"})
    record["model"] = recipe.model.model_dump(include={"name", "gate", "kda"})
    sizes = {"batch_size": 1, "sequence_length": 1, "training": {"max_steps": 1}}
    return records(json.dumps(record | sizes), (), [named, data.source], cwd)


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
    files = []
    for source in sources:
        path = cwd / expanded(source)
        files += [path, *path.iterdir()] if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in sorted(files) if file.exists()]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


@functools.lru_cache(maxsize=16)  # a plan needs the answer several times
def _checked(
    recipe: str, without: tuple[str, ...], cwd: Path, stamps: tuple[tuple[str, int, int], ...]
) -> list[Record]:
    question = json.loads(recipe)
    records, why = _ask(["check", *without], question, cwd)
    refused = [record for record in records or () if "error" in record]
    missing = [record for record in refused if record["code"] == MISSING_PACKAGE]
    if records is None or missing:
        fix, code = "plan again when this machine is less busy, or try the run with --smoke 3", "not-checked"
        for record in missing:
            why, fix, code = record["error"], record["fix"], MISSING_PACKAGE
        about = "data and tokenizer" if question["kind"] == "pretrain" else "data, tokenizer, chat template and lengths"
        what = f"{about} were not checked: {why}"
        return [{"check": "", "level": "inconclusive", "message": what, "fix": fix, "code": code}]
    errors = [
        {"check": "data", "level": "error", "message": record["error"], "fix": record["fix"]} for record in refused
    ]
    return errors or records


def _ask(words: list[str], recipe: Record, cwd: Path) -> tuple[list[Record] | None, str]:
    """What a verb of the compute half answers, a document a line; None, and why, where there is no answer."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(recipe, file)
        file.flush()
        verb, *arguments = words
        argv = [sys.executable, "-m", "podwright.train", verb, file.name, *arguments]
        limit_s = _STORE_PATIENCE_S if "://" in recipe["data"]["source"] else _PATIENCE_S
        code, out, errors = Shell().ask(argv, limit_s, cwd)
    try:
        records: list[Record] = [json.loads(line) for line in out.splitlines()]
    except ValueError:
        records = []
    if code in (0, 2) and (records or not code):
        return records, ""
    return None, (errors.strip().splitlines() or ["the process that counts them was killed"])[-1]

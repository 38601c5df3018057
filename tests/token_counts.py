"""The questions of a plan to the trainer's packages about tokens, answered in the process that asks: a process of their own imports them each time."""

import contextlib
import functools
import io
import json
import tempfile
import traceback
from pathlib import Path

from podwright.plan.checks import token_lengths
from podwright.rundir import Record
from podwright.train import verbs

in_a_process = token_lengths._ask


def ask(words: list[str], recipe: Record, cwd: Path) -> tuple[list[Record] | None, str]:
    """In place of podwright.plan.checks.token_lengths._ask: the documents of a verb; None, and why, where it crashes."""
    data, model = recipe["data"], recipe.get("model", {})
    if (data["source"], data.get("tokenizer") or "", model.get("source")) == ("arithmetic", "", "random"):
        answer, why = _of_generated_problems(json.dumps(words), json.dumps(recipe))
    else:
        answer, why = _answered(words, recipe, cwd)
    return None if why else [json.loads(line) for line in answer.splitlines()], why


@functools.cache
def _of_generated_problems(words: str, recipe: str) -> tuple[str, str]:
    """No file counts: the answer is the same wherever it is asked."""
    with tempfile.TemporaryDirectory() as folder:
        return _answered(json.loads(words), json.loads(recipe), Path(folder))


def _answered(words: list[str], recipe: Record, cwd: Path) -> tuple[str, str]:
    verb, *arguments = words
    out = io.StringIO()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, contextlib.chdir(cwd):
        json.dump(recipe, file)
        file.flush()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                verbs.answer(verbs.VERBS[verb], [file.name, *arguments])
            except Exception as e:
                return "", traceback.format_exception_only(e)[-1].strip()
    return out.getvalue(), ""

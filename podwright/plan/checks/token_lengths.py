"""Whether prompts and responses of multimodal training keep their room: counted where lines and tokenizer are here, else guessed.

The compute half counts, in a process without PyTorch, and refuses in the words in which training would.
"""

from __future__ import annotations

import json
import sys

from podwright.plan.findings import Finding
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.shell import Shell

_PATIENCE_S = 60.0  # a busy machine takes as long; a file without end is left to the guess


def counted(recipe: MultimodalRecipe, findings: list[Finding]) -> list[Finding]:
    """`findings` of the static plan, with what was counted in the place of what was guessed."""
    if any(f.level == "error" and f.check in ("data", "model") for f in findings):
        return findings
    argv = [sys.executable, "-m", "podwright.train", "lengths", json.dumps(recipe.model_dump(mode="json"))]
    try:
        answer = json.loads(Shell().ask(argv, _PATIENCE_S)[1])
    except ValueError:
        what = "the tokens of prompts and responses could not be counted"
        fix = "type pip install -e '.[torch]' in podwright's clone, or watch the notices of the run"
        return [*findings, Finding("context", "inconclusive", what, fix)]
    if not answer.get("known", True):
        return findings
    rest = [f for f in findings if f.check != "context"]
    return [*rest, Finding("context", "error", answer["error"], answer["fix"])] if "error" in answer else rest

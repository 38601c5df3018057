"""What a message says to type exists in the recipes that can get to see it: keys in all texts of a module, by the kinds that use it."""

import re
from pathlib import Path

import pytest

from podwright.recipe import load
from podwright.recipe.kinds import KINDS
from tests import source_texts

PACKAGE = Path(load.__file__).parents[1]
JAX, TORCH = ("grpo", "pretrain"), ("multimodal", "contrastive")
KINDS_OF = {
    "train/grpo": ("grpo",),
    "train/pretrain": ("pretrain",),
    "train/muon.py": ("pretrain",),
    "plan/checks/examples.py": ("grpo",),
    "plan/checks/rewards.py": ("grpo",),
    "plan/checks/pretrain.py": ("pretrain",),
    "plan/checks/contrastive.py": ("contrastive",),
    "plan/checks/multimodal.py": ("multimodal",),
    "plan/checks/token_lengths.py": ("grpo", "pretrain", "multimodal"),
    "plan/compiled/torch_memory.py": ("multimodal",),
    "plan/fit.py": ("grpo",),
    "data/documents.py": ("pretrain",),
    "data/texts.py": ("pretrain",),
    "recipe/positions.py": ("grpo",),
    "data/example_files.py": ("grpo",),
    "data/gsm8k.py": ("grpo",),
    "data/layouts.py": ("grpo",),
    "train/multimodal/contrastive.py": ("contrastive",),
    "train/multimodal/updates.py": ("multimodal",),
}
"""modules whose words users of these kinds alone get to see"""
KEY = re.compile(r"(?<![\w./-])([a-z][a-z_]*\.[a-z][a-z_]*)(?==|\b(?![\w./(]))")


@pytest.mark.parametrize("place", sorted(KINDS_OF))
def test_messages_name_keys_of_the_kinds_that_see_them(place):
    paths = [PACKAGE / place] if place.endswith(".py") else sorted((PACKAGE / place).rglob("*.py"))
    assert all(path.exists() for path in paths)
    every = {key for kind in KINDS.values() for key in load.fields(kind.schema)}
    sections = {key.partition(".")[0] for key in every if "." in key}
    own = {key for kind in KINDS_OF[place] for key in load.fields(KINDS[kind].schema)}
    own |= {key.rpartition(".")[0] for key in own}
    wrong = {
        (path.name, key)
        for path in paths
        for text in source_texts.strings(path)
        for key in KEY.findall(text)
        if key.partition(".")[0] in sections and key not in own and not key.endswith((".json", ".jsonl", ".py", ".pt"))
    }
    assert not wrong

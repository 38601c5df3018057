"""The peak memory of the updates whose figures README gives is at most 2 % above these, by the TPU compiler."""

import importlib.util
import json
from pathlib import Path

import pytest

from podwright import slices
from podwright.accelerators import GIB
from podwright.plan import kinds
from podwright.plan.compiled import compile as aot
from podwright.recipe import load

RESULTS = Path(__file__).resolve().parents[3] / "bench/results"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (Linux on x86 only)"
    ),
]


@pytest.mark.parametrize(
    ("name", "on", "overrides", "result", "gib"),
    [
        ("qwen3-1.7b-gsm8k-grpo", "v6e-8", ["batch_size=32"], "plan_compile-2026-11-21.json", 19.394),
        ("almodel-8b-tpu7x-64", "tpu7x-64", [], "plan_pretrain-2026-11-21.json", 36.8319),
    ],
    ids=["grpo", "pretrain"],
)
def test_the_update_needs_no_more_memory_than_its_result_says(name, on, overrides, result, gib, tmp_path, monkeypatch):
    """`result` is of bench/plan_compile.py and bench/plan_pretrain.py; the update of its first row needed so many `gib`."""
    row = json.loads((RESULTS / result).read_text())["rows"][0]
    assert row["on"] == on and row["programs"][0]["name"] == "update" and row["programs"][0]["hbm_gib"] == gib
    monkeypatch.setitem(aot.LIMIT_S, "quick", 3600)  # a busy machine says nothing of memory
    recipe, where = load.load(name, overrides), slices.parse(on)
    part, shop = kinds.of(recipe), aot.CompileContext(tmp_path, lambda *_: None)
    (update,) = aot.compile_all(
        recipe, part.dimensions(recipe, tmp_path), where, ["update"], full=False, shop=shop, irrelevant=part.irrelevant
    )
    assert update.verdict == "fits", update
    assert update.hbm_bytes / GIB <= 1.02 * gib

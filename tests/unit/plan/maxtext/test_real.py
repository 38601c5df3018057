"""MaxText itself, installed from PyPI, on a small model for tpu7x-2x2x1. Set PODWRIGHT_CACHE to keep the 2.4 GB for the next time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.errors import UserError
from podwright.plan.compiled import maxtext_environment
from tests.unit.recipe.maxtext.example import RAW

pytestmark = pytest.mark.long
ARGUMENTS = {
    "base_emb_dim": "256",
    "base_mlp_dim": "512",
    "base_num_query_heads": "2",
    "base_num_kv_heads": "2",
    "head_dim": "128",
    "base_num_decoder_layers": "2",
    "vocab_size": "1024",
    "max_target_length": "512",
    "per_device_batch_size": "1",
    "enable_checkpointing": "False",
    "dataset_type": "synthetic",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        maxtext_environment._interpreter()
    except UserError as e:
        pytest.skip(e.what)
    return Path(os.environ.get("PODWRIGHT_CACHE") or tmp_path_factory.mktemp("cache"))


def plan(cache: Path, folder: Path, *overrides: str, depth: str = "quick", **arguments: str) -> dict[str, Any]:
    """The document of `podwright plan --compile`, with what was announced; skips where PyPI cannot be reached."""
    file = folder / "toy.yaml"
    versions = {"maxtext": "0.2.5"}
    raw = RAW | {"topology": "tpu7x-2x2x1", "arguments": ARGUMENTS | arguments, "versions": versions, "xla_flags": []}
    file.write_text(yaml.safe_dump(raw, sort_keys=False))
    argv = [sys.executable, "-m", "podwright", "plan", str(file), *overrides, "--on", "tpu7x-2x2x1"]
    done = subprocess.run(
        [*argv, f"--compile={depth}", "--cache", str(cache), "--json"], capture_output=True, text=True, check=False
    )
    document: dict[str, Any] = json.loads(done.stdout)
    if any("PyPI cannot be reached" in f["message"] for f in document["findings"]):
        pytest.skip("maxtext is not installed, and PyPI cannot be reached")
    return document | {"stderr": done.stderr}


def test_a_small_model_is_compiled_and_the_short_compile_agrees_with_the_full_one(cache: Path, tmp_path: Path) -> None:
    quick, full = (plan(cache, tmp_path, depth=depth) for depth in ("quick", "full"))
    for document in (quick, full):
        (program,) = document["programs"]
        assert document["verdict"] == "ok" and program["verdict"] == "fits", document["findings"]
        assert 0 < program["hbm_gib"] < 0.1 and program["limit_gib"] == 94.74
    sizes = ("arguments_gib", "temporaries_gib", "outputs_gib", "aliased_gib", "hbm_gib")
    assert [quick["programs"][0][size] for size in sizes] == [full["programs"][0][size] for size in sizes]
    kept = [json.loads(path.read_text()) for path in cache.glob("*/train_step.json")]
    printed = [program for program in kept if 0 < program["executable"].get("argument_size", 0) < 0.1 * 2**30]
    assert printed and all(
        program["executable"]["temp_size"] == pytest.approx(program["memory"]["temporaries"], rel=0.01)
        for program in printed
    ), "MaxText's own figure, which counts a little more"
    assert "compiled with maxtext 0.2.5, jax " in quick["findings"][-1]["message"]
    assert plan(cache, tmp_path)["programs"][0]["cached"]


def test_maxtext_reads_the_arguments_before_it_compiles(cache: Path, tmp_path: Path) -> None:
    document = plan(cache, tmp_path, fsdp_shard_on_exp="True", quantization="fp9", num_experts="4")
    assert document["verdict"] == "refused" and not document["programs"]
    lines = [f"{f['message']}; {f['fix']}" for f in document["findings"] if f["level"] == "error"]
    assert any(
        "has no argument fsdp_shard_on_exp; it has shard_exp_on_fsdp; type maxtext=PATH" in line for line in lines
    )
    assert any("does not take quantization=fp9; it takes" in line for line in lines)
    assert any("refuses the arguments: moe_mlp_dim must be positive" in line for line in lines)


def test_a_batch_that_is_too_large_is_refused_with_what_it_needs(cache: Path, tmp_path: Path) -> None:
    document = plan(cache, tmp_path, per_device_batch_size="4000", base_num_decoder_layers="400")
    (program,) = document["programs"]
    assert document["verdict"] == "refused" and program["verdict"] == "too large" and program["hbm_gib"] > 94.74
    (refusal,) = [f["message"] for f in document["findings"] if f["level"] == "error"]
    assert "of 94.74 GiB per device" in refusal


def test_the_grouped_matmul_of_tokamax_is_compiled_without_a_tpu(cache: Path, tmp_path: Path) -> None:
    experts = {"decoder_block": "mixtral", "num_experts": "4", "num_experts_per_tok": "2", "base_moe_mlp_dim": "512"}
    document = plan(cache, tmp_path, sparse_matmul="True", megablox="True", use_tokamax_gmm="True", **experts)
    (program,) = document["programs"]
    assert program["verdict"] == "fits" and any("tokamax" in note for note in program["notes"])

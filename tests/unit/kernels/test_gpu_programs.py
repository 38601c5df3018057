"""Programs compiled for H100 and A100 by XLA's own GPU compiler, without a GPU: which attention is in them, and what they take.

It needs a Python with JAX's CUDA plugin, 6 GB, and is skipped where there is none (CONTRIBUTING.md).
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT
from podwright import slices
from podwright.accelerators import GIB
from podwright.plan.checks import meshes
from podwright.plan.estimates import memory, memory_grpo, memory_pretrain
from podwright.recipe import load
from podwright.recipe.dimensions import find

pytestmark = pytest.mark.long
PYTHON = Path(os.environ.get("PODWRIGHT_CUDA_PYTHON") or Path.home() / ".cache/podwright-cuda/bin/python")
GRPO, PRETRAIN = "qwen3-1.7b-gsm8k-grpo", "qwen3-0.6b-pretrain"
LIMIT_S = 1800
MASKED = {"__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"}


def compiled(gpu: str, number: int, recipe: str, *overrides: str, name: str = "update") -> dict:
    """What gpu_compile.py says of a program of the recipe."""
    if not PYTHON.exists():
        pytest.skip(f"inconclusive: no Python with JAX's CUDA plugin at {PYTHON} (CONTRIBUTING.md)")
    argv = [PYTHON, ROOT / "tests/unit/kernels/gpu_compile.py", gpu, str(number), recipe, name, *overrides]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    program: dict = json.loads(done.stdout.splitlines()[-1])
    print(program)
    return program


def estimated(on: str, name: str, *overrides: str) -> float:
    """GiB of the update by the plan's closed form, without what stays there beside it."""
    recipe, where = load.load(name, list(overrides)), slices.parse(on)
    estimates = memory_grpo.estimates if recipe.kind == "grpo" else memory_pretrain.estimates
    (update,) = estimates(
        recipe, find(recipe.model.name), meshes.resolved(recipe, where), where.accelerator, ["update"]
    )
    return (update.total - update.parts.get("reference", 0)) / GIB


@pytest.mark.parametrize(("gpu", "on"), [("H100", "8xH100-80GB"), ("A100", "8xA100-80GB")])
def test_an_update_of_groups_has_cudnn_and_half_of_the_memory_of_scores(gpu: str, on: str) -> None:
    """Qwen3-1.7B, 16 prompts of 256 tokens, 8 completions of 2048: 20.4 GiB of temporaries while scores were kept."""
    program = compiled(gpu, 8, GRPO)
    assert program["calls"]["__cudnn$fmhaSoftmaxBackward"] and program["calls"]["__cudnn$fmhaSoftmax"]
    assert program["temp"] <= 10 * GIB
    total = (program["argument"] + program["output"] - program["alias"] + program["temp"]) / GIB
    assert estimated(on, GRPO) == pytest.approx(total, rel=memory.ERROR)


def test_an_update_without_remat_and_its_reference_need_less_than_20_gib() -> None:
    """Layers of Qwen3-0.6B, vocabulary 32,768, 8 x 8 completions of 128 + 256 tokens: 21.6 GiB on an H200 before."""
    lengths = ("rollout.max_prompt_length=128", "rollout.total_generation_steps=256")
    keys = ("model.name=qwen3-0.6b", "model.source=random", "model.remat=none", "batch_size=8", *lengths)
    program = compiled("H100", 1, GRPO, *keys, "training.gradient_accumulation_steps=1", "vocab_size=32768")
    parameters = program["argument"] / 12  # weights, and two moments of each
    of_cudnn = 0.38 * GIB  # XLA does not count it (docs/log.md)
    assert program["argument"] + program["temp"] + 2 * parameters + of_cudnn < 20 * GIB


@pytest.mark.parametrize(
    ("gpu", "on", "calls"), [("H100", "1xH100-80GB", {"mosaic_gpu_v2"}), ("A100", "1xA100-80GB", MASKED)]
)
def test_packed_documents_have_tokamax_or_cudnn_with_their_mask(gpu: str, on: str, calls: set[str]) -> None:
    program = compiled(gpu, 1, PRETRAIN, "batch_size=8")
    assert {name for name in program["calls"] if "mosaic" in name or "fmha" in name} == calls
    total = (program["argument"] + program["output"] - program["alias"] + program["temp"]) / GIB
    assert estimated(on, PRETRAIN, "batch_size=8") == pytest.approx(total, rel=memory.ERROR)


@pytest.mark.parametrize("gpu", ["H100", "A100"])
def test_a_rollout_has_the_kernel_that_decodes_once_a_layer(gpu: str) -> None:
    """Not in two loops of growing rooms: it reads no further than the token."""
    program = compiled(gpu, 1, GRPO, "rollout.total_generation_steps=1024", name="rollout")
    assert program["calls"]["__gpu$xla.gpu.triton"] == find(load.load(GRPO).model.name).num_layers

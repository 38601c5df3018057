"""Plans of pretraining: what is refused before anything starts, in one line that says what to type."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from podwright.cli.app import main
from podwright.errors import UserError
from podwright.plan import kinds
from podwright.plan.checks import meshes
from podwright.plan.compiled import step_time
from podwright.plan.compiled.compile import Compiled
from podwright.plan.compiled.costs import ProgramCost
from podwright.recipe import hybrid, load
from podwright.slices import parse
from tests.unit.plan.static import check


def findings(name, on, *overrides, level="error"):
    found = check(load.load(name, overrides), parse(on), Path())
    return [f for f in found if f.level == level]


@pytest.mark.parametrize(
    ("name", "on"), [("almodel-tiny", "cpu-1"), ("almodel-8b-tpu7x-64", "tpu7x-64"), ("almodel-8b-source", "tpu7x-64")]
)
def test_the_shipped_recipes_stand(name, on):
    assert not findings(name, on)
    (said,) = [f.message for f in findings(name, on, level="info") if f.check == "model"]
    assert said.startswith(
        "almodel-tiny has 414 K parameters, 228 K active per token"
        if "tiny" in name
        else "almodel-8b has 19.1 B parameters, 3.24 B active per token"
    )


@pytest.mark.parametrize(
    ("on", "overrides", "said", "fix"),
    [
        (
            "cpu-1",
            ["sequence_length=100"],
            "sequence_length=100 is no multiple of 64, the tokens that KDA",
            "type sequence_length=64, or sequence_length=128",
        ),
        ("cpu-1", ["sequence_length=20"], "sequence_length=20 is no multiple of 64", "type sequence_length=64"),
        ("cpu-1", ["sequence_length=131136"], "more than the 131072 positions", "type sequence_length=131072 or less"),
        (
            "cpu-4",
            ["mesh.fsdp=-1", "batch_size=6"],
            "batch_size=6 cannot be split over 4 batch shards",
            "type batch_size=8",
        ),
        ("cpu-3", ["mesh.fsdp=1", "mesh.expert=3"], "mesh.expert=3 does not divide 8 experts", "type mesh.data=3"),
        (
            "cpu-4",
            ["mesh.fsdp=1", "mesh.tensor=4"],
            "mesh.tensor=4 does not divide 2 MLA heads, 2 KDA heads",
            "type mesh.",
        ),
        (
            "cpu-8",
            ["mesh.context=8"],
            "mesh.context=8 does not divide the 4 chunks of 64 tokens in sequence_length=256",
            "type mesh.fsdp=2 mesh.context=4",
        ),
        (
            "cpu-1",
            ["data.source=shards", "data.eos_id=259"],
            "data.eos_id=259 is outside the vocabulary of 259",
            "type data.eos_id=null for that of the token shards",
        ),
        (
            "cpu-1",
            ["model.name=almodel-9b"],
            "model.name='almodel-9b' is not a known model",
            "type model.name=almodel-8b",
        ),
        ("cpu-1", ["model.kda=tokamax"], "is a kernel for v6e and tpu7x, not for cpu-1", "type model.kda=chunked"),
        (
            "v6e-4",
            ["model.kda=tokamax", "mesh.context=2"],
            "model.kda=tokamax needs whole sequences",
            "type mesh.context=1",
        ),
        ("v5e-1", ["model.kda=tokamax"], "is a kernel for v6e and tpu7x, not for v5e-1", "type model.kda=chunked"),
        (
            "v6e-1",
            ["model.kda=tokamax", "model.gate=softplus"],
            "model.kda=tokamax is for bounded decays",
            "type model.kda=chunked",
        ),
        (
            "v6e-1",
            ["model.kda=tokamax", "model.name=qwen3-0.6b"],
            "qwen3-0.6b has no KDA layers",
            "leave model.kda out",
        ),
        (
            "cpu-1",
            ["model.name=deepseek-v3", "model.gate=bounded"],
            "deepseek-v3 has no KDA layers",
            "leave model.gate out",
        ),
    ],
)
def test_what_cannot_run_is_refused(on, overrides, said, fix):
    found = findings("almodel-tiny", on, *overrides)
    (one,) = [f for f in found if said in f.message]
    assert fix in one.fix and "\n" not in one.message + one.fix


def test_latents_limit_fsdp_beyond_the_hidden_size():
    """671 B on 512 devices: 512 keys' latents can be split, 1536 and 7168 too; 1024 devices cannot."""
    overrides = ["model.name=deepseek-v3", "sequence_length=4096", "mesh.fsdp=-1", "data.num_documents=1000000"]
    assert not findings("almodel-tiny", "tpu7x-512", *overrides, "batch_size=512")
    (refused,) = [f for f in findings("almodel-tiny", "tpu7x-1024", *overrides, "batch_size=1024") if f.check == "mesh"]
    assert refused.message.startswith("mesh.fsdp=1024 does not divide") and "keys' latents of 512" in refused.message
    assert "mesh.data=2 mesh.fsdp=512" in refused.fix


def test_queries_latents_limit_fsdp_by_themselves():
    """Queries' latents of 24 over 16 devices, where keys' latents of 32 and the hidden size of 64 can be split; jax says so too."""
    recipe = load.load("almodel-tiny", ["mesh.fsdp=-1", "batch_size=16"])
    tiny = hybrid.find("almodel-tiny")
    for rank, on, refused in ((32, "cpu-16", ""), (24, "cpu-16", "queries' latents of 24"), (24, "cpu-8", "")):
        dims = dataclasses.replace(tiny, mla=dataclasses.replace(tiny.mla, q_lora_rank=rank))
        said = [f.message for f in meshes.mesh(recipe, dims, parse(on)) if f.level == "error"]
        assert said == ([f"mesh.fsdp=16 does not divide {refused}"] if refused else [])
    none = dataclasses.replace(tiny, mla=dataclasses.replace(tiny.mla, q_lora_rank=0))
    assert not [f for f in meshes.mesh(recipe, none, parse("cpu-16")) if f.level == "error"], "queries without latents"


def test_micro_batches_must_divide_the_batch():
    with pytest.raises(UserError, match="gradient_accumulation_steps=3 must divide batch_size=16"):
        load.load("almodel-tiny", ["training.gradient_accumulation_steps=3"])


def test_what_only_grpo_has_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"unknown key grpo\.beta"):
        load.load("almodel-tiny", ["grpo.beta=0"])


def test_a_step_of_pretraining_in_tokens_and_share_of_peak():
    recipe, where = load.load("almodel-8b-tpu7x-64"), parse("tpu7x-64")
    dims = hybrid.find("almodel-8b")
    cost = ProgramCost(1.0, 1.0, 0.0, 0.0, 2.0, "ici", ())
    found = step_time.compiled_pretrain(
        [Compiled(name, "fits", 1.0, cost=cost) for name in kinds.of(recipe).programs(recipe)],
        recipe,
        dims,
        where,
        10.0,
    )
    assert found.tokens_per_s_per_device == 4 * 8192 / 2.0
    assert found.mfu == pytest.approx(20.72e9 * 16384 / 1153.5e12, rel=1e-3)  # research: 20.72 GFLOP a token
    hours = (10000 * 2.0 + 11 * 8 * 2.0) / 3600
    assert found.run.chip_hours == pytest.approx(32 * hours) and found.run.cost == pytest.approx(320 * hours)
    assert step_time.compiled_pretrain([], recipe, dims, where, None) is None


def test_the_json_of_a_plan_has_meshes_of_four_axes(capsys):
    assert main(["plan", "almodel-8b-tpu7x-64", "--on", "tpu7x-64", "--json"]) == 4, "its tokens are not here"
    listed = json.loads(capsys.readouterr().out)["slice"]["meshes"]
    assert {"data": 1, "fsdp": 64, "context": 1, "expert": 1, "tensor": 1} in listed and all(
        math.prod(m.values()) == 64 for m in listed
    )
    assert all(m["tensor"] in (1, 2, 4) and 64 % m["expert"] == 0 for m in listed) and {
        m["context"] for m in listed
    } >= {1, 2, 4, 32, 64}


def test_the_mesh_that_the_source_typed_is_refused_in_jax_s_words(capsys):
    overrides = ["mesh.fsdp=8", "mesh.tensor=4", "mesh.context=2"]
    assert main(["plan", "almodel-8b-tpu7x-64", *overrides, "--on", "tpu7x-64"]) == 3
    (refused,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("error: ") and "mesh" in line
    ]
    assert "Failed to find assignment for logical_axis_index 2 of size 2" in refused
    assert "type mesh.fsdp=16 mesh.context=2 mesh.tensor=2" in refused
    assert not findings("almodel-8b-tpu7x-64", "tpu7x-64", "mesh.fsdp=16", "mesh.context=2", "mesh.tensor=2")


def test_replicas_on_two_slices_say_what_crosses_between_them():
    assert not findings("almodel-8b-tpu7x-64", "2x tpu7x-64", "mesh.data=2")
    (said,) = [
        f for f in findings("almodel-8b-tpu7x-64", "2x tpu7x-64", "mesh.data=2", level="info") if f.check == "mesh"
    ]
    gib = 19058.2e6 * 2 / 64 / 2**30
    assert "mesh.data=2 lies over 2 slices" in said.message and f"gradients of {gib:.2f} GiB" in said.message
    (slow,) = [f for f in findings("almodel-8b-tpu7x-64", "2x tpu7x-64", level="warning") if f.check == "mesh"]
    assert "mesh.fsdp=128 reaches over 2 slices" in slow.message and "type mesh.data=2" in slow.fix

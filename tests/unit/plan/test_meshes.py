"""What a plan says about a mesh on a slice, and that it says it without jax."""

import dataclasses
import itertools
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from podwright.models import qwen3
from podwright.models.param import is_param
from podwright.plan.checks.meshes import legal, mesh, spanned, typed
from podwright.plan.checks.topology import factorisations
from podwright.recipe.kinds import Recipe
from podwright.recipe.load import load
from podwright.recipe.models import MODELS, Qwen3Dims, find
from podwright.slices import parse
from tests.unit.plan.static import check, slice_entry

ROOT = Path(__file__).resolve().parents[3]
DIMS = find("qwen3-1.7b")


def recipe(*overrides: str) -> Recipe:
    return load("qwen3-1.7b-gsm8k-grpo", list(overrides))


def found(on: str, *overrides: str, dims: Qwen3Dims | None = DIMS) -> list[str]:
    return [f"{f.level}: {f.message}; {f.fix}" for f in mesh(recipe(*overrides), dims, parse(on))]


def test_a_mesh_that_the_links_do_not_have_is_refused_with_one_that_they_have() -> None:
    (fault,) = found("v6e-16", "mesh.fsdp=8", "mesh.tensor=2")
    message, _, fix = fault.partition("; ")
    assert message == (
        "error: mesh fsdp=8 x tensor=2 does not fit the links of v6e-16: Failed to find assignment for logical_axis_index 2 of "
        "size 2 (axis 2 is tensor)"
    )
    assert fix == "type mesh.fsdp=16 mesh.tensor=1"


@pytest.mark.parametrize(
    "on", ["v6e-8", "v6e-16", "v5e-16", "v5p-16", "tpu7x-64", "tpu7x-4x4x8", "2x v6e-16", "16xH100-80GB", "cpu-4"]
)
def test_what_a_plan_offers_it_accepts(on: str) -> None:
    where, plain = parse(on), recipe("batch_size=256")
    shapes = legal(plain, DIMS, where)
    assert shapes
    for shape in shapes:
        chosen = recipe("batch_size=256", *typed(shape, plain).split())
        assert [f for f in mesh(chosen, DIMS, where) if f.level == "error"] == []
    for shape in set(factorisations(where.num_devices, 3)) - set(shapes):
        axes = [f"mesh.{axis}={n}" for axis, n in zip(("data", "fsdp", "tensor"), shape, strict=True)]
        assert [f for f in mesh(recipe("batch_size=256", *axes), DIMS, where) if f.level == "error"]


@pytest.mark.parametrize(
    ("on", "overrides", "fault"),
    [
        (
            "v6e-16",
            ["mesh.fsdp=4"],
            "error: mesh.data x fsdp x tensor = 4, not 16 devices; type mesh.fsdp=16",
        ),
        (
            "v6e-16",
            ["mesh.data=3"],
            "error: mesh.data x mesh.tensor = 3 does not divide 16 devices; type mesh.data=4 mesh.fsdp=4",
        ),
        (
            "v6e-16",
            ["mesh.tensor=16"],
            "error: mesh.tensor=16 does not divide 8 key/value heads; type mesh.fsdp=4 mesh.tensor=4",
        ),
        (
            "v6e-32",
            [],
            "error: batch_size=16 cannot be split over 32 batch shards (data x fsdp) x 1 micro-batches; type batch_size=32",
        ),
        ("v6e-32", ["mesh.fsdp=8"], "type mesh.fsdp=8 mesh.tensor=4"),
        (
            "v6e-64",
            ["mesh.fsdp=32", "mesh.tensor=2"],
            "logical_axis_index 2 of size 2 (axis 2 is tensor); type mesh.fsdp=8 mesh.tensor=8",
        ),
        ("v6e-256", ["mesh.fsdp=64", "mesh.tensor=4"], "; type mesh.fsdp=256 mesh.tensor=1 batch_size=256"),
        (
            "tpu7x-4x12x12",
            ["batch_size=1152"],
            "mesh.fsdp=1152 does not divide a hidden size of 2048; type mesh.data=144 mesh.fsdp=8",
        ),
        (
            "2x v6e-16",
            ["mesh.fsdp=16", "mesh.tensor=2"],
            "mesh fsdp=16 x tensor=2 does not fit the links of 2x v6e-16: ",
        ),
        (
            "2x v6e-4",
            ["mesh.fsdp=1", "mesh.tensor=8"],
            "data x fsdp = 1 cannot be shared out to 2 slices; type mesh.fsdp=2 mesh.tensor=4",
        ),
        (
            "2x v6e-16",
            ["batch_size=64"],
            "warning: mesh.fsdp=32 reaches over 2 slices: every layer's weights cross a network of 12.5 GB/s",
        ),
        (
            "16xH100-80GB",
            [],
            "reaches over 2 machines: every layer's weights cross a network of 50 GB/s a chip, where the links inside have 900",
        ),
        ("16xH100-80GB", [], "have 900; type mesh.data=2 to keep weights inside, if they fit"),
    ],
)
def test_a_fault_says_what_is_wrong_and_what_to_type(on: str, overrides: list[str], fault: str) -> None:
    (said,) = found(on, *overrides)
    assert fault in said


def test_where_only_the_machine_knows_its_devices_what_does_not_depend_on_them_is_checked() -> None:
    """A batch is, where no axis takes what remains; and what each axis divides."""

    def said(*overrides: str) -> list[str]:
        return [f.message for f in mesh(recipe(*overrides), DIMS, None)]

    assert said() == said("mesh.fsdp=16") == said("mesh.fsdp=1") == said("mesh.data=3") == []
    over = "cannot be split over {} batch shards (data x fsdp) x 1 micro-batches"
    assert said("mesh.fsdp=32") == [f"batch_size=16 {over.format(32)}"]
    assert said("mesh.fsdp=1", "mesh.data=3") == [f"batch_size=16 {over.format(3)}"]
    assert said("mesh.tensor=3")[0].startswith("mesh.tensor=3 does not divide 16 attention heads, 8 key/value heads")


@pytest.mark.parametrize(
    ("devices", "axes"),
    [
        ([5], ""),
        ([0, 1], "tensor"),
        ([0, 2, 4, 6], "fsdp"),
        ([1, 9], "data"),
        ([0, 3], "fsdp x tensor"),
        ([0, 10], "data x fsdp"),
        (list(range(16)), "data x fsdp x tensor"),
    ],
)
def test_the_axes_along_which_devices_differ(devices: list[int], axes: str) -> None:
    """Numbers of a mesh count along its last axis first."""
    assert spanned({"data": 2, "fsdp": 4, "tensor": 2}, devices) == axes


@pytest.mark.parametrize("on", ["v6e-16", "8xH100-80GB", "2x v6e-16"])
def test_weights_that_stay_inside_a_slice_are_no_warning(on: str) -> None:
    assert found(on, "mesh.data=2" if on.startswith("2x") else "mesh.data=1", "batch_size=64") == []


def test_a_model_that_divides_by_nothing_is_replicated() -> None:
    """Everything on `data` is always there to fall back to."""
    odd = dataclasses.replace(DIMS, hidden_size=2049, num_heads=7, num_kv_heads=7, intermediate_size=7, vocab_size=7)
    faults = [f for f in found("2x v6e-4", "mesh.fsdp=4", "mesh.tensor=2", dims=odd) if f.startswith("error")]
    assert len(faults) == 2 and all(f.endswith("; type mesh.data=8 mesh.fsdp=1 mesh.tensor=1") for f in faults)
    assert legal(recipe(), odd, parse("2x v6e-4")) == [(8, 1, 1)]


DIVISIBLE = [
    MODELS["qwen3-tiny"],
    MODELS["qwen3-micro"],
    dataclasses.replace(MODELS["qwen3-tiny"], hidden_size=132),
    dataclasses.replace(MODELS["qwen3-tiny"], intermediate_size=100, num_kv_heads=4),
    dataclasses.replace(MODELS["qwen3-tiny"], vocab_size=514, tie_word_embeddings=False),
    dataclasses.replace(MODELS["qwen3-tiny"], num_heads=6, num_kv_heads=6),
]


def test_the_plan_and_jax_agree_on_what_divides() -> None:
    verdicts = set()
    for dims, shape in itertools.product(DIVISIBLE, factorisations(8, 3)):
        devices = jax.sharding.Mesh(np.array(jax.devices()).reshape(shape), ("data", "fsdp", "tensor"))
        params = jax.tree.leaves(qwen3.declare(dims), is_leaf=is_param)
        theirs = all(divisible(jax.sharding.NamedSharding(devices, p.spec(devices)), p.shape) for p in params)
        axes = [f"mesh.{axis}={n}" for axis, n in zip(("data", "fsdp", "tensor"), shape, strict=True)]
        ours = [f for f in mesh(recipe(*axes), dims, parse("cpu-8")) if "does not divide" in f.message]
        assert theirs == (not ours), (dims, shape)
        verdicts.add(theirs)
    assert verdicts == {True, False}


def divisible(sharding: jax.sharding.NamedSharding, shape: tuple[int, ...]) -> bool:
    try:
        sharding.shard_shape(shape)
    except ValueError:
        return False
    return True


def lines(on: str, *overrides: str) -> list[str]:
    return [f"{f.level}: {f.message}" for f in check(recipe("model.source=random", *overrides), parse(on), ROOT)]


@pytest.mark.parametrize(
    ("on", "line"),
    [
        ("v6e-8", "info: v6e-8: 8 chips (2x4) on 1 host, 8 devices of 31.2 GiB"),
        (
            "tpu7x-64",
            "info: tpu7x-2x4x4: 32 chips (2x4x4) on 8 hosts of 4, 64 devices (2 a chip) of 94.7 GiB; the N of tpu7x-N counts devices",
        ),
        (
            "v5p-16",
            "info: v5p-2x2x2: 8 chips (2x2x2) on 2 hosts of 4, 8 devices of 95.7 GiB; the N of v5p-N counts cores",
        ),
        ("2x v6e-16", "info: 2x v6e-16: 32 chips (4x4 each) on 8 hosts of 4, 32 devices of 31.2 GiB"),
        ("16xH200", "info: 16xH200: 16 GPUs on 2 hosts of 8, 16 devices of 139.8 GiB"),
        ("8xV100-16GB", "inconclusive: V100-16GB has no bfloat16 units"),
    ],
)
def test_a_plan_says_what_a_slice_is(on: str, line: str) -> None:
    assert any(said.startswith(line) for said in lines(on))


def test_a_v100_may_compute_in_float32_and_a_cpu_in_anything() -> None:
    assert not [line for line in lines("8xV100-16GB", "model.compute_dtype=float32") if "bfloat16" in line]
    assert not [line for line in lines("cpu-8") if "slice" in line or "bfloat16" in line]


def test_json_has_the_slice_with_every_mesh_of_it() -> None:
    entry = slice_entry(recipe("model.source=random"), parse("tpu7x-16"), ROOT).model_dump()
    assert (entry["devices"], entry["chips"], entry["hosts"], entry["slices"]) == (16, 8, 2, 1)
    assert (
        entry["xpk"] == "tpu7x-2x2x2"
        and entry["libtpu"] == "tpu7x:2x2x2"
        and entry["machine_type"] == "tpu7x-standard-4t"
    )
    assert {"data": 1, "fsdp": 8, "tensor": 2} in entry["meshes"]
    assert all(m["data"] * m["fsdp"] * m["tensor"] == 16 and m["tensor"] <= 8 for m in entry["meshes"])


def test_the_whole_check_needs_no_jax_and_changes_nothing() -> None:
    code = (
        "import sys\n"
        "for name in ('jax', 'jaxlib', 'numpy', 'torch', 'libtpu'): sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from tests.unit.plan.static import check, slice_entry\n"
        "from podwright.recipe.load import load\n"
        "from podwright.slices import parse\n"
        "made = load('qwen3-1.7b-gsm8k-grpo', ['mesh.fsdp=8', 'mesh.tensor=2'])\n"
        "for on in ('v6e-16', '2x tpu7x-4x8x8', '8xH100-80GB', 'cpu-8'):\n"
        "    before, where = made.model_dump_json(), parse(on)\n"
        "    assert check(made, where, Path('/')) == check(made, where, Path('/')) != []\n"
        "    assert slice_entry(made, where, Path('/')).devices == where.num_devices\n"
        "    assert made.model_dump_json() == before and parse(on) == where\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Which meshes fit the links of a slice: ours against jax itself, on every topology that is sold up to 64 devices, and samples above."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from podwright.accelerators import TPUS
from podwright.plan.checks.meshes import over_links
from podwright.plan.checks.topology import assign, factorisations, refusal
from podwright.slices import Slice, parse, topologies
from tests.unit.plan import real_meshes

needs_libtpu = pytest.mark.skipif(
    not real_meshes.installed(), reason="libtpu is not here; on Linux `pip install -e '.[dev]'` brings it"
)

Shape = Sequence[int]
SOLD = [Slice(row, chips) for row in TPUS if row.pod and row.pod.gke_accelerator for chips in topologies(row.pod)]

# slice, a wanted mesh (axes in jax's order: what needs the links most stands last), the axis without a place, what is left for it
REFUSED: list[tuple[str, dict[str, int], int, list[int]]] = [
    ("tpu7x-2x4x4", {"fsdp": 8, "context": 2, "tensor": 4}, 1, [0, 4, 4, 0]),
    ("tpu7x-2x4x4", {"data": 1, "fsdp": 8, "context": 2, "tensor": 4}, 2, [0, 4, 4, 0]),
    ("tpu7x-2x4x4", {"data": 2, "fsdp": 8, "tensor": 4}, 1, [0, 4, 4, 0]),
    ("tpu7x-64", {"data": 2, "fsdp": 2, "tensor": 16}, 1, [0, 0, 4, 0]),
    ("tpu7x-4x4x4", {"data": 2, "fsdp": 32, "tensor": 2}, 1, [4, 4, 4, 0]),
    ("tpu7x-4x4x8", {"data": 2, "fsdp": 64, "tensor": 2}, 1, [4, 4, 8, 0]),
    ("tpu7x-4x8x8", {"data": 4, "fsdp": 32, "tensor": 4}, 1, [0, 8, 8, 2]),
    ("tpu7x-512", {"data": 2, "fsdp": 128, "tensor": 2}, 1, [4, 8, 8, 0]),
    ("v6e-16", {"fsdp": 8, "tensor": 2}, 1, [4, 4, 1]),
    ("v6e-16", {"data": 1, "fsdp": 8, "tensor": 2}, 2, [4, 4, 1]),
    ("v6e-16", {"data": 1, "fsdp": 2, "tensor": 8}, 2, [4, 4, 1]),
    ("v6e-16", {"data": 2, "fsdp": 8, "tensor": 1}, 1, [4, 4, 0]),
    ("v6e-16", {"data": 2, "fsdp": 2, "tensor": 4}, 1, [0, 4, 0]),
    ("v6e-32", {"data": 1, "fsdp": 16, "tensor": 2}, 2, [4, 8, 1]),
    ("v6e-32", {"data": 2, "fsdp": 16, "tensor": 1}, 1, [4, 8, 0]),
    ("v6e-64", {"data": 1, "fsdp": 16, "tensor": 4}, 2, [8, 8, 1]),
    ("v6e-64", {"data": 1, "fsdp": 32, "tensor": 2}, 2, [8, 8, 1]),
    ("v6e-128", {"data": 1, "fsdp": 32, "tensor": 4}, 2, [8, 16, 1]),
    ("v6e-256", {"data": 1, "fsdp": 64, "tensor": 4}, 2, [16, 16, 1]),
    ("v6e-256", {"data": 8, "fsdp": 32, "tensor": 1}, 1, [16, 16, 0]),
    ("v5p-64", {"data": 2, "fsdp": 2, "tensor": 8}, 1, [0, 0, 4]),
    ("v5p-128", {"data": 1, "fsdp": 32, "tensor": 2}, 2, [4, 4, 4]),
    ("v5p-128", {"data": 1, "fsdp": 8, "tensor": 8}, 2, [4, 4, 4]),
    ("v5p-4x4x12", {"data": 1, "fsdp": 24, "tensor": 8}, 2, [4, 4, 12]),
]


def words(axis: int, size: int, left: list[int]) -> str:
    return (
        f"Failed to find assignment for logical_axis_index {axis} of size {size} with remaining assignable mesh {left}"
    )


@pytest.mark.parametrize(("name", "axes", "axis", "left"), REFUSED)
def test_a_mesh_that_jax_refuses_is_refused_in_its_words(
    name: str, axes: dict[str, int], axis: int, left: list[int]
) -> None:
    shape = list(axes.values())
    assert math.prod(shape) == parse(name).num_devices
    assert str(refusal(parse(name), shape)) == words(axis, shape[axis], left)
    assert refusal(parse(name), shape, split=True) is None


def test_an_axis_takes_as_many_whole_physical_axes_as_it_can() -> None:
    assert assign((2, 4, 4, 2), (8, 8)) == [(2, 3), (0, 1)]
    assert assign((4, 4, 4), (4, 1, 16)) == [(2,), (), (0, 1)]
    assert assign((4, 4, 1), (16, 1)) == [(0, 1), (2,)]


@pytest.mark.parametrize("name", ["8xH100-80GB", "16xA100-80GB", "cpu-12"])
def test_gpus_and_cpu_devices_take_any_mesh(name: str) -> None:
    where = parse(name)
    shapes = list(factorisations(where.devices_per_granule, 3))
    assert len(shapes) > 9 and not [s for s in shapes if refusal(where, s)]


def test_factorisations_are_all_ordered_ones() -> None:
    assert list(factorisations(4, 2)) == [(1, 4), (2, 2), (4, 1)]
    assert len(list(factorisations(64, 3))) == 28 and all(math.prod(s) == 64 for s in factorisations(64, 4))


Question = tuple[Slice, list[Any], bool]


@needs_libtpu
def test_jax_answers_the_same_on_all_small_slices_and_for_every_mesh() -> None:
    small = [where for where in SOLD if where.num_devices <= 64]
    assert len(small) == 22
    questions: list[Question] = []
    for where in small:
        shapes = [*factorisations(where.num_devices, 3), *factorisations(where.num_devices, 4)]
        questions += [(where, shapes, False), (where, shapes, True)]
    assert disagreements(questions) == []


@needs_libtpu
def test_jax_answers_the_same_on_samples_of_large_slices() -> None:
    draw = random.Random(0)
    large = [where for where in SOLD if 64 < where.num_devices <= 1024]
    questions: list[Question] = []
    for where in draw.sample(large, 16):
        shapes = [s for num in (2, 3, 4) for s in factorisations(where.num_devices, num)]
        good, bad = ([s for s in shapes if bool(refusal(where, s, split=False)) is wrong] for wrong in (False, True))
        questions.append((where, [*draw.sample(good, min(6, len(good))), *draw.sample(bad, min(6, len(bad)))], False))
    assert disagreements(questions) == []


def disagreements(questions: list[Question]) -> list[tuple[str, Shape, bool, str, str]]:
    """Slice, mesh, whether axes may be split, what jax says, what we say, wherever these differ."""
    asked = [
        {"libtpu": where.libtpu, "shapes": shapes, "how": "create", "split": split}
        for where, shapes, split in questions
    ]
    found = []
    for (where, shapes, split), answers in zip(questions, real_meshes.ask(asked), strict=True):
        for shape, theirs in zip(shapes, answers, strict=True):
            ours = str(refusal(where, shape, split=split) or "")
            if theirs.split(". ")[0] != ours:
                found.append((where.name, shape, split, theirs, ours))
    return found


@needs_libtpu
def test_the_trainer_makes_what_the_plan_says_it_will() -> None:
    names = [
        "v5e-16",
        "v5e-32",
        "v6e-8",
        "v6e-16",
        "v5p-16",
        "tpu7x-32",
        "tpu7x-64",
        "2x v5e-16",
        "2x v6e-8",
        "2x v6e-16",
        "4x tpu7x-8",
        "3x v6e-4",
    ]
    questions = [(parse(name), list(factorisations(parse(name).num_devices, 3))) for name in names]
    asked = [{"libtpu": where.libtpu, "shapes": shapes, "how": "trainer"} for where, shapes in questions]
    kinds = set()
    for (where, shapes), answers in zip(questions, real_meshes.ask(asked), strict=True):
        for shape, theirs in zip(shapes, answers, strict=True):
            ours = over_links(where, dict(zip(("data", "fsdp", "tensor"), shape, strict=True)))
            kinds.add(ours.split(" ")[0])
            assert bool(theirs) == bool(ours), (where.name, shape, theirs, ours)
            if theirs.startswith("Failed"):
                assert theirs.startswith(ours.partition(" (axis")[0]), (where.name, shape)
            elif theirs:
                assert "cannot be shared out to" in theirs and "cannot be shared out to" in ours
    assert kinds == {"", "Failed", "data"}

"""The closed form of memory and time: against arrays that are really declared, and against the compiler's kept figures."""

import json
from pathlib import Path

import jax
import pytest

from podwright import slices
from podwright.accelerators import GIB
from podwright.cli import show
from podwright.kernels import grouped, splash
from podwright.plan import kinds
from podwright.plan.checks import meshes
from podwright.plan.compiled import work
from podwright.plan.document import MemoryEntry
from podwright.plan.estimates import layers, memory, memory_grpo, step_time_estimate
from podwright.recipe import load
from podwright.recipe.models import MODELS, find
from podwright.recipe.schema import GrpoMesh
from podwright.report.figures import memory_chart
from podwright.train.grpo import program, rollout
from podwright.train.mesh import make_mesh

SHIPPED = "qwen3-1.7b-gsm8k-grpo"
RESULTS = Path(__file__).resolve().parents[3] / "bench/results"
ROWS = json.loads(sorted(RESULTS.glob("plan_estimates-*.json"))[-1].read_text())["rows"]


def estimate(*overrides, on="v6e-8", name=SHIPPED):
    recipe, where = load.load(name, list(overrides)), slices.parse(on)
    found = memory_grpo.estimates(
        recipe,
        find(recipe.model.name),
        meshes.resolved(recipe, where),
        where.accelerator,
        kinds.of(recipe).programs(recipe),
    )
    return {one.name: one for one in found}


@pytest.mark.parametrize("rank", [0, 2])
def test_what_stays_on_the_devices_is_what_the_trainer_declares(rank):
    recipe = load.load(
        "qwen3-tiny-gsm8k-grpo", ["mesh.data=2", "mesh.fsdp=2", "mesh.tensor=2", f"model.lora_rank={rank}"]
    )
    dims = MODELS["qwen3-tiny"]
    setup = program.GrpoSetup(recipe, dims, make_mesh(GrpoMesh(data=2, fsdp=2, tensor=2), jax.devices()[:8]), (0,), 0)
    (found,) = memory_grpo.estimates(recipe, dims, (2, 2, 2), slices.parse("v6e-8").accelerator, ["update"])

    def size(tree):
        return sum(
            x.dtype.itemsize * int(jax.numpy.prod(jax.numpy.array(x.sharding.shard_shape(x.shape))))
            for x in jax.tree.leaves(tree)
        )

    state = program.abstract_state(setup, program.policy_schedule(recipe))
    base = program.abstract_base(setup)
    assert found.parts["weights"] == pytest.approx(size(state.params) + size(base), rel=0.04)
    assert found.parts["optimizer"] == pytest.approx(size(state.opt_state), rel=0.02)
    resident = program.programs(setup)["update"].resident
    assert found.parts.get("reference", 0) == pytest.approx(size(resident.get("reference", ())), rel=0.02)


def test_what_a_plan_knows_of_programs_is_true_of_them():
    assert layers.LANES == splash.LANES
    assert work.ROWS_OF_A_TILE == grouped.MOST_ROWS


@pytest.mark.parametrize("most", [16, 512, 700, 1024, 2048, 3000])
def test_the_rooms_of_decoding_are_the_trainers(most):
    read = [next(room for room in rollout._rooms(most) if token < room) for token in range(most)]
    assert step_time_estimate._mean_room(most) == pytest.approx(sum(read) / most)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['recipe']} {row['on']} {row['overrides']}")
def test_the_largest_program_is_within_15_percent_of_the_compiler(row):
    """The compiled figures are those that `bench/plan_estimates.py` kept; the estimates are made anew."""
    found = estimate(*row["overrides"].split(), on=row["on"], name=row["recipe"])
    most = max(p["compiled_gib"] for p in row["programs"])
    assert max(one.total for one in found.values()) / GIB == pytest.approx(most, rel=memory.ERROR, abs=0.05)


COMPILED = json.loads(sorted(RESULTS.glob("plan_compile-*.json"))[-1].read_text())["rows"]


@pytest.mark.parametrize(
    "row", [r for r in COMPILED if r["ok"] and r["depth"] == "quick"], ids=lambda r: f"{r['on']} {r['overrides']}"
)
def test_every_program_is_within_15_percent_at_the_wanted_settings(row):
    """The compiled figures are those that `bench/plan_compile.py` kept, of the shipped GRPO of Qwen3-1.7B."""
    found = estimate(*row["overrides"], on=row["on"])
    for told in row["programs"]:
        assert found[told["name"]].total / GIB == pytest.approx(told["hbm_gib"], rel=memory.ERROR), told["name"]


@pytest.mark.parametrize(
    "row",
    [r for r in ROWS if "compiled_step_s" in r and r["recipe"] == SHIPPED],
    ids=lambda r: f"{r['on']} {r['overrides']}",
)
def test_the_time_of_a_step_is_near_that_of_the_compiled_schedule(row):
    recipe, where = load.load(SHIPPED, row["overrides"].split()), slices.parse(row["on"])
    seconds = step_time_estimate.step_seconds(recipe, find(recipe.model.name), meshes.resolved(recipe, where), where)
    assert sum(seconds.values()) == pytest.approx(row["compiled_step_s"], rel=0.35)


def test_more_devices_split_what_is_sharded_and_data_copies_it():
    few, many, copied = (
        estimate("batch_size=32", *more, on=on)["update"].parts
        for on, more in (("v6e-8", []), ("v6e-16", []), ("v6e-16", ["mesh.data=4", "mesh.fsdp=4"]))
    )
    for part in ("weights", "optimizer", "reference", "gradients"):
        assert many[part] == few[part] / 2 and copied[part] == 4 * many[part]
    assert many["activations"] == few["activations"] / 2 == copied["activations"]


def test_without_the_kernel_scores_are_counted():
    tpu, gpu = estimate("batch_size=8")["score"], estimate("batch_size=8", on="8xH100-80GB")["score"]
    tokens, heads = 2048 * 8, 16
    assert gpu.parts["layer"] - tpu.parts["layer"] > 4 * heads * tokens * 2048


def test_the_findings_are_sure_only_beyond_the_error():
    def level(gib):
        entry = MemoryEntry(name="update", estimated_gib=gib, limit_gib=10.0, parts_gib={"layer": gib})
        found = memory.findings([entry], lambda: "type this", "type that")
        return found and (found[0].level, found[0].fix)

    assert level(8.4) == []
    assert level(8.6) == level(11.4) == ("inconclusive", "type that")
    assert level(11.6) == ("error", "type this")


def test_bars_show_every_part_in_proportion(capsys):
    assert set(show.LETTERS) == set(memory.PARTS) and len(set(show.LETTERS.values())) == len(show.LETTERS)
    parts = {"weights": 5.0, "activations": 10.0}
    show.estimates([MemoryEntry(name="update", estimated_gib=15.0, limit_gib=20.0, parts_gib=parts)])
    bar, legend = capsys.readouterr().out.splitlines()
    assert bar == "update     " + "w" * 10 + "a" * 20 + "." * 10 + " about 15.0 of 20.00 GiB" and legend.split() == [
        "w",
        "weights,",
        "a",
        "activations",
    ]
    show.estimates([MemoryEntry(name="update", estimated_gib=50.0, limit_gib=20.0, parts_gib={"weights": 50.0})])
    assert "w" * 40 + "+" in capsys.readouterr().out


def test_the_picture_has_all_programs_and_parts():
    assert set(memory.PARTS) <= set(memory_chart.COLORS)
    bars = [(name, {part: size / GIB for part, size in one.parts.items()}) for name, one in estimate().items()]
    drawn = memory_chart.svg("plan", bars, 31.2)
    assert drawn.startswith("<svg") and all(
        f">{name}<" in drawn for name in ("update", "rollout", "activations", "cache", "GiB per device")
    )

"""The search for settings: every one is legal, the chosen one is the fastest that fits, and what fits nowhere is said."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from podwright import slices
from podwright.accelerators import TPUS
from podwright.cli.app import main
from podwright.plan import fit, kinds
from podwright.plan.checks.meshes import resolved
from podwright.plan.document import Plan
from podwright.plan.estimates.step_time_estimate import step_seconds
from podwright.plan.findings import Verdict
from podwright.recipe import load
from podwright.recipe.models import MODELS
from tests.unit.plan.static import check

SHIPPED = "qwen3-1.7b-gsm8k-grpo"
PRETRAIN = ["data.source=arithmetic", "data.tokenizer=bytes", "data.num_documents=2000000", "data.num_epochs=0"]
V6E = next(row for row in TPUS if row.name == "v6e")


def search(*overrides, on="v6e-8", name=SHIPPED):
    recipe = load.load(name, ["batch_size=32", *overrides])
    return fit.candidates(recipe, kinds.of(recipe).dimensions(recipe, Path()), slices.parse(on))


@pytest.mark.parametrize(
    ("on", "name", "overrides"),
    [
        ("v6e-8", SHIPPED, []),
        ("v6e-16", SHIPPED, []),
        ("tpu7x-8", SHIPPED, []),
        ("2x v6e-8", SHIPPED, []),
        ("8xH100-80GB", SHIPPED, []),
        ("8xH100-80GB", "qwen3-0.6b-pretrain", PRETRAIN),
        ("v6e-4", "almodel-tiny", ["batch_size=8", *PRETRAIN]),
    ],
)
def test_every_candidate_is_a_legal_recipe(tmp_path, on, name, overrides):
    found = search(*overrides, on=on, name=name)
    assert len(found) > 10
    for one in found:
        load.parse(one.recipe.model_dump(mode="json"))
        errors = [
            f
            for f in check(one.recipe, slices.parse(on), tmp_path)
            if f.level == "error" and f.check in ("mesh", "batch")
        ]
        assert not errors, (one.typed, errors)


def test_what_fits_stands_first_and_the_fastest_of_it_first():
    found, limit = search(), V6E.hbm_bytes
    fits = [one.need_bytes <= limit for one in found]
    assert fits == sorted(fits, reverse=True) and any(fits) and not all(fits)
    fast = [one.step_s for one, ok in zip(found, fits, strict=True) if ok]
    assert fast == sorted(fast)


def test_which_compiler_is_installed_is_looked_up_once_and_not_for_each_candidate(monkeypatch):
    asked = []
    monkeypatch.setattr("podwright.plan.compiled.compile.has_compiler", lambda where: asked.append(where) or True)
    assert len(search()) > 10 and len(asked) <= 2


def test_no_micro_batch_more_than_memory_asks_for():
    """The chosen settings fill the memory: with half of the micro-batches they would not fit, or have none to give up."""
    best = search("mesh.fsdp=8")[0]
    parts = best.overrides["training.gradient_accumulation_steps"]
    fewer = [c for c in search() if c.overrides | {"training.gradient_accumulation_steps": parts} == best.overrides]
    assert all(
        c.need_bytes > V6E.hbm_bytes for c in fewer if c.overrides["training.gradient_accumulation_steps"] < parts
    )
    assert best.need_bytes > 0.6 * V6E.hbm_bytes


def test_the_pareto_table_holds_what_nothing_beats():
    found = search()
    kept = fit.pareto(found)
    for one in found:
        better = [c for c in kept if c.step_s <= one.step_s and c.need_bytes <= one.need_bytes]
        assert better, one.typed
    assert all(not (a.step_s <= b.step_s and a.need_bytes <= b.need_bytes) for a in kept for b in kept if a is not b)


def test_the_smallest_slice_holds_it_and_the_one_below_does_not():
    recipe = load.load(SHIPPED, ["batch_size=32", "model.name=qwen3-4b", "model.source=random"])
    dims = MODELS["qwen3-4b"]
    smallest = next(fit.memory_search(recipe, dims, Path()).slices(recipe, V6E))
    below = [s for s in slices.sold(V6E) if s.num_chips < smallest.num_chips]
    assert below and all(c.need_bytes > V6E.hbm_bytes for s in below for c in fit.candidates(recipe, dims, s))


def test_a_slice_that_was_refused_is_not_the_one_to_take(capsys):
    """Without a compiler the search keeps clear of the limit, and so does what it advises."""
    for size in ("1.7b", "4b", "8b", "14b"):
        for on in ("1xH100-80GB", "2xH100-80GB", "4xH100-80GB", "8xH100-80GB", "4xA100-40GB"):
            main(
                [
                    "plan",
                    SHIPPED,
                    "model.source=random",
                    f"model.name=qwen3-{size}",
                    "batch_size=32",
                    "--on",
                    on,
                    "--fit",
                    "--json",
                ]
            )
            told = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["check"] == "fit"]
            assert all(f"--on {on}," not in f["fix"] for f in told)


def test_rows_of_a_test_batch_give_way_before_the_search_fails():
    (first, *_) = search("evaluation.batch_size=4096", on="v6e-8")
    assert first.need_bytes <= V6E.hbm_bytes and first.overrides["evaluation.batch_size"] < 4096


def test_a_reference_waits_on_the_hosts_only_where_there_is_one():
    trained = ["model.name=qwen3-4b", "model.source=random"]
    waiting, without = (
        {c.overrides.get("grpo.offload_reference") for c in search(f"grpo.beta={beta}", *trained)} for beta in (0.08, 0)
    )
    assert waiting == {None, True} and without == {None}


def plan(capsys, *argv):
    code = main(["plan", SHIPPED, "model.source=random", *argv, "--fit", "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_a_gpu_slice_is_searched_without_a_compiler(capsys):
    code, found, _ = plan(capsys, "batch_size=32", "--on", "8xH100-80GB")
    assert code == 4 and found["programs"] == [] and found["fit"]["on"] == "8xH100-80GB"
    (chosen,) = [row for row in found["fit"]["settings"] if row["chosen"]]
    assert (
        chosen["fits"]
        and not chosen["compiled"]
        and all(word in chosen["typed"] for word in found["fit"]["typed"].split())
    )
    again = main(
        [
            "plan",
            SHIPPED,
            "model.source=random",
            "batch_size=32",
            *found["fit"]["typed"].split(),
            "--on",
            "8xH100-80GB",
            "--json",
        ]
    )
    assert again == code and json.loads(capsys.readouterr().out)["memory"] == found["memory"]


def test_pretraining_is_searched_by_mesh_micro_batches_and_remat(capsys):
    """The plan is that of the fastest settings that fit by the estimate, and the plan of what it says to type is the same."""
    argv = ["plan", "qwen3-0.6b-pretrain", "model.name=qwen3-8b", *PRETRAIN, "--on", "8xH100-80GB", "--json"]
    assert main([*argv, "--fit"]) == 0
    found = json.loads(capsys.readouterr().out)
    best, *others = search("model.name=qwen3-8b", "batch_size=128", on="8xH100-80GB", name="qwen3-0.6b-pretrain")
    assert found["fit"]["overrides"] == best.overrides and found["fit"]["searched"] == len(others) + 1
    limit = fit.room(slices.parse("8xH100-80GB"))
    assert best.need_bytes <= limit and all(c.step_s >= best.step_s for c in others if c.need_bytes <= limit)
    assert {c.overrides["model.remat"] for c in others} == {"none", "layer", "attention", "products"}
    assert main([*argv, *found["fit"]["typed"].split()]) == 0
    assert json.loads(capsys.readouterr().out)["memory"] == found["memory"]


# by the compiler of libtpu 0.0.42: bench/plan_pretrain.py, and settings of bench/plan_estimates.py --kind pretrain (docs/log.md)
COMPILED_S = [
    ("qwen3-0.6b-pretrain", "v6e-8", "", 1.777),
    ("qwen3-0.6b-pretrain", "v6e-8", "model.remat=attention", 1.672),
    ("qwen3-0.6b-pretrain", "v6e-8", "model.remat=none batch_size=16", 0.269),
    ("qwen3-0.6b-pretrain", "v6e-8", "training.gradient_accumulation_steps=2", 1.779),
    ("qwen3-0.6b-pretrain", "v6e-8", "mesh.tensor=2 batch_size=64", 1.210),
    ("qwen3-0.6b-pretrain", "v6e-8", "sequence_length=16384 batch_size=16", 1.668),
    ("qwen3-0.6b-pretrain", "v6e-8", "model.name=qwen3-1.7b batch_size=64", 1.380),
    ("qwen3-0.6b-pretrain", "v6e-8", "mesh.fsdp=4 mesh.tensor=2 batch_size=32 training.gradient_accumulation_steps=8", 0.594),
    ("qwen3-0.6b-pretrain", "v6e-16", "model.name=qwen3-4b batch_size=32", 0.965),
    ("qwen3-0.6b-pretrain", "v6e-16", "model.name=qwen3-4b batch_size=32 mesh.data=4 mesh.fsdp=4", 1.078),
    ("qwen3-0.6b-pretrain", "v6e-16", "model.name=qwen3-4b batch_size=32 mesh.fsdp=4 mesh.tensor=4", 1.583),
    ("almodel-8b-tpu7x-64", "tpu7x-64", "", 2.354),
    ("almodel-8b-tpu7x-64", "tpu7x-64", "model.remat=products", 2.140),
    ("deepseek-v3-tpu7x-256", "tpu7x-4x4x8", "", 12.841),
    ("deepseek-v3-tpu7x-256", "tpu7x-4x4x8", "mesh.fsdp=32 mesh.tensor=8", 7.628),
    ("deepseek-v3-tpu7x-256", "tpu7x-4x4x8", "mesh.fsdp=32 mesh.expert=8 model.remat=products", 10.929),
]  # fmt: skip


@pytest.mark.parametrize(("name", "on", "overrides", "compiled_s"), COMPILED_S)
def test_the_time_of_a_step_of_pretraining_is_near_that_of_the_compiled_schedule(name, on, overrides, compiled_s):
    recipe, where = load.load(name, overrides.split()), slices.parse(on)
    part = kinds.of(recipe)
    assert part.step_seconds(recipe, part.dimensions(recipe, Path()), where) == pytest.approx(compiled_s, rel=0.21)


def test_meshes_and_remat_of_pretraining_rank_as_the_compiler_ranks_them():
    """The settings above that compute the same; those with no difference of 5 % are left out."""
    same = [COMPILED_S[:2], COMPILED_S[8:11], COMPILED_S[11:13], COMPILED_S[13:]]
    for rows in same:
        seconds = {}
        for name, on, overrides, compiled_s in rows:
            recipe = load.load(name, overrides.split())
            part = kinds.of(recipe)
            seconds[compiled_s] = part.step_seconds(recipe, part.dimensions(recipe, Path()), slices.parse(on))
        assert sorted(seconds, key=seconds.__getitem__) == sorted(seconds)


def test_of_a_card_without_a_number_the_fewest_that_hold_the_recipe_are_taken(capsys):
    for size, typed, on in (
        ("0.6b", "H100-80GB", "1xH100-80GB"),
        ("4b", "H100-80GB", "2xH100-80GB"),
        ("4b", "NVIDIA H100 80GB HBM3", "2xH100-80GB"),
    ):
        _, found, _ = plan(capsys, f"model.name=qwen3-{size}", "batch_size=8", "--on", typed)
        assert found["fit"]["on"] == on


def test_what_fits_nowhere_there_is_told_with_the_slice_that_holds_it(capsys):
    code, found, _ = plan(capsys, "model.name=qwen3-32b", "batch_size=32", "--on", "4xA100-40GB")
    (error,) = [f for f in found["findings"] if f["check"] == "fit"]
    assert code == 3 and found["ok"] is False and "fit" not in found
    assert (
        error["message"]
        == f"none of the settings that were searched makes {SHIPPED} with batch_size=32 fit 4xA100-40GB"
    )
    assert error["fix"].startswith("type --on ") and "the smallest that holds it" in error["fix"]


def test_what_a_search_cannot_mend_is_said_first(capsys):
    code, found, _ = plan(capsys, "data.source=nowhere.jsonl", "mesh.fsdp=7", "--on", "8xH100-80GB")
    assert code == 3 and "fit" not in found
    assert [f["message"] for f in found["findings"] if f["check"] == "data"] == [
        "data.source=nowhere.jsonl is not there"
    ]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["--on", "cpu-2"],
            "--on cpu-2 has no limit of memory that --fit could keep; leave --fit out, or type podwright plan with a slice such as --on v6e-16",
        ),
        ([], "--on local has no limit of memory that --fit could keep"),
        (
            ["model.name=qwen3-32b", "rollout.total_generation_steps=30000", "--on", "v5e"],
            "no v5e slice holds",
        ),
    ],
)
def test_a_search_that_cannot_be_is_one_line(capsys, argv, said):
    code, document, err = plan(capsys, *argv)
    assert code == 2 and said in f"{document['error']}; {document['fix']}" and len(err.splitlines()) == 1


def step(where, *mesh):
    recipe = load.load(SHIPPED, ["batch_size=32", *mesh])
    return step_seconds(recipe, MODELS[recipe.model.name], resolved(recipe, where), where)


def test_layers_that_are_computed_again_gather_their_weights_once_more():
    """As a pass of scores does, once. What links take is twice what links of twice the speed save."""
    where = slices.parse("v6e-8")
    fast = replace(where, accelerator=replace(where.accelerator, ici_bandwidth=2 * where.accelerator.ici_bandwidth))

    def on_links(remat):
        slow_s, fast_s = (step(on, "mesh.fsdp=8", f"model.remat={remat}") for on in (where, fast))
        return {name: 2 * (slow_s[name] - fast_s[name]) for name in slow_s}

    again, once = on_links("layer"), on_links("none")
    assert once["score"] > 0 and again["score"] == pytest.approx(once["score"])
    assert again["update"] - once["update"] == pytest.approx(once["score"])


def test_hosts_and_their_network_count_in_the_time_of_a_step():
    """8 GPUs of one node, two nodes of four, and the same with a network as slow as that of cards in PCIe slots."""
    node, nodes = slices.parse("8xA100-40GB"), slices.of_hosts(2, 4, "A100-40GB")
    slow = replace(nodes, accelerator=replace(nodes.accelerator, dcn_bandwidth=12.5e9 / 8))
    together, apart, far = (step(where, "mesh.fsdp=8") for where in (node, nodes, slow))
    assert all(together[name] < apart[name] < far[name] for name in ("rollout", "score", "update"))
    assert far["update"] > 2 * apart["update"] - together["update"]
    # copies exchange gradients alone: rollouts and scores stay on their node
    together, apart, far = (step(where, "mesh.data=2", "mesh.fsdp=4") for where in (node, nodes, slow))
    assert together["rollout"] == far["rollout"] and together["score"] == far["score"]
    assert together["update"] < apart["update"] < far["update"]


def test_of_settings_that_were_compiled_the_fastest_that_fits_is_chosen():
    def compiled(seconds, *verdicts, verdict=Verdict.OK):
        programs = [SimpleNamespace(verdict=each) for each in verdicts]
        step = SimpleNamespace(step_s=seconds) if seconds else None
        return Plan.model_construct(programs=programs, step=step, verdict=verdict)

    plans = {
        "too large": compiled(1.0, "fits", "too large"),
        "refused": compiled(0.5, "fits", verdict=Verdict.REFUSED),
        "unknown": compiled(0.7, "fits", "unknown"),
        "without a time": compiled(None, "fits"),
        "slow": compiled(3.0, "fits"),
        "fast": compiled(2.0, "fits"),
    }
    ranked = sorted(plans, key=lambda name: fit._rank(plans[name]))
    assert ranked[:3] == ["fast", "slow", "without a time"]
    assert [fit._fits(plans[name]) for name in ("too large", "refused", "unknown", "fast")] == [
        False,
        False,
        None,
        True,
    ]


def test_of_each_mesh_the_fastest_setting_is_compiled():
    fits = [each for each in search() if each.need_bytes <= fit.room(slices.parse("v6e-8"))]
    chosen = fit._of_each_mesh(fits)
    meshes, all_meshes = ([each.recipe.mesh for each in listed] for listed in (chosen, fits))
    assert len(set(meshes)) == len(meshes) > 1 and chosen[0] is fits[0] and set(all_meshes) == set(meshes)

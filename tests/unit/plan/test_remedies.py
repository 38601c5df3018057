"""Remedies lead out: whoever types what a plan says comes to a plan that is not refused, in a few steps, each of which is better."""

import random
import re
from pathlib import Path
from unittest import mock

import pytest

from podwright import slices
from podwright.accelerators import GPUS, TPUS
from podwright.errors import UserError
from podwright.plan import fit, kinds, settings
from podwright.plan.compiled.compile import CompileContext
from podwright.plan.estimates import memory
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.plan.remedies import LESS
from podwright.recipe import load

from .static import DRAWN_GRPO

PRETRAIN = ["data.source=arithmetic", "data.tokenizer=bytes", "data.num_documents=2000000", "data.num_epochs=0"]
_STEPS = 4


def planned(name, overrides, on):
    recipe = load.load(name, overrides)
    where = slices.parse(on)
    return make(recipe, Destination(on, where), PlanOptions(cwd=Path()))


def worst(plan):
    """Whether there is no mesh to work memory out for, how many checks refuse, and by how much the largest program is too large."""
    over = [e.estimated_gib / e.limit_gib for e in plan.memory]
    refusing = {f.check for f in plan.errors}
    return bool(refusing & {"mesh", "batch"}), len(refusing), max([1.0, *over])


def typed(fix):
    """The words of a fix that can be typed: the last --on, and the first pairs after `type`."""
    command = re.split(r", or |; --fit|, which| \(", fix.rpartition("type ")[2])[0]
    on = re.search(r"--on (\S+)", command)
    return on and on[1], re.findall(r"[a-z_.0-9]+=\S+", command)


def searched(name, overrides, on):
    """The plan of --fit, without a compiler."""
    context = CompileContext(Path(), print)
    recipe, where = load.load(name, overrides), slices.parse(on)
    with mock.patch.object(fit.aot, "find_compiler", lambda *_: None):
        return make(recipe, Destination(on, where), PlanOptions(fit=True, context=context, cwd=Path()))


def fix_of_search(name, overrides, on):
    return next(f.fix for f in searched(name, overrides, on).findings if f.check == "fit")


def followed(name, overrides, on):
    """The plans of a chain of remedies, the first one among them. A search is typed as its plan names it."""
    plans = [planned(name, overrides, on)]
    while plans[-1].errors and len(plans) <= _STEPS:
        fix = plans[-1].errors[0].fix
        if fix == memory.FIT:
            found = searched(name, overrides, on)
            if found.errors:
                fix = found.errors[0].fix
                assert "--fit" in fix or fix == LESS, fix
                return [*plans, found]
            if found.fit is None:  # only the compiler could decide
                return [*plans, found]
            fix = f"type {found.fit.typed}"
        slice_, pairs = typed(fix)
        assert slice_ or pairs, fix
        on = slice_ or on
        keys = [pair.partition("=")[0] for pair in pairs]
        overrides = [o for o in overrides if o.partition("=")[0] not in keys] + pairs
        plans.append(planned(name, overrides, on))
        assert worst(plans[-1]) < worst(plans[-2]), (fix, worst(plans[-2]), worst(plans[-1]))
    return plans


def test_what_is_too_large_is_searched():
    name, *overrides = DRAWN_GRPO
    overrides += ["model.name=qwen3-14b", "mesh.fsdp=-1"]
    plan = planned(name, overrides, "v6e-32")
    assert {(f.fix, f.code) for f in plan.errors} == {(memory.FIT, "too-large")}
    assert not followed(name, overrides, "v6e-32")[-1].errors


def test_a_search_names_the_smallest_slice_that_holds_a_recipe():
    name, *overrides = DRAWN_GRPO
    overrides += ["model.name=qwen3-32b", "mesh.fsdp=-1"]
    fix = fix_of_search(name, overrides, "v6e-8")
    found = re.search(r"--on (\S+) --fit, the smallest that holds it$", fix)
    assert found and not searched(name, overrides, found[1]).errors, fix
    below = [s.name for s in slices.sold(slices.parse("v6e-8").accelerator)]
    assert fix_of_search(name, overrides, below[below.index(found[1]) - 1]).endswith(found[0])


def test_a_search_names_adapters_where_they_fit_and_a_trained_copy_of_the_model_does_not():
    name, *overrides = DRAWN_GRPO
    overrides += ["model.name=qwen3-4b", "mesh.fsdp=-1", "rollout.total_generation_steps=2048"]
    fix = fix_of_search(name, overrides, "1xH100-80GB")
    adapters = re.fullmatch(r"type (.+) --fit \(LoRA\), or --on \S+ --fit, the smallest that holds it", fix)
    assert adapters and "model.lora_rank=16" in adapters[1]
    assert not searched(name, [*overrides, *adapters[1].split()], "1xH100-80GB").errors
    frozen = fix_of_search(
        name, [*overrides, "model.lora_rank=16", "rollout.total_generation_steps=30000"], "1xL4-24GB"
    )
    assert "model.lora_rank=16" not in frozen


def test_a_search_for_a_target_names_gpus_and_no_slice():
    name, *overrides = DRAWN_GRPO
    recipe = load.load(name, [*overrides, "model.name=qwen3-14b", "mesh.fsdp=-1"])
    where = slices.of_hosts(2, 4, "A100-40GB")
    options = PlanOptions(cwd=Path(), fit=True, context=CompileContext(Path(), print))
    fix = make(recipe, Destination("lab", where, gpus_per_node=4), options).errors[0].fix
    number = re.search(r"use (\d+) such GPUs", fix)
    assert number and int(number[1]) > 8 and "--on" not in fix


def drawn(number):
    """A recipe, its overrides and a slice, by a seed."""
    rng = random.Random(number)
    if rng.random() < 0.6:
        name, *overrides = DRAWN_GRPO
        models = ["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b"]
        overrides = [o for o in overrides if not o.startswith(("batch_size", "data.num_train"))]
        overrides += ["data.num_train=20000"]
        overrides += [f"rollout.total_generation_steps={rng.choice([512, 2048, 8192])}"]
        overrides += [f"grpo.beta={rng.choice([0, 0.08])}", f"evaluation.batch_size={rng.choice([64, 256, 1024])}"]
    else:
        name, overrides, models = "qwen3-0.6b-pretrain", [*PRETRAIN], ["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"]
        overrides += [f"sequence_length={rng.choice([1024, 4096])}", "training.max_steps=10"]
    overrides += [f"model.name={rng.choice(models)}", f"batch_size={rng.choice([32, 64, 128])}"]
    overrides += [f"model.remat={rng.choice(['none', 'layer'])}", f"mesh.fsdp={rng.choice([-1, -1, 4, 7])}"]
    on = rng.choice(
        [
            "v6e-4",
            "v6e-8",
            "v6e-32",
            "v5e-16",
            "v5p-16",
            "2x v6e-8",
            "8xA100-40GB",
            "8xH100-80GB",
            "tpu7x-4x4x8",
            "tpu7x-4x8x16",
        ]
    )
    return name, overrides, on


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (30, 60, 90))])
def test_a_chain_of_remedies_ends_in_a_plan_that_is_not_refused(first):
    lengths = []
    for number in range(first, first + 30):
        name, overrides, on = drawn(number)
        plans = followed(name, overrides, on)
        assert all(f.check == "fit" for f in plans[-1].errors), (name, overrides, on, [f.fix for f in plans[-1].errors])
        lengths.append(len(plans))
    assert max(lengths) > 1


@pytest.mark.long
@pytest.mark.parametrize(("on", "fix"), [("v6e-8", "type --compile"), ("8xH100-80GB", "start it there with --smoke 3")])
def test_what_is_too_near_to_tell_is_told_what_can_tell(on, fix):
    limit = slices.parse(on).accelerator.hbm_bytes / 1024**3
    name, *overrides = DRAWN_GRPO
    for steps in range(512, 20000, 256):
        plan = planned(name, [*overrides, "mesh.fsdp=-1", f"rollout.total_generation_steps={steps}"], on)
        if 0.9 * limit < max(e.estimated_gib for e in plan.memory) < 1.1 * limit:
            break
    near = [f for f in plan.findings if f.check == "memory" and f.level == "inconclusive"]
    assert near and all(f.fix.startswith(fix) for f in near)


def test_one_device_is_singular():
    name, *overrides = DRAWN_GRPO
    messages = [f.message for f in planned(name, [*overrides, "mesh.fsdp=1"], "1xA100-80GB").findings]
    assert messages[0] == "1xA100-80GB: 1 GPU on 1 host, 1 device of 79.1 GiB"


def test_a_search_that_no_slice_ends_says_what_else_to_change():
    recipe = load.load(DRAWN_GRPO[0], [*DRAWN_GRPO[1:], "model.name=qwen3-32b", "rollout.total_generation_steps=30000"])
    with pytest.raises(UserError) as caught:
        make(recipe, Destination("v5e"), PlanOptions(fit=True))
    assert caught.value.what.startswith("no v5e slice holds") and caught.value.fix == LESS


@pytest.mark.long
@pytest.mark.parametrize(
    ("overrides", "generation", "needed"),
    [
        (["model.name=qwen3-14b", "batch_size=1024"], "V100-16GB", "1024xV100-16GB"),
        (["model.name=qwen3-32b", "batch_size=128"], "RTX-3090", "128xRTX-3090"),
        (["model.name=qwen3-32b", "batch_size=48"], "RTX-3090", "128xRTX-3090"),
        (["model.name=qwen3-32b", "batch_size=512"], "v5e", "2x v5e-256"),
    ],
)
def test_a_search_goes_on_until_no_mesh_can_change(overrides, generation, needed):
    """The slice that is named holds the recipe, and so say the search and the plan of a smaller one."""
    name, *drawn_overrides = DRAWN_GRPO
    overrides = [*drawn_overrides, "data.num_train=4000", "mesh.fsdp=-1", *overrides]
    recipe = load.load(name, overrides)
    dims = kinds.of(recipe).dimensions(recipe, Path())
    row = next(row for row in (*GPUS, *TPUS) if row.name == generation)
    assert next(fit.memory_search(recipe, dims, Path()).slices(recipe, row)).name == needed
    tried = [where.num_devices for where in settings.divisible_slices(recipe, dims, row)]
    for where in slices.sold(row, 2 * max(tried)):  # what is left out has no mesh
        if where.num_devices not in tried and where.num_devices % 32 == 0:
            assert not list(settings.every(recipe, dims, where)), where.name


def test_a_search_without_an_answer_names_where_it_ended():
    overrides = ["model.name=qwen3-32b", "batch_size=8", "mesh.fsdp=-1"]
    with pytest.raises(UserError, match="up to 64xV100-16GB, the largest that splits batch and model"):
        make(load.load(DRAWN_GRPO[0], [*DRAWN_GRPO[1:], *overrides]), Destination("V100-16GB"), PlanOptions(fit=True))


def drawn_multimodal(number):
    """Phase 1 or Phase 2 with values that do not fit together, by a seed."""
    rng = random.Random(number)
    overrides = [f"data.num_train={rng.choice([1, 3, 40, 2000])}", f"data.num_test={rng.choice([1, 2, 200])}"]
    overrides += [f"per_device_batch_size={rng.choice([1, 2, 64, 1024])}"]
    overrides += rng.choice([[], ["encoders.audio_seconds=0.01"], ["encoders.audio_seconds=2000"]])
    overrides += rng.choice([[], ["encoders.image_size=4"], ["encoders.image_weights=none.pt"], ["data.source=none"]])
    overrides += rng.choice([[], ["encoders.audio=cnn14", "encoders.audio_preprocessing=purrsight"]])
    return (
        rng.choice(["phase1-tiny", "phase2-tiny"]),
        overrides,
        rng.choice(["1xA100-40GB", "8xA100-40GB", "64xA100-40GB"]),
    )


@pytest.mark.long
@pytest.mark.parametrize("first", [0, pytest.param(30, marks=pytest.mark.long)])
def test_a_chain_of_remedies_of_phase_1_and_2_ends_in_a_plan_that_is_not_refused(first):
    for number in range(first, first + 30):
        name, overrides, on = drawn_multimodal(number)
        plans = [planned(name, overrides, on)]
        while plans[-1].errors and len(plans) <= 8:
            fix = plans[-1].errors[0].fix
            _, pairs = typed(re.sub(r" or (more|less)$", "", fix))
            assert pairs, fix
            keys = [pair.partition("=")[0] for pair in pairs]
            overrides = [o for o in overrides if o.partition("=")[0] not in keys] + pairs
            plans.append(planned(name, overrides, on))
        assert not plans[-1].errors, (number, [f"{f.message}; {f.fix}" for plan in plans for f in plan.errors])

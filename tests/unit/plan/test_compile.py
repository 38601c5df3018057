"""Real compiles of small programs: by libtpu for chips that are not here, and for CPU devices."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from podwright import slices
from podwright.errors import UserError
from podwright.plan.compiled import cache as verdicts
from podwright.plan.compiled import calibrate, dump, environment, verdict
from podwright.plan.compiled import compile as aot
from podwright.plan.kinds import grpo
from podwright.plan.kinds.pretrain import PLAN
from podwright.recipe import dimensions, load
from podwright.recipe.models import MODELS
from podwright.shell import Shell

GIB = 1024**3
V5E_8, V6E_8 = slices.parse("v5e-8"), slices.parse("v6e-8")
CPU_4 = slices.parse("cpu-4")
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (Linux on x86 only)"
)
WITH_KERNEL = dataclasses.replace(MODELS["qwen3-tiny"], head_dim=128)
SMALL = ["batch_size=8", "mesh.tensor=2", "rollout.max_prompt_length=128", "rollout.total_generation_steps=128"]


def compile_all(
    cache,
    where,
    *overrides,
    name="qwen3-tiny-gsm8k-grpo",
    names=("update",),
    full=False,
    seen=None,
    dims=None,
    runner=None,
):
    recipe = load.load(name, ["mesh.fsdp=-1", "mesh.data=1", *overrides])
    told = (lambda *a: seen.append(a)) if seen is not None else (lambda *a: None)
    dims = dims or MODELS[recipe.model.name]
    shop = aot.CompileContext(cache, told, runner=runner or Shell())
    found = aot.compile_all(recipe, dims, where, list(names), full=full, shop=shop, irrelevant=grpo.PLAN.irrelevant)
    return {one.name: one for one in found}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def three(cache):
    """Update, score and rollout of a model whose heads are wide enough for the kernels, and what was told meanwhile."""
    seen = []
    found = compile_all(cache, V6E_8, *SMALL, names=["update", "score", "rollout"], dims=WITH_KERNEL, seen=seen)
    return found, seen


@needs_libtpu
def test_every_program_compiles_for_chips_that_are_not_here(three):
    found, seen = three
    assert {one.verdict for one in found.values()} == {"fits"}, found
    update = found["update"]
    assert update.memory.arguments == pytest.approx(update.memory.aliased, rel=0.2), "the state is donated"
    assert set(update.resident) == {"reference"} and set(found["rollout"].resident) == {"optimizer", "reference"}
    for one in found.values():
        cost = one.cost
        assert cost.flops > 0 and cost.hbm_bytes > 0 and cost.predicted_s > 0, one
        assert {t.axis for t in cost.collectives} >= {"fsdp", "tensor"} and not {"", "data"} & {
            t.axis for t in cost.collectives
        }
    assert any("may end early; counted with the most it can turn, 127" in note for note in found["rollout"].notes)
    assert ("update", "compiling") in {call[:2] for call in seen}


@needs_libtpu
def test_the_second_plan_compiles_nothing(cache, three):
    first = three[0]["update"]
    seen = []
    again = compile_all(cache, V6E_8, *SMALL, "expect.time=x", dims=WITH_KERNEL, seen=seen)["update"]
    assert again.cached and not seen
    assert first.cost is not None and again == dataclasses.replace(first, cached=True)


@needs_libtpu
def test_a_kept_verdict_does_not_wait_for_the_compiler_of_another_plan(cache, three):
    seen = []
    with verdicts.exclusive("another", lambda *a: None):
        again = compile_all(cache, V6E_8, *SMALL, names=["update", "score"], dims=WITH_KERNEL, seen=seen)
    assert again["update"].cached and again["score"].cached and not seen


@needs_libtpu
def test_what_a_program_does_not_depend_on_does_not_compile_it_again(cache, three):
    other = [*SMALL, "evaluation.batch_size=64", "evaluation.every_n_steps=7", "grpo.dynamic_sampling=2"]
    again = compile_all(cache, V6E_8, *other, names=["update", "score", "rollout"], dims=WITH_KERNEL)
    assert all(one.cached for one in again.values())


@needs_libtpu
def test_only_verdicts_are_left_of_what_was_compiled(cache, three):
    left = [path for path in cache.rglob("*") if path.is_file()]
    assert {path.name for path in left} >= {"update.json", "score.json", "rollout.json"}
    assert {path.suffix for path in left} == {".json"} and sum(path.stat().st_size for path in left) < 1e6


@needs_libtpu
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_a_cache_that_cannot_be_written_answers_and_a_new_verdict_is_not_kept(cache, three):
    """As another user than the one who filled it."""
    for parent in cache.parents:
        if parent.is_relative_to(tempfile.gettempdir()) and parent != Path(tempfile.gettempdir()):
            parent.chmod(0o755)
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = {path: path.stat().st_mtime for path in cache.rglob("*.json")}
    os.seteuid(65534)
    try:
        again = compile_all(cache, V6E_8, *SMALL, names=["update"], dims=WITH_KERNEL)["update"]
        folder = verdicts.writable(cache / "new")
        kept = verdicts.keep(cache / "new.json", "{}")
        folder.rmdir()
    finally:
        os.seteuid(0)
    assert again.cached and not kept and cache not in folder.parents
    assert {path: path.stat().st_mtime for path in cache.rglob("*.json")} == before


@needs_libtpu
def test_plans_with_different_caches_compile_one_after_the_other(tmp_path):
    other = contextlib.ExitStack()
    other.enter_context(verdicts.exclusive("another", lambda *a: None))
    seen = []

    def told(program, phase, seconds):
        seen.append(phase)
        if len(seen) == 3:
            other.close()

    recipe = load.load("qwen3-tiny-gsm8k-grpo", ["mesh.fsdp=-1", *SMALL])
    shop = aot.CompileContext(tmp_path, told)
    (found,) = aot.compile_all(recipe, MODELS["qwen3-tiny"], V6E_8, ["score"], full=False, shop=shop)
    assert found.verdict == "fits" and set(seen[:3]) == {"waiting for another plan"}


def test_verdicts_of_no_use_for_longest_are_pruned_and_environments_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(verdicts, "LIMIT_BYTES", 2500)
    now = time.time()
    for n in range(5):
        folder = tmp_path / f"{n:024x}"
        (folder / "update").mkdir(parents=True)
        (folder / "update.json").write_text("x" * 400)
        (folder / "update" / "dump.txt").write_text("x" * 600)
        os.utime(folder, (now - (5 - n) * verdicts.IN_USE_S,) * 2)
    (tmp_path / "jax-0.11.2").mkdir()
    (tmp_path / "jax-0.11.2" / "made.json").write_text("x" * 10_000)
    verdicts.used(tmp_path / f"{1:024x}" / "update.json")
    verdicts.prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{1:024x}", f"{4:024x}", "jax-0.11.2"}


@needs_libtpu
@pytest.mark.long
def test_what_the_short_way_finds_is_what_the_whole_compile_finds(cache, tmp_path):
    short, whole = compile_all(cache, V6E_8, *SMALL)["update"], compile_all(cache, V6E_8, *SMALL, full=True)["update"]
    assert short.memory.need == whole.memory.need
    assert short.cost == whole.cost
    assert not short.executable and whole.executable["argument_size"] == whole.memory.arguments


@needs_libtpu
def test_too_large_says_what_is_large(cache):
    update = compile_all(cache, V6E_8, "batch_size=64", "model.remat=none", name="qwen3-1.7b-gsm8k-grpo")["update"]
    assert update.verdict == "too large"
    assert "31.2" in update.error and update.hbm_bytes > V6E_8.accelerator.hbm_bytes
    assert update.memory.largest[0].size_bytes > GIB
    assert all("models/" in a.what or "train/" in a.what for a in update.memory.largest[:3]), update.memory.largest


@needs_libtpu
def test_a_flag_the_compiler_does_not_know_is_told_in_its_words(tmp_path, monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_no_such_flag=true")
    update = compile_all(tmp_path, V6E_8, *SMALL)["update"]
    assert update.verdict == "failed" and "xla_tpu_no_such_flag" in update.error
    assert "xla_tpu_no_such_flag" in Path(update.log).read_text()
    assert (
        not list(tmp_path.rglob("update.json"))
        or json.loads(next(tmp_path.rglob("update.json")).read_text())["verdict"] == "failed"
    )


class Wide(Shell):
    """Starts children whose kernels take a whole sequence as one block."""

    def start(self, argv, **rest):
        script = "import sys; from podwright.kernels import splash; splash.MOST_QUERIES = splash.MOST_KEYS = 8192; "
        script += "from podwright.train.__main__ import main; sys.exit(main())"
        assert argv[1:3] == ["-m", "podwright.train"]
        return super().start([argv[0], "-c", script, *argv[3:]], **rest)


@needs_libtpu
def test_kernels_are_compiled_to_the_end_before_anything_else(three):
    found, seen = three
    # prompts and completions: forward, dkv and dq; forward alone; prefill
    assert {name: one.kernels for name, one in found.items()} == {"update": 6, "score": 2, "rollout": 1}
    assert all(one.kernels_s > 0 for one in found.values())
    (told,) = [f for f in verdict.findings(list(found.values()), 1e12) if "alone" in f.message]
    assert told.level == "info" and told.message.startswith("9 kernels compiled alone, to the end: ")
    assert ("score", "kernels") in {call[:2] for call in seen}


@pytest.mark.long
@needs_libtpu
def test_a_kernel_that_wants_too_much_on_chip_memory_is_found_without_generating_the_program(tmp_path, monkeypatch):
    long = [*SMALL, "rollout.total_generation_steps=2048"]
    limits = []
    for _ in range(3):  # the compiler names one allocation at a time
        score = compile_all(tmp_path, V5E_8, *long, names=["score"], dims=WITH_KERNEL, runner=Wide())["score"]
        if score.verdict != "failed":
            break
        (told,) = verdict.findings([score], 1e12)
        assert told.level == "error" and "\n" not in told.message and score.memory is None
        started = "score does not compile: kernel splash_mha_fwd_segmented_no_residuals, compiled alone: Scoped allocation with size "
        assert told.message.startswith(started) and "exceeded scoped vmem limit by" in told.message
        limits.append(told.fix.removeprefix("add ").removesuffix(" to LIBTPU_INIT_ARGS"))
        monkeypatch.setenv("LIBTPU_INIT_ARGS", limits[-1])
    assert (score.verdict, score.kernels) == ("fits", 2) and len(set(limits)) == len(limits) > 0, (score, limits)


@pytest.mark.long
def test_cpu_devices_compile_too(cache, monkeypatch):
    monkeypatch.setattr(calibrate, "PROBES", ((MODELS["qwen3-micro"], 2, 2),))
    found = compile_all(cache, CPU_4, *SMALL, names=["score"])["score"]
    assert found.verdict == "fits" and found.memory.arguments == found.executable["argument_size"] > 0
    assert found.cost.predicted_s > 0 and found.cost.bound in calibrate.RESOURCES and found.cost.flops > 1e9
    assert {t.axis for t in found.cost.collectives} >= {"fsdp", "tensor"}
    assert "calibrated on this machine (" in found.notes[-1] and "4 devices, float32" in found.notes[-1]
    assert compile_all(cache, CPU_4, *SMALL, names=["score"])["score"] == dataclasses.replace(found, cached=True)


@pytest.mark.parametrize("page", ["", "page 0, "], ids=["libtpu 0.0.42", "libtpu 0.0.51"])
def test_the_buffer_assignment_is_added_up_as_the_compiler_does(tmp_path, page):
    text = (
        "allocation 0: size 512, thread-local:\n"
        " value: <2 x.1 @0> (size=512,offset=0): f32[]{:T(128)}\n"
        "allocation 1: size 1000, parameter 3, shape |f32[250]| at ShapeIndex {}, maybe-live-out:\n"
        "allocation 2: size 300, parameter 4, shape |f32[75]| at ShapeIndex {}:\n"
        "allocation 3: size 40, maybe-live-out:\n"
        "allocation 4: size 8, constant:\n"
        "allocation 5: size 7000, color 1, preallocated-temp:\n"
        "allocation 7: size 900, color 5, preallocated-temp:\n"
        "allocation 6: size 5000, preallocated-temp:\n"
        " value: <7 dot.1 @0> (size=3000,offset=0): f32[25,30]{1,0:T(8,128)}\n"
        " value: <8 late.2{1} (phi) @0> (size=2500,offset=100): f32[25,25]{1,0:T(8,128)}\n"
        " value: <9 add.3 @0> (size=2000,offset=3000): bf16[1000]{0:T(128)}\n"
    )
    paged = re.sub(r"(size \d+, (?:color \d, )?)", rf"\1{page}", text)
    (tmp_path / "m.after_optimizations-buffer-assignment.txt").write_text(paged)
    found = dump.memory(tmp_path)
    assert (found.arguments, found.aliased, found.outputs, found.constants, found.temporaries) == (
        1300,
        1000,
        40,
        8,
        5000,
    )
    assert found.need == 6348 and found.host == 900
    assert [(a.size_bytes, a.what) for a in found.largest] == [(3000, "dot.1"), (2000, "add.3")], (
        "late.2 lies where dot.1 lay"
    )


@pytest.mark.brief(1)
@pytest.mark.parametrize(("on", "child"), [("cpu-1", "measure"), pytest.param("v6e-8", "compile", marks=needs_libtpu)])
def test_a_plan_that_is_told_to_end_leaves_no_child_behind(on, child, tmp_path):
    argv = [
        sys.executable,
        "-m",
        "podwright",
        "plan",
        "qwen3-tiny-gsm8k-grpo",
        "mesh.fsdp=-1",
        "batch_size=8",
        "--on",
        on,
        "--compile",
    ]
    plan = subprocess.Popen([*argv, "--cache", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def children():
        found = subprocess.run(["pgrep", "-f", f"podwright.train {child} {tmp_path}"], capture_output=True, text=True)
        return found.stdout.split()

    deadline = time.time() + 120
    while not children():
        assert plan.poll() is None and time.time() < deadline
        time.sleep(0.05)
    plan.terminate()
    assert plan.wait(timeout=60) == 128 + signal.SIGTERM
    while children():
        assert time.time() < deadline
        time.sleep(0.05)


@needs_libtpu
def test_a_compiler_that_is_killed_has_no_verdict_and_none_is_kept(tmp_path):
    """As where memory runs out. The next plan asks again."""
    phases = []

    def kill(program, phase, seconds):
        if phase == "compiling" and not phases:
            phases.append(phase)
            subprocess.run(["pkill", "-KILL", "-f", f"podwright.train compile {tmp_path}"])

    recipe = load.load("qwen3-tiny-gsm8k-grpo", ["mesh.fsdp=-1", *SMALL])
    (found,) = aot.compile_all(
        recipe, MODELS["qwen3-tiny"], V6E_8, ["update"], full=False, shop=aot.CompileContext(tmp_path, kill)
    )
    assert phases and found.verdict == "unknown" and "the compiler was killed (signal 9)" in found.error
    assert not list(tmp_path.rglob("update.json"))


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ([], False),
        ([("report", 1)], False),  # it may be about to refuse
        ([("report", 1), ("scheduled", 0)], True),
        ([("report", 20)], True),  # a very large program, whose next stage is not written
        ([("report", 20), ("oom", 19)], False),
    ],
)
def test_a_dump_is_whole_when_the_compiler_went_on_after_the_assignment(tmp_path, written, whole):
    report, scheduled = "after_optimizations-memory-usage-report", "after_optimizations_after_buffer_assignment"
    names = {"report": report, "scheduled": scheduled, "oom": "oom_intermediate_module"}
    for name, seconds_ago in written:
        path = tmp_path / f"module_0046.jit_step.cl_1.{names[name]}.txt"
        path.write_text("")
        os.utime(path, (time.time() - seconds_ago,) * 2)
    assert aot.is_complete(tmp_path) is whole


@needs_libtpu
def test_a_kernel_whose_library_is_missing_is_said_before_anything_starts(tmp_path):
    if environment.here().versions["tokamax"]:
        pytest.skip("tokamax is installed")
    recipe = load.load("almodel-tiny", ["model.kda=tokamax", "mesh.fsdp=-1"])
    with pytest.raises(
        UserError, match=r"library tokamax, which this recipe needs, is not installed here; type --jax 0\.11\.2"
    ):
        aot.compile_all(
            recipe,
            dimensions.find("almodel-tiny"),
            V6E_8,
            ["update"],
            full=False,
            shop=aot.CompileContext(tmp_path, print),
            more=PLAN.compiler_package(recipe),
        )

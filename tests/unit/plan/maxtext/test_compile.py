"""How a plan starts MaxText's train_compile and what it makes of the answer. The real one compiles in test_real.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from podwright import slices
from podwright.errors import UserError
from podwright.plan import make
from podwright.plan.compiled import maxtext, maxtext_child, maxtext_output
from podwright.plan.findings import InconclusiveCheck, Verdict
from podwright.plan.kinds import CompiledPrograms
from podwright.plan.options import Destination, PlanOptions
from tests.unit.plan.maxtext.conftest import VERSIONS, StandIn
from tests.unit.recipe.maxtext.example import example

TEXTS = Path(__file__).with_name("texts")
CUBE = slices.parse("tpu7x-4x4x4")
GIB = 1024**3
READING: dict[str, Any] = {
    "faults": [],
    "module": "maxtext.trainers.pre_train.train_compile",
    "base": "/maxtext/configs/base.yml",
    "added": ["compile_topology=tpu7x-128", "compile_topology_num_slices=1"],
    "config": {"use_tokamax_gmm": False},
}
RECIPE: dict[str, Any] = {
    "versions": {"maxtext": "0.2.5"},
    "arguments": {"model_name": "toy", "steps": "30", "fsdp_shard_on_exp": "True", "run_name": "${WORKLOAD_NAME}"},
}


def compiled(own: StandIn, depth: str = "full", where: slices.Slice = CUBE, **changes: Any) -> CompiledPrograms:
    if not (own.cache / "maxtext-0.2.5").exists():
        own.installed("maxtext-0.2.5")
    options = PlanOptions(depth=depth, context=own.context, cwd=own.state)
    return maxtext.compiled(example(**RECIPE | changes), where, options)


def finished(own: StandIn) -> None:
    own.says(reading=READING, log=(TEXTS / "finished.txt").read_text())


def test_the_finished_step_has_the_sizes_that_maxtext_prints(stand_in: StandIn) -> None:
    """llama3.1-70b 8k-bf16 of tpu-recipes for tpu7x-4x4x4, by maxtext 0.2.5."""
    finished(stand_in)
    (entry,) = compiled(stand_in).programs
    assert (entry.name, entry.verdict, entry.limit_gib) == ("train_step", "fits", 94.74)
    assert entry.temporaries_gib == round(86279028736 / GIB, 4) and entry.arguments_gib == round(5525434368 / GIB, 4)
    assert entry.aliased_gib == round(5525106688 / GIB, 4) and entry.hbm_gib == pytest.approx(85.4996, abs=1e-4)


def test_the_compiler_gets_the_recipe_s_arguments_and_flags(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M_STEPS", "7")
    finished(stand_in)
    compiled(stand_in)
    lint, train = stand_in.starts()
    assert lint["argv"][0] == "-P" and lint["argv"][1].endswith("maxtext_child.py")
    assert train["argv"][:4] == ["-P", "-m", READING["module"], READING["base"]]
    assert train["argv"][4:] == ["model_name=toy", "steps=30", "fsdp_shard_on_exp=True", *READING["added"]]
    flags = "--xla_tpu_scoped_vmem_limit_kib=65536 --xla_enable_async_all_gather=true"
    assert train["env"]["LIBTPU_INIT_ARGS"].endswith(flags) and train["env"]["JAX_PLATFORMS"] == "cpu"
    assert "M_STEPS" not in train["env"], "a variable of this machine sets no argument"
    assert train["env"]["PYTHONPATH"] == ""


def test_time_and_memory_are_announced_before_the_compile(stand_in: StandIn) -> None:
    finished(stand_in)
    compiled(stand_in)
    (line,) = stand_in.announced
    assert "compiling the train step of toy-4k-bf16-tpu7x-4x4x4 for tpu7x-4x4x4 by maxtext 0.2.5" in line
    assert "minutes to hours on two free cores" in line and "GiB of memory" in line
    assert stand_in.phases[0] == "reading the arguments" and stand_in.phases[-1] == "tracing and compiling"


def test_a_verdict_is_kept_by_arguments_flags_and_versions(stand_in: StandIn) -> None:
    finished(stand_in)
    first, count = compiled(stand_in), len(stand_in.starts())
    again = compiled(stand_in)
    assert again.programs[0].cached and not first.programs[0].cached and len(stand_in.starts()) == count
    others: list[dict[str, Any]] = [
        {"arguments": RECIPE["arguments"] | {"steps": "31"}},
        {"xla_flags": []},
        {"where": slices.parse("2x tpu7x-4x4x4")},
        {"depth": "quick"},
    ]
    for number, changes in enumerate(others, 2):
        compiled(stand_in, **changes)
        assert len(stand_in.starts()) == number * count, changes
    made = stand_in.cache / "maxtext-0.2.5" / "made.json"
    made.write_text(json.dumps(VERSIONS | {"libtpu": "0.0.53"}))
    assert not compiled(stand_in).programs[0].cached


def test_the_kernels_of_tokamax_are_traced_on_a_cpu_where_they_are_used(stand_in: StandIn) -> None:
    config = {"use_tokamax_gmm": True, "num_experts": 256}
    stand_in.says(reading=READING | {"config": config}, log=(TEXTS / "finished.txt").read_text())
    (entry,) = compiled(stand_in).programs
    assert stand_in.starts()[-1]["argv"][-1] == "--tokamax_cross_compile=true"
    assert any("grouped matmul" in note for note in entry.notes)


def test_an_older_tokamax_is_inconclusive_before_the_compile(stand_in: StandIn) -> None:
    stand_in.installed("maxtext-0.2.5", VERSIONS | {"tokamax": "0.0.8"})
    stand_in.says(reading=READING | {"config": {"use_tokamax_gmm": True}})
    answer = compiled(stand_in)
    assert answer.programs[0].verdict == "unknown" and len(stand_in.starts()) == 1
    assert (
        answer.findings[0].level == "inconclusive"
        and "tokamax 0.0.8 traces its grouped matmul" in answer.findings[0].message
    )


def test_a_step_that_is_too_large_says_what_it_needs(stand_in: StandIn) -> None:
    stand_in.says(reading=READING, log=(TEXTS / "hbm.txt").read_text(), code=1)
    answer = compiled(stand_in)
    (entry,) = answer.programs
    assert entry.verdict == "too large" and entry.hbm_gib == NEED_GIB and entry.limit_gib == 94.74
    assert f"train_step needs {NEED_GIB:.2f} of 94.74 GiB per device" in answer.findings[0].message
    assert answer.findings[0].level == "error" and "per_device_batch_size" in answer.findings[0].fix


NEED_GIB = 414.72


@pytest.mark.parametrize(
    ("text", "verdict", "words", "fix"),
    [
        (
            "cpu",
            "unknown",
            "a kernel of tokamax 0.0.17 is traced on TPUs only (Not supported on cpu)",
            "checkout with a newer",
        ),
        ("flag", "failed", "Unknown command line flag 'xla_tpu_no_such_flag'", "log"),
        ("flag_value", "failed", "Illegal value 'banana' specified for flag 'xla_tpu_scoped_vmem_limit_kib'", "log"),
        ("vmem", "failed", "exceeded scoped vmem limit by 5.30M", "--xla_tpu_scoped_vmem_limit_kib=65536 to xla_flags"),
    ],
)
def test_failures_are_told_apart(text: str, verdict: str, words: str, fix: str, stand_in: StandIn) -> None:
    stand_in.says(reading=READING, log=(TEXTS / f"{text}.txt").read_text(), code=1)
    answer = compiled(stand_in)
    assert answer.programs[0].verdict == verdict and words in answer.programs[0].error
    assert words in answer.findings[0].message and fix in answer.findings[0].fix
    assert answer.findings[0].level == ("inconclusive" if verdict == "unknown" else "error")


def test_a_failure_by_other_versions_than_the_image_s_is_inconclusive(stand_in: StandIn) -> None:
    stand_in.says(reading=READING, log=(TEXTS / "flag.txt").read_text(), code=1)
    answer = compiled(stand_in, versions={"maxtext": "0.2.5", "libtpu": "0.0.32"})
    assert answer.findings[0].level == "inconclusive"
    assert answer.findings[-1].message.endswith("jax 0.12.0.1 and libtpu 0.0.52; the recipe has libtpu 0.0.32")


def test_need_near_the_limit_is_inconclusive_by_other_versions(stand_in: StandIn) -> None:
    near = (
        (TEXTS / "finished.txt").read_text().replace("temp_size_in_bytes=86279028736", "temp_size_in_bytes=92900000000")
    )
    stand_in.says(reading=READING, log=near)
    assert not [f for f in compiled(stand_in).findings if f.level != "info"]
    other = compiled(stand_in, versions={"maxtext": "0.2.5", "jax": "0.8.2"})
    assert other.programs[0].verdict == "fits" and other.findings[0].level == "inconclusive"
    assert "may change that by 8 %" in other.findings[0].message


def test_a_compile_that_takes_too_long_is_inconclusive(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(maxtext.LIMIT_S, "full", 1.0)
    stand_in.says(reading=READING, code="wait")
    answer = compiled(stand_in)
    assert answer.programs[0].verdict == "unknown" and "the compiler was ended after 1 s" in answer.findings[0].message
    assert answer.findings[0].level == "inconclusive" and not list(stand_in.cache.rglob("train_step.json"))


def test_a_killed_compiler_says_how_much_memory_it_had(stand_in: StandIn) -> None:
    stand_in.says(reading=READING, code=-9)
    error = compiled(stand_in).programs[0].error
    assert (
        "killed (signal 9)" in error
        and "as where memory runs out; it had " in error
        and "GiB of this machine's" in error
    )


def test_quick_ends_the_compiler_when_buffers_are_assigned(stand_in: StandIn) -> None:
    dump = stand_in.state / "dump"
    dump.mkdir()
    name = "module_0000.jit_train_step.cl_1.after_optimizations"
    (dump / f"{name}-buffer-assignment.txt").write_text(
        "allocation 0: size 1000, page 0, parameter 0, shape |f32[250]| at ShapeIndex {}, maybe-live-out:\n"
        "allocation 1: size 5000, page 0, preallocated-temp:\n"
    )
    (dump / f"{name}-memory-usage-report.txt").write_text("")
    (dump / f"{name}_after_buffer_assignment.txt").write_text("")
    stand_in.says(reading=READING, code="wait")
    answer = compiled(stand_in, "quick")
    assert answer.programs[0].verdict == "fits" and answer.programs[0].compile_s < 30
    assert (answer.programs[0].arguments_gib, answer.programs[0].hbm_gib) == (
        round(1000 / GIB, 4),
        round(6000 / GIB, 4),
    )


FAULTS = [
    {"key": "fsdp_shard_on_exp", "reason": "unknown", "known": ["use_2d_fsdp_sharding", "shard_exp_on_fsdp"]},
    {"key": "steps", "reason": "Input should be a valid integer", "known": []},
    {"key": "model_name", "reason": "Input should be 'default' or 'llama3-8b'", "known": ["", "llama3-8b"]},
    {"key": "", "reason": "When EP rank is 1, use_random_routing must be False (was True).", "known": []},
]


def test_each_fault_of_the_arguments_is_a_line_with_what_to_type(stand_in: StandIn) -> None:
    stand_in.says(reading={"faults": FAULTS})
    answer = compiled(stand_in, arguments=RECIPE["arguments"] | {"model_name": "llama3-8B"})
    assert not answer.programs and {f.level for f in answer.findings} == {"error"} and len(stand_in.starts()) == 1
    lines = [f"{f.message}; {f.fix}" for f in answer.findings]
    assert lines[0].startswith(
        "maxtext 0.2.5 has no argument fsdp_shard_on_exp; it has shard_exp_on_fsdp; type maxtext=PATH"
    )
    assert "maxtext 0.2.5 does not take steps=30: Input should be a valid integer" in lines[1]
    assert lines[2].endswith("it takes '', llama3-8b; type arguments.model_name=llama3-8b")
    assert "maxtext 0.2.5 refuses the arguments: When EP rank is 1" in lines[3]


def test_a_value_that_nobody_filled_in_is_named(stand_in: StandIn) -> None:
    stand_in.says(reading={"faults": [{"key": "steps", "reason": "Input should be a valid integer", "known": []}]})
    answer = compiled(stand_in, arguments={"steps": "${STEPS}"})
    assert answer.findings[0].message == "arguments.steps=${STEPS} has no value of STEPS"
    assert answer.findings[0].fix == "type arguments.steps=VALUE"


def test_a_plan_with_a_fault_is_refused_and_one_without_a_version_inconclusive(stand_in: StandIn) -> None:
    stand_in.installed("maxtext-0.2.5")
    stand_in.says(reading={"faults": FAULTS})
    options = PlanOptions(depth="quick", context=stand_in.context)
    verdicts = [
        make.make(example(**RECIPE | {"versions": {"maxtext": v}}), Destination("x", CUBE), options).verdict
        for v in ("0.2.5", "a0fceb5")
    ]
    assert verdicts == [Verdict.REFUSED, Verdict.INCONCLUSIVE]


def test_a_script_of_its_own_is_not_compiled(stand_in: StandIn) -> None:
    launch = {"module": "train.sh", "base_config": ""}
    with pytest.raises(InconclusiveCheck, match=r"launch\.module=train\.sh is not MaxText's pre-training"):
        compiled(stand_in, launch=launch)


def test_gpus_are_refused(stand_in: StandIn) -> None:
    with pytest.raises(UserError, match="type --on with a TPU slice"):
        compiled(stand_in, where=slices.parse("8xH100-80GB"))


def test_a_maxtext_that_does_not_start_is_inconclusive(stand_in: StandIn) -> None:
    stand_in.says(log="Traceback\nImportError: cannot import name 'axis_rules' from 'flax'\n", code=1)
    with pytest.raises(InconclusiveCheck, match="could not read the arguments: ImportError: cannot import name") as e:
        compiled(stand_in)
    assert "maxtext=PATH" in e.value.fix


def test_phases_follow_the_log() -> None:
    log = (TEXTS / "finished.txt").read_text()
    assert maxtext_output.phase("") == "starting"
    assert maxtext_output.phase(log.partition("Jitting")[0]) == "building the model"
    assert maxtext_output.phase(log) == "tracing and compiling"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("'fsdp_shard_on_exp' not in 'emb_dim', 'shard_exp_on_fsdp'.", "fsdp_shard_on_exp"),
        ("Key output_dir was passed at the command line but isn't in config.", "output_dir"),
    ],
)
def test_unknown_keys_are_read_out_of_every_version_s_words(text: str, key: str) -> None:
    (fault,) = maxtext_child._of(ValueError(text))
    assert (fault["key"], fault["reason"]) == (key, "unknown")
    assert ("shard_exp_on_fsdp" in fault["known"]) is ("shard_exp_on_fsdp" in text)


class PyConfig:
    """Reads arguments as MaxText does: it stops at the first fault."""

    def initialize(self, argv: list[str]) -> Any:
        for word in argv[2:]:
            if word.startswith("bad"):
                raise ValueError(f"'{word.partition('=')[0]}' not in 'steps'.")
        raise ValueError("a rule over several")


def test_every_fault_is_read_though_maxtext_stops_at_the_first() -> None:
    faults, config = maxtext_child._faults(PyConfig(), "base.yml", ["bad_1=1", "steps=3", "bad_2=2"])
    assert [fault["key"] for fault in faults] == ["bad_1", "bad_2", ""] and config == {}
    assert faults[-1]["reason"] == "a rule over several"

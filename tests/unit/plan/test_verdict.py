"""What compiled programs mean: findings with what to type, documents, exit codes."""

import json

import pytest

from podwright.accelerators import GIB
from podwright.cli import main
from podwright.plan import dump, verdict
from podwright.plan.compile import Compiled
from podwright.recipe import load

LIMIT = 31.25 * GIB
SCORES = dump.Allocation(16 * GIB, "f32[8,8,8,4096,2048]", "dot_general (models/attention.py:44 grouped)")


def recipe(*overrides):
    return load.load("qwen3-1.7b-gsm8k-grpo", list(overrides))


def compiled(name="update", verdict="fits", temporaries=8 * GIB, error=""):
    return Compiled(name, verdict, 4.2, dump.Memory(2 * GIB, 2 * GIB, 0, temporaries, 0, (SCORES,)), {"reference": GIB}, error)


def the_finding(one, *overrides, limit=LIMIT):
    (found,) = verdict.findings([one], limit, recipe(*overrides))
    return found


def test_what_fits_is_said_with_its_limit():
    found = the_finding(compiled())
    assert (found.level, found.message) == ("info", "update needs 11.00 of 31.25 GiB per device")
    assert the_finding(compiled(), limit=None).message == "update needs 11.00 GiB per device"


def test_what_is_too_large_names_its_largest_and_what_to_type():
    found = the_finding(compiled(verdict="too large", temporaries=40 * GIB, error="RESOURCE_EXHAUSTED: (42G) exceeds (31.25G)"))
    assert found.level == "error"
    assert "43.00 of 31.25 GiB" in found.message and "16.00 GiB f32[8,8,8,4096,2048]" in found.message
    assert "models/attention.py:44" in found.message and "exceeds (31.25G)" in found.message
    assert found.fix.startswith("type training.gradient_accumulation_steps=2")


@pytest.mark.parametrize(
    ("one", "overrides", "fix"),
    [
        (compiled(verdict="too large"), ["model.remat=none"], "type model.remat=layer"),
        (compiled(verdict="too large"), ["batch_size=12", "training.gradient_accumulation_steps=4"], "gradient_accumulation_steps=6"),
        (compiled(verdict="too large"), ["batch_size=4", "training.gradient_accumulation_steps=4"], "take a larger slice"),
        (compiled("evaluate", "too large"), [], "type evaluation.batch_size=128"),
        (compiled("rollout", "too large"), [], "smaller batch_size"),
        (Compiled("update", "failed", 1.0, error="ERROR: Unknown command line flag 'xla_no'"), [], "correct LIBTPU_INIT_ARGS"),
    ],
)
def test_every_fault_says_what_to_type(one, overrides, fix):
    assert fix in the_finding(one, *overrides).fix


def test_what_took_too_long_is_not_called_a_fault():
    found = the_finding(Compiled("update", "unknown", 600.0, error="the compiler was ended after 600 s"))
    assert found.level == "warning" and "nobody knows" in found.message


def test_an_entry_adds_up():
    entry = verdict.entry(compiled(), LIMIT)
    assert entry["hbm_gib"] == entry["arguments_gib"] + entry["temporaries_gib"] + sum(entry["beside_gib"].values()) == 11.0
    assert entry["largest"][0]["gib"] == 16.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--on", "8xH100-80GB", "--compile"], "no compiler here compiles for 8xH100-80GB"),
        (["--compile"], "type --on cpu-1"),
        (["--on", "v6e-16", "--compile=half"], "--compile=half is no depth"),
    ],
)
def test_what_cannot_be_compiled_is_one_line(arguments, said, capsys, tmp_path):
    assert main(["plan", "qwen3-tiny-arithmetic-grpo", "mesh.fsdp=-1", "batch_size=64", "--cache", str(tmp_path), *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err and len(err.strip().splitlines()) == 1


def test_a_plan_that_compiles_from_the_command_line(capsys, tmp_path):
    small = ["batch_size=8", "rollout.max_prompt_length=64", "rollout.total_generation_steps=16", "grpo.num_generations=2", "mesh.fsdp=-1"]
    argv = ["plan", "qwen3-tiny-arithmetic-grpo", *small, "warm_start.batch_size=8", "--on", "cpu-2", "--compile", "--cache", str(tmp_path)]
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["programs"][0]["name"] == "update"
    assert {p["verdict"] for p in document["programs"]} == {"fits"} and document["ok"] is True
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "update     #" in out and "nothing stands against it" in out

"""What compiled programs mean: findings with what to type, documents, exit codes."""

import dataclasses
import json
import re

import pytest

from podwright.accelerators import GIB
from podwright.cli.app import main
from podwright.plan.checks import this_machine
from podwright.plan.compiled import calibrate, costs, dump, verdict
from podwright.plan.compiled.compile import Compiled
from podwright.plan.estimates import memory
from podwright.recipe import load
from podwright.recipe.models import MODELS

LIMIT = 31.25 * GIB
SCORES = dump.BufferAllocation(16 * GIB, "f32[8,8,8,4096,2048]", "dot_general (models/attention.py:44 grouped)")


COST = costs.ProgramCost(9e14, 4e12, 0.0, 0.0, 3.98, "hbm", (costs.Traffic("all-gather", "fsdp", 3 * GIB, 226),))
SCOPED = (
    "kernel x, compiled alone: Scoped allocation with size 36.28M and limit 32.00M exceeded scoped vmem limit by 4.28M"
)


def recipe(*overrides):
    return load.load("qwen3-1.7b-gsm8k-grpo", list(overrides))


def compiled(name="update", verdict="fits", temporaries=8 * GIB, error=""):
    return Compiled(
        name, verdict, 4.2, dump.Memory(2 * GIB, 2 * GIB, 0, temporaries, 0, (SCORES,)), {"reference": GIB}, error
    )


def the_finding(one, limit=LIMIT):
    (found,) = verdict.findings([one], limit)
    return found


def test_what_fits_is_said_with_its_limit():
    entry = verdict.entry(compiled(), LIMIT)
    assert (entry.hbm_gib, entry.limit_gib, entry.verdict) == (11.0, 31.25, "fits")
    assert verdict.findings([compiled()], LIMIT) == [], "what a program needs is said once"


def test_what_is_too_large_names_its_largest_and_what_to_type():
    found = the_finding(compiled(verdict="too large", temporaries=40 * GIB))
    assert found.level == "error"
    assert "43.00 of 31.25 GiB" in found.message and "16.00 GiB f32[8,8,8,4096,2048]" in found.message
    assert "models/attention.py:44" in found.message
    assert found.fix == memory.FIT


@pytest.mark.parametrize(
    ("error", "log", "fix"),
    [
        ("ERROR: Unknown command line flag 'xla_no'", "", "type --cache with a folder that keeps its log"),
        (SCOPED, "", "add --xla_tpu_scoped_vmem_limit_kib=65536 to LIBTPU_INIT_ARGS"),
        ("INTERNAL: x", "/cache/k/update.txt", "read the compiler's log, /cache/k/update.txt"),
    ],
)
def test_every_fault_says_what_to_type(error, log, fix):
    assert the_finding(Compiled("update", "failed", 1.0, error=error, log=log)).fix == fix


def test_what_took_too_long_is_not_called_a_fault():
    found = the_finding(Compiled("update", "unknown", 600.0, error="the compiler was ended after 600 s"))
    assert found.level == "inconclusive" and "whether it fits is not known" in found.message


def test_an_entry_adds_up():
    entry = verdict.entry(compiled(), LIMIT).model_dump()
    assert (
        entry["hbm_gib"]
        == entry["arguments_gib"] + entry["temporaries_gib"] + sum(entry["resident_gib"].values())
        == 11.0
    )
    assert entry["largest"][0]["gib"] == 16.0


def test_an_entry_has_what_the_program_costs():
    entry = verdict.entry(dataclasses.replace(compiled(), cost=COST, notes=("sorting is left out",)), LIMIT)
    entry = entry.model_dump(mode="json", exclude_unset=True)
    assert (entry["flops"], entry["hbm_bytes"], entry["predicted_s"], entry["bound"]) == (9e14, 4e12, 3.98, "hbm")
    assert entry["collectives"] == [{"kind": "all-gather", "axis": "fsdp", "gib_sent": 3.0, "count": 226}]
    assert entry["notes"] == ["sorting is left out"] and "host_gib" not in entry
    assert verdict.entry(compiled(), LIMIT).predicted_s is None


def test_a_plan_shows_seconds_and_money(capsys, tmp_path, monkeypatch):
    """What the compiler would say is given; the rest is as from the command line."""
    seconds = {"update": 8.2, "score": 2.9, "rollout": 30.1, "evaluate": 40.25}
    found = [
        dataclasses.replace(compiled(name), cost=dataclasses.replace(COST, predicted_s=s))
        for name, s in seconds.items()
    ]
    monkeypatch.setattr(verdict.aot, "compile_all", lambda *a, **k: found)
    argv = [
        "plan",
        "qwen3-1.7b-gsm8k-grpo",
        "batch_size=32",
        "data.num_test=300",
        "--on",
        "v6e-8",
        "--compile",
        "--price",
        "2.5",
    ]
    assert main(argv) == 4, "the hub was not asked"
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("update     #") and line.endswith("fits  8.2 s by hbm") for line in lines)
    # 467 steps and 6 tests of two batches: 19723.4 s
    step, run = (line for line in lines if line.startswith(("step: ", "run: ")))
    assert step.startswith(
        "step: 41.2 s predicted (rollout 30.1 by hbm, score 2.9 by hbm, update 8.2 by hbm); 6.2 completions/s, MFU "
    )
    assert run == "run: 467 steps and 6 evaluations: 5.5 h, 43.8 chip-hours, 110 at 2.5 a chip-hour"
    assert main([*argv, "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["ok"]) == ("inconclusive", None)
    assert document["step"]["run"]["cost"] == pytest.approx(2.5 * 8 * 19723.4 / 3600)
    found[0] = dataclasses.replace(found[0], verdict="too large")
    assert main([*argv, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["step"] == {}, "what will not run takes no time"


@pytest.mark.parametrize(("flags", "devices"), [("", 1), ("--xla_force_host_platform_device_count=4", 4)])
def test_a_plan_for_this_machine_predicts_for_its_cpu(capsys, tmp_path, monkeypatch, flags, devices):
    """What the compiler would say is given."""
    monkeypatch.setattr(this_machine, "has_accelerator", lambda: False)
    monkeypatch.setenv("XLA_FLAGS", flags)
    wheres = []
    monkeypatch.setattr(verdict.aot, "compile_all", lambda r, d, where, *a, **k: wheres.append(where) or [compiled()])
    argv = ["plan", "qwen3-tiny-arithmetic-grpo", "mesh.fsdp=-1", "--compile", "--cache", str(tmp_path), "--json"]
    main(argv)
    document = json.loads(capsys.readouterr().out)
    assert document["slice"]["name"] == f"cpu-{devices}" == wheres[0].name and document["programs"]
    monkeypatch.setattr(this_machine, "has_accelerator", lambda: True)
    assert main(argv) == 2 and "what `local` has is known only when a run starts" in capsys.readouterr().err


def test_a_price_counts_where_the_step_time_is_estimated(capsys):
    assert main(["plan", "qwen3-1.7b-gsm8k-grpo", "--on", "v6e-16", "--price", "2", "--json"]) in (0, 4)
    run = json.loads(capsys.readouterr().out)["step"]["run"]
    assert run["cost"] == pytest.approx(2 * run["chip_hours"]) and run["price"] == 2


def test_a_price_without_a_predicted_step_time_is_one_line(capsys):
    emulated = ["almodel-tiny", "model.compute_dtype=bfloat16", "--on", "1xV100-16GB"]
    assert main(["plan", *emulated, "--price", "2"]) == 2
    out, err = capsys.readouterr()
    assert err == "error: --price 2: this plan predicts no step time; add --compile\n" and not out


def test_a_run_compiles_first_and_keeps_what_was_predicted(capsys, tmp_path, monkeypatch):
    """What the compiler would say is given; the run is not started."""
    found = [dataclasses.replace(compiled(name), cost=COST) for name in ("update", "score", "rollout", "evaluate")]
    monkeypatch.setattr(verdict.aot, "compile_all", lambda *a, **k: found)
    recipe = ["qwen3-tiny-arithmetic-grpo", "--runs", str(tmp_path / "runs")]
    assert main(["run", *recipe, "--on", "cpu-1", "--compile", "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [p["name"] for p in shown["programs"]] == ["update", "score", "rollout", "evaluate"]
    assert shown["verdict"] == "ok" and shown["step"]["step_s"] > 0 and shown["step"]["estimated"] is False


@pytest.mark.parametrize(
    ("price", "arguments", "said"),
    [
        ("-1", ["--compile"], "Invalid value for '--price': must be at least 0"),
        ("x", ["--compile"], "must be a number"),
    ],
)
def test_a_price_that_prices_nothing_is_refused(price, arguments, said, capsys):
    assert main(["plan", "qwen3-1.7b-gsm8k-grpo", "--on", "v6e-16", "--price", price, *arguments]) == 2
    out, err = capsys.readouterr()
    assert said in err and not out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--on", "8xH100-80GB", "--compile"], "no compiler here compiles for 8xH100-80GB"),
        (["--compile"], "type --on cpu-1"),
        (["--on", "v6e-16", "--compile=half"], "--compile=half is no depth"),
    ],
)
def test_what_cannot_be_compiled_is_one_line(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(this_machine, "has_accelerator", lambda: True)
    assert (
        main(
            [
                "plan",
                "qwen3-tiny-arithmetic-grpo",
                "mesh.fsdp=-1",
                "batch_size=64",
                "--cache",
                str(tmp_path),
                *arguments,
            ]
        )
        == 2
    )
    err = capsys.readouterr().err
    assert said in err and len(err.strip().splitlines()) == 1


@pytest.mark.long
def test_a_plan_that_compiles_from_the_command_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(calibrate, "PROBES", ((MODELS["qwen3-micro"], 2, 2),))
    small = [
        "batch_size=8",
        "rollout.max_prompt_length=64",
        "rollout.total_generation_steps=16",
        "grpo.num_generations=2",
        "mesh.fsdp=-1",
    ]
    argv = [
        "plan",
        "qwen3-tiny-arithmetic-grpo",
        *small,
        "warm_start.batch_size=8",
        "--on",
        "cpu-2",
        "--compile",
        "--cache",
        str(tmp_path),
    ]
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["programs"][0]["name"] == "update"
    step = document["step"]
    assert step["step_s"] == sum(p["seconds"] for p in step["programs"]) > 0
    assert step["mfu"] is step["run"]["chip_hours"] is step["run"]["cost"] is None and step["run"]["hours"] > 0
    assert any("update, score, rollout: calibrated on this machine (" in note for note in step["notes"])
    assert {p["verdict"] for p in document["programs"]} == {"fits"} and document["ok"] is True
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert re.search(r"^step: \S+ s predicted \(rollout .*\); \S+ completions/s$", out, re.MULTILINE), out
    assert re.search(r"^run: 80 steps and 5 evaluations: \S+ h$", out, re.MULTILINE), out
    assert "update     #" in out and " on cpu-2: OK" in out

"""The write-up of a MaxText log: which steps count, what is checked, how it ended, against tables that are known."""

from __future__ import annotations

import itertools
import json
import re
import string
import tempfile
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.kinds import Recipe
from podwright.report import kinds, page
from podwright.report import result as results
from podwright.report.kinds import maxtext
from podwright.report.maxtext import log_run
from podwright.report.maxtext.facts import ProfiledSteps
from podwright.report.overfitting import suspicions
from podwright.report.records import Result
from podwright.report.words import LANGUAGES, Sentence, Words, texts
from tests.unit.recipe.maxtext.example import example

# The two runs of ALModel that the original project published, as it wrote them down; its tables of results are in the tests below.
SMALL = """
Step 0: loss=12.586, 485s (编译)
Step 1: loss=12.584, 355s
Step 2: loss=12.530, 0.05s (async pipeline)
Step 3: loss=11.992, 220s (稳定)
...
Step 9: loss=0.078, ~220s
"""
LARGE = """
Step 0: loss=12.153, 485s (编译)
Step 1: loss=12.154, 67.3s (warmup)
Step 2: loss=8.509,  0.076s (async pipeline)
Step 3: loss=5.272,  7.954s (稳定)
Step 4: loss=2.599,  7.450s
Step 5: loss=0.695,  7.462s
Step 6: loss=0.213,  17.534s (数据耗尽)
"""
LARGE_S = (485.0, 67.3, 0.076, 7.954, 7.450, 7.462, 17.534)
ALMODEL = ("almodel-8b-source", "sequence_length=4096")
THEIR_GFLOP = 58.28
"""per token: each of 6 experts at width 6656 instead of 1280, in all 28 layers"""


def report(text: str | bytes, recipe: Recipe | None = None, on: str = "", path: str = "train.log") -> Result:
    """The figures of a run that is made of a log."""
    content = text.encode() if isinstance(text, str) else text
    with tempfile.TemporaryDirectory() as folder:
        run = log_run.create(Path(folder, "report"), [content] if content else [], path, recipe, on)
        return results.result(run)


def write(folder: Path, text: str, recipe: Recipe | None = None, on: str = "", language: str = "en") -> Result:
    """The same with its pages, in `folder`/report, and with `folder`/README.md."""
    run = log_run.create(folder, [text.encode()], "train.log", recipe, on)
    return page.write(run, folder / "README.md", language)


def page_text(r: Result, language: str = "en") -> kinds.PageText:
    return kinds.page_text(r, Words(language))


def sentence(row: dict[str, Any], language: str = "en") -> str:
    """Of a check."""
    return Words(language)(row["sentence"], **row)


def step(
    number: int,
    seconds: float,
    tflops: float = 100.0,
    tokens: float | None = None,
    weights: int = 131072,
    loss: float = 3.0,
) -> str:
    """Of 16 chips of v6e with 8,192 tokens each, unless `tokens` or `weights` say otherwise."""
    tokens = 8192 / seconds if tokens is None else tokens
    return (
        f"completed step: {number}, seconds: {seconds:.3f}, TFLOP/s/device: {tflops:.3f}, Tokens/s/device: {tokens:.3f}, "
        f"total_weights: {weights}, loss: {loss:.3f}"
    )


def log(*seconds: float, first: int = 0, header: str = "Num_devices: 16, shape (16,)") -> str:
    return "\n".join([header, *(step(first + n, s) for n, s in enumerate(seconds))]) + "\n"


def excluded(r: Result) -> dict[int, tuple[str, str]]:
    return {e["step"]: (e["reason"], e["by"]) for e in r["excluded"]}


def check(r: Result, name: str) -> dict[str, Any]:
    (row,) = (c for c in r["checks"] if c["check"] == name)
    return dict(row)


def source_log() -> str:
    """The larger run as MaxText logs it: the same seconds and losses, TFLOP/s by the formula that the project had."""
    losses = (12.153, 12.154, 8.509, 5.272, 2.599, 0.695, 0.213)
    lines = [
        step(n, s, THEIR_GFLOP * 4096 / 1e3 / s, 4096 / s, 262144, loss)
        for n, (s, loss) in enumerate(zip(LARGE_S, losses, strict=True))
    ]
    return "\n".join(["Num_devices: 64, shape (16, 4)", *lines, "StopIteration", "EXIT_CODE=1"])


def test_the_published_table_of_64_devices_follows_from_its_lines() -> None:
    """Published: about 7.5 s a step, 549 tokens/s/device, 7 of 10 steps, exit code 1 (StopIteration)."""
    r = report(LARGE + "StopIteration\nEXIT_CODE=1\n", load.load(*_almodel()))
    s = r["steady_state"]
    assert s["step_s"] == 7.462 and s["num_steps"] == 3 and s["step_s_iqr"] == pytest.approx([7.456, 7.708])
    assert round(s["tokens_per_s_per_device"]) == 549 and s["tokens_per_s_per_chip"] == pytest.approx(1097.83, abs=0.01)
    assert (r["environment"]["devices"], r["environment"]["chips"]) == (64, 32)
    assert (r["steps"], r["steps_planned"], r["ending"], r["exit_code"]) == (7, 10, "OUT_OF_DATA", 1)
    assert page_text(r).ended.startswith("OUT_OF_DATA: 7 of 10 steps;") and "7/10" in page_text(r, "zh").ended
    assert excluded(r) == {
        0: ("compiles", "rule"),
        1: ("warm_up", "rule"),
        2: ("dispatch", "evidence"),
        6: ("no_more_data", "evidence"),
    }
    assert r["excluded"][2]["other_step"] == 1
    assert "memorized" in r["warnings"][0]


def test_the_published_table_of_8_devices_follows_from_its_lines() -> None:
    """Published: about 220 s a step, 10 of 10 steps, exit code 0."""
    r = report(SMALL + "EXIT_CODE=0\n", load.load("almodel-8b-source", ["sequence_length=2048"]), on="tpu7x-2x2x1")
    assert r["steady_state"]["step_s"] == 220.0 and r["steady_state"]["num_steps"] == 2
    assert (r["steps"], r["ending"], r["ending_reason"]) == (10, "FINISHED", "complete")
    assert excluded(r)[2] == ("dispatch", "evidence") and r["environment"]["chips"] == 4


@pytest.mark.parametrize(
    ("header", "known", "language", "row"),
    [
        ("", True, "en", "| parameters | 19,058,158,884, 3,243,468,800 active per token, by its dimensions |"),
        ("", True, "zh", "| 总参数量 | 19,058,158,884，每 token 激活 3,243,468,800（按模型维度计算） |"),
        ("number parameters: 19.1 billion\n", True, "en", "| parameters | 19,100,000,000 |"),
        ("", False, "en", "| parameters | not known |"),
    ],
)
def test_the_row_of_parameters(tmp_path: Path, header: str, known: bool, language: str, row: str) -> None:
    recipe, on = (load.load(*_almodel()), "") if known else (None, "tpu7x-2x4x4")
    write(tmp_path, header + source_log(), recipe, on, language)
    page = (tmp_path / "report/report.md").read_text()
    name, value = row.strip("| ").split(" | ")
    assert row in page and page.count(f"| {name} |") == 1
    assert f"<th>{name}</th><td>{value}</td>" in (tmp_path / "report/report.html").read_text()


def test_the_wrong_flop_formula_of_the_source_is_flagged_with_the_true_figure() -> None:
    """Published: 32.0 TFLOP/s/device. The architecture has 20.17 GFLOP a token, which makes 11.07 of 549 tokens/s."""
    r = report(source_log(), load.load(*_almodel()))
    flops = check(r, "flops")
    assert flops["verdict"] == "warning" and flops["logged"] == pytest.approx(32.0, abs=0.02)
    assert flops["true_gflop"] == pytest.approx(20.17, abs=0.05) and flops["logged_gflop"] == pytest.approx(
        58.28, abs=0.05
    )
    assert flops["ratio"] == pytest.approx(2.89, abs=0.01) and flops["true"] == pytest.approx(11.07, abs=0.03)
    assert (
        r["steady_state"]["tflops_per_device"] == flops["true"] and r["steady_state"]["tflops_source"] == "architecture"
    )
    assert r["steady_state"]["mfu"] == pytest.approx(0.0096, abs=0.0001)
    assert r["steady_state"]["logged_tflops_per_device"] == pytest.approx(32.0, abs=0.02)
    text = sentence(flops)
    assert "Wrong FLOP formula" in text and "32.0" in text and "11.1" in text and "2.89 times" in text
    assert check(r, "tokens")["verdict"] == "ok" and check(r, "peak")["verdict"] == "ok"
    assert " of the bf16 peak of 1,153.5" in sentence(check(r, "peak"))


def test_tflops_by_tokens_that_do_not_hold_are_not_called_true() -> None:
    r = report(source_log().replace("Num_devices: 64", "Num_devices: 128"), load.load(*_almodel()))
    assert check(r, "tokens")["why"] == "devices"
    english, chinese = (sentence(check(r, "flops"), language) for language in LANGUAGES)
    assert "By the log's Tokens/s, which do not hold: 11.1" in english and "True" not in english
    assert "不成立的 Tokens/s" in chinese and "实际" not in chinese


def test_the_parameters_of_almodel_follow_from_its_dimensions() -> None:
    """Its original project calls it 8B; its dimensions make 19.06 B, of which a token meets 3.24 B."""
    r = report(source_log(), load.load(*_almodel()))
    counted = r["environment"]["by_architecture"]
    assert (counted["num_params"], counted["num_active_params"]) == (19_058_158_884, 3_243_468_800)


def test_731_tflops_of_the_source_are_flagged_as_9_5_times_too_many() -> None:
    """The same model elsewhere: 731 TFLOP/s/device logged, 76.9 true."""
    true_tokens = 76.9e12 / 20.17e9
    lines = [step(n, 4096 / true_tokens, 731.0, true_tokens, 262144) for n in range(8)]
    flops = check(report("\n".join(lines), load.load(*_almodel()), on="tpu7x-2x4x4"), "flops")
    assert flops["verdict"] == "warning" and flops["ratio"] == pytest.approx(9.5, abs=0.05)
    assert flops["true"] == pytest.approx(76.9, abs=0.3)


def _almodel() -> tuple[str, list[str]]:
    return "almodel-8b-source", []


# --- which steps count


def test_the_median_and_its_spread() -> None:
    r = report(log(60, 3, 2.0, 2.2, 2.4, 2.6, 2.8), on="v6e-16")
    s = r["steady_state"]
    assert (s["step_s"], s["step_s_iqr"], s["step_s_range"], s["num_steps"]) == (2.4, [2.2, 2.6], [2.0, 2.8], 5)
    assert s["tokens_per_s_per_chip"] == s["tokens_per_s_per_device"] == pytest.approx(8192 / 2.4, abs=0.01)
    assert excluded(r) == {0: ("compiles", "rule"), 1: ("warm_up", "rule")}


PROFILED = {"profiler": "xplane", "skip_first_n_steps_for_profiler": "5", "profiler_steps": "3", "steps": "12"}


@pytest.mark.parametrize(("period", "traced"), [(0, [103, 104]), (4, [103, 104, 107, 108, 111, 112])])
def test_a_profiler_traces_once_or_again_after_every_period(period: int, traced: list[int]) -> None:
    steps = ProfiledSteps(skip=3, num=1, period=period).steps(100, 112)
    assert list(itertools.islice(steps, len(traced) + 1)) == traced


def test_steps_of_the_profilers_configuration_do_not_count() -> None:
    recipe = example(topology="tpu7x-2x2x1", arguments=PROFILED)
    r = report(log(*[60.0, 3.0] + [2.0] * 10, header=""), recipe)
    assert {n for n, (reason, _) in excluded(r).items() if reason == "profiled"} == {5, 6, 7, 8}
    assert r["steady_state"]["num_steps"] == 6


def test_the_configuration_that_the_log_prints_counts_before_the_recipe() -> None:
    header = "\n".join(
        f"Config param {k}: {v}"
        for k, v in (PROFILED | {"skip_first_n_steps_for_profiler": "2", "profiler_steps": "1"}).items()
    )
    r = report(log(*[60.0, 3.0] + [2.0] * 10, header=header), example(arguments=PROFILED))
    assert {n for n, (reason, _) in excluded(r).items() if reason == "profiled"} == {2, 3}


def test_after_a_restart_the_profiler_begins_anew() -> None:
    recipe = example(
        arguments=PROFILED | {"skip_first_n_steps_for_profiler": "2", "profiler_steps": "1", "steps": "100"}
    )
    r = report(
        log(*[60.0, 3.0] + [2.0] * 8, header="") + log(*[50.0, 3.0] + [2.0] * 8, first=10, header="XPK Start: now"),
        recipe,
    )
    assert sorted(excluded(r)) == [0, 1, 2, 3, 10, 11, 12, 13]


def test_a_period_of_the_profiler() -> None:
    recipe = example(
        arguments=PROFILED
        | {"profile_periodically_period": "4", "profiler_steps": "1", "skip_first_n_steps_for_profiler": "3"}
    )
    r = report(log(*[60.0, 3.0] + [2.0] * 10, header=""), recipe)
    assert {n for n, (reason, _) in excluded(r).items() if reason == "profiled"} == {3, 4, 7, 8, 11}


def test_a_slow_step_beside_the_profilers_lines_does_not_count_and_another_does() -> None:
    lines = log(*[60.0, 3.0] + [2.0] * 4 + [6.1] + [2.0] * 5 + [6.2] + [2.0] * 5).splitlines()
    lines.insert(6, "I0811 7 profiler_session.cc:136] Profiler session started.")
    r = report("\n".join(lines), on="v6e-16")
    assert excluded(r)[6] == ("beside_profiler", "evidence") and 12 not in excluded(r)
    assert [s["step"] for s in r["slow_steps"]] == [12] and r["steady_state"]["step_s"] == 2.0


def test_steps_between_lines_without_seconds_do_not_count() -> None:
    hidden = "completed profiler activation/deactivation step: {}, total_weights: 131072, loss: 3.000"
    lines = log(*[60.0, 3.0] + [2.0] * 12).splitlines()
    for n in (5, 6, 8, 9):
        lines[n + 1] = hidden.format(n)
    r = report("\n".join(lines), on="v6e-16")
    assert {n: excluded(r)[n] for n in (5, 6, 7, 8, 9)} == {
        5: ("no_seconds", "rule"),
        6: ("no_seconds", "rule"),
        7: ("profiled", "evidence"),
        8: ("no_seconds", "rule"),
        9: ("no_seconds", "rule"),
    }
    assert r["steady_state"]["num_steps"] == 7


@pytest.mark.parametrize(
    ("seconds", "reasons"),
    [
        ([2.0, 2.0, 0.05, 3.95, 2.0, 2.0], {4: "dispatch", 5: "pays_back"}),
        ([2.0, 3.95, 0.05, 2.0, 2.0, 2.0], {3: "pays_back", 4: "dispatch"}),
        ([2.0, 2.0, 0.05, 2.0, 2.0, 2.0], {4: "dispatch"}),
        ([2.0, 2.0, 0.9, 2.0, 2.0, 2.0], {}),
        ([2.0, 2.0, 0.9, 3.1, 2.0, 2.0], {4: "dispatch", 5: "pays_back"}),
        ([2.0, 2.0, 2.0, 3.1, 2.0, 2.0], {}),
    ],
    ids=[
        "paid back after",
        "paid back before",
        "a fortieth of the median",
        "half, not paid back",
        "half, paid back",
        "slow alone",
    ],
)
def test_dispatch_artefacts(seconds: list[float], reasons: dict[int, str]) -> None:
    r = report(log(60.0, 3.0, *seconds), on="v6e-16")
    assert {n: reason for n, (reason, _) in excluded(r).items() if n > 1} == reasons
    assert r["steady_state"]["step_s"] == 2.0


def test_ramp_up_does_not_count() -> None:
    lines = log(*[60.0, 3.0] + [1.0] * 3 + [2.0] * 4).splitlines()
    lines[1:6] = [f"[Rampup Batch Size Phase], {text}" for text in lines[1:6]]
    r = report("\n".join(lines), on="v6e-16")
    assert [excluded(r)[n][0] for n in range(5)] == ["compiles", "warm_up", "ramp_up", "ramp_up", "ramp_up"]
    assert r["steady_state"]["num_steps"] == 4


def test_single_steps_above_the_peak_do_not_count_and_all_of_them_are_a_wrong_formula() -> None:
    lines = log(*[60.0, 3.0] + [2.0] * 6).splitlines()
    lines[5] = step(4, 2.0, tflops=2400.0)
    r = report("\n".join(lines), on="v6e-16")
    assert excluded(r)[4] == ("impossible", "evidence") and check(r, "peak")["verdict"] == "ok"
    every = "\n".join(step(n, 2.0, tflops=2400.0) for n in range(8))
    r = report(every, on="v6e-16")
    peak = check(r, "peak")
    assert peak["verdict"] == "warning" and peak["peak"] == 918.0 and r["steady_state"]["num_steps"] == 6
    assert sentence(peak).startswith("Impossible: 2,400.0 TFLOP/s/device")


def test_nothing_is_steady_in_two_steps() -> None:
    r = report(log(60.0, 3.0), on="v6e-16")
    assert r["steady_state"]["step_s"] is None and r["steady_state"]["num_left_out"] == 2
    assert page_text(r).headline.startswith("No step time: the log has only steps that compile and warm up (2).")


# --- restarts, time


def test_repeated_steps_are_counted_and_told() -> None:
    r = report(log(*[60.0, 3.0] + [2.0] * 6) + log(*[50.0, 3.0] + [2.0] * 6, first=5, header=""), on="v6e-16")
    assert (r["steps"], r["steps_logged"], r["steps_recomputed"], len(r["attempts"])) == (13, 16, 3, 2)
    second = r["attempts"][1]
    assert (second["number"], second["first_step"], second["last_step"], second["ending"]) == (2, 5, 12, None)
    assert "steps computed again: 3" in "\n".join(page.summary(r))


def test_goodput_is_the_time_of_steps_that_count() -> None:
    """60 + 3 + 4 x 2 s, then a restart that repeats two steps: 100 + 3 + 2 x 2. Compiling counts as a median step of 2 s."""
    second = 0.0
    lines = []
    for n, s in [(0, 60), (1, 3), (2, 2), (3, 2), (4, 2), (5, 2), (4, 100), (5, 3), (6, 2), (7, 2)]:
        second += s
        lines.append(f"2026-11-21T02:{int(second) // 60:02}:{int(second) % 60:02}.000Z {step(n, s)}")
    r = report("2026-11-21T02:00:00.000Z Num_devices: 16, shape (16,)\n" + "\n".join(lines), on="v6e-16")
    assert r["wall_time"]["total_s"] == 178.0 and r["wall_time"]["productive_s"] == 2 + 3 + 2 + 2 + 2 + 3 + 2 + 2
    assert r["wall_time"]["goodput"] == pytest.approx(18 / 178)


def test_without_times_there_is_no_goodput() -> None:
    r = report(log(60.0, 3.0, 2.0, 2.0), on="v6e-16")
    assert r["wall_time"]["goodput"] is None and r["wall_time"]["total_s"] is None


# --- per chip, and what is not known


def test_a_chip_of_tpu7x_has_two_devices() -> None:
    text = "\n".join(
        ["Num_devices: 256, shape (256,)", *(step(n, 27.4, 303.8, 32768 / 27.4, 8388608) for n in range(8))]
    )
    s = report(text, on="tpu7x-4x4x8")["steady_state"]
    assert s["tflops_per_chip"] == pytest.approx(607.6) and s["tokens_per_s_per_chip"] == pytest.approx(
        2 * 32768 / 27.4, abs=0.01
    )


def test_what_is_not_known_without_a_recipe_is_said_and_not_guessed() -> None:
    r = report(log(60.0, 3.0, 2.0, 2.0, header=""))
    s, e = r["steady_state"], r["environment"]
    assert (e["devices"], e["chips"], e["slice"], r["model"], r["precision"], r["steps_planned"]) == (None,) * 6
    assert (
        s["tokens_per_s_per_chip"] is None and s["tflops_per_chip"] is None and s["mfu"] is None and s["step_s"] == 2.0
    )
    assert {c["check"]: c["verdict"] for c in r["checks"]} == {
        "tokens": "unknown",
        "peak": "unknown",
        "flops": "unknown",
    }
    for language in LANGUAGES:
        text = "\n".join(page.summary(r, language))
        assert "--recipe" in text and "--on" in text


def test_the_kind_of_chip_may_stand_in_the_log() -> None:
    r = report("TFRT TPU v6 lite\n" + log(60.0, 3.0, 2.0, 2.0))
    assert r["environment"]["device_kind"] == "v6e" and r["environment"]["chips"] == 16


def test_a_log_of_other_devices_than_the_recipes_is_a_warning() -> None:
    r = report(log(60.0, 3.0, 2.0, 2.0), on="v6e-32")
    assert "16 devices in the log, 32 in v6e-32" in check(r, "conflict")["what"]


# --- checks


@pytest.mark.parametrize(
    ("arguments", "header", "message"),
    [
        ({"steps": "2"}, "", "step 11 is in the log, and the recipe has 2 steps: probably another recipe"),
        ({"per_device_batch_size": "2"}, "", "131,072 tokens in the log and 262,144 in the recipe, 32 sequences of 8,192: probably another recipe"),
        ({"max_target_length": "4096"}, "", "131,072 tokens in the log and 65,536 in the recipe, 16 sequences of 4,096: probably another recipe"),
        ({"steps": "40"}, "Config param steps: 12", "steps is 12 in the log and 40 in the recipe: probably another recipe"),
        ({}, "", ""),
    ],
)  # fmt: skip
def test_a_log_of_another_recipe(arguments: dict[str, str], header: str, message: str) -> None:
    given = {"steps": "12", "per_device_batch_size": "1", "max_target_length": "8192"} | arguments
    lines = log(*[60.0, 3.0] + [2.0] * 10, header=f"Num_devices: 16, shape (16,)\n{header}")
    r = report(lines, example(topology="v6e-16", arguments=given))
    differing = [c["what"] for c in r["checks"] if c["check"] == "conflict"]
    assert (len(differing) == 1 and message in differing[0]) if message else not differing


@pytest.mark.parametrize(
    ("arguments", "header", "known"),
    [
        ({"max_target_length": "4096"}, "", False),
        ({"max_target_length": "4096"}, "Config param max_target_length: 8192", True),
        ({"per_device_batch_size": "2"}, "", False),
        ({}, "Config param model_name: llama3.1-8b", False),
        ({"steps": "2"}, "", True),
        ({}, "", True),
    ],
)
def test_flops_of_an_architecture_are_withheld_from_a_log_of_another(
    arguments: dict[str, str], header: str, known: bool
) -> None:
    given = {"model_name": "llama3.1-70b", "steps": "12", "per_device_batch_size": "1", "max_target_length": "8192"}
    lines = log(*[60.0, 3.0] + [2.0] * 10, header=f"Num_devices: 16, shape (16,)\n{header}")
    r = report(lines, example(topology="v6e-16", arguments=given | arguments))
    assert (r["steady_state"]["tflops_source"], r["flops"]["per_token"] is not None) == (
        ("architecture", True) if known else ("log", False)
    )
    assert known or "Type --recipe with the recipe that it is of" in sentence(check(r, "flops"))


@pytest.mark.parametrize(
    ("weights", "verdict", "why", "ratio"),
    [
        (131072, "ok", "", 1.0),
        (130500, "ok", "", 1.0044),
        (98304, "warning", "padding", 4 / 3),
        (65536, "warning", "devices", 2.0),
    ],
)
def test_tokens_by_the_weights(weights: int, verdict: str, why: str, ratio: float) -> None:
    text = "\n".join(["Num_devices: 16, shape (16,)", *(step(n, 2.0, weights=weights) for n in range(8))])
    tokens = check(report(text, on="v6e-16"), "tokens")
    assert (tokens["verdict"], tokens["why"]) == (verdict, why) and tokens["ratio"] == pytest.approx(ratio, abs=1e-3)
    assert tokens["logged"] == pytest.approx(4096.0) and tokens["expected"] == pytest.approx(weights / 2 / 16)
    assert ("does not hold" in sentence(tokens)) == (verdict == "warning")


def test_seconds_of_few_digits_are_no_difference() -> None:
    """0.012 s may be 0.0115 to 0.0125: 4 %."""
    text = "\n".join(["Num_devices: 16, shape (16,)", *(step(n, 0.012, tokens=8192 / 0.01235) for n in range(8))])
    assert check(report(text, on="v6e-16"), "tokens")["verdict"] == "ok"


DEEPSEEK = {"model_name": "deepseek3-671b", "per_device_batch_size": "8.0", "max_target_length": "4096", "steps": "30"}


def deepseek(factor: float = 1.0, seconds: float = 27.42) -> str:
    tflops, tokens = factor * 303.8 * 27.02 / seconds, 32768 / seconds
    return "\n".join(
        ["Num_devices: 256, shape (256,)", *(step(n, seconds, tflops, tokens, 8388608) for n in range(10))]
    )


def test_a_public_recipe_is_held_against_its_published_row_and_its_architecture() -> None:
    """Published for DeepSeek-V3 in bf16 on 4x4x8: 27.02 s, 607.5 TFLOP/s/chip, 2,425.8 tokens/s/chip."""
    r = report(deepseek(), example(topology="tpu7x-4x4x8", arguments=DEEPSEEK))
    assert r["published"]["step_s"] == 27.02 and r["published"]["tokens_per_s_per_chip"] == 2425.75
    assert check(r, "flops")["verdict"] == "ok" and r["config"] == "4k-bf16-tpu7x-4x4x8"
    text = "\n".join(page.summary(r))
    assert "published: Step Time (s) 27.020, measured 27.420 (+1.5 %)" in text


def test_a_log_with_tokens_of_another_recipe_has_no_published_row_beside_it() -> None:
    lines = deepseek().replace("8388608", "4194304")
    assert report(lines, example(topology="tpu7x-4x4x8", arguments=DEEPSEEK))["published"] is None


def test_a_formula_that_counts_twice_too_much_is_flagged() -> None:
    flops = check(report(deepseek(factor=2.0), example(topology="tpu7x-4x4x8", arguments=DEEPSEEK)), "flops")
    assert flops["verdict"] == "warning" and flops["ratio"] == pytest.approx(2.0, abs=0.03)


@pytest.mark.parametrize(
    "change", [{"per_device_batch_size": "4.0"}, {"quantization": "fp8_full"}, {"max_target_length": "8192"}]
)
def test_other_settings_have_no_published_row_or_another(change: dict[str, str]) -> None:
    r = report(deepseek(), example(topology="tpu7x-4x4x8", arguments=DEEPSEEK | change))
    assert r["published"] is None or r["published"]["step_s"] != 27.02


@pytest.mark.parametrize(("quantization", "published", "peak"), [("int8", 14.245, 1836), ("", 17.182, 918)])
def test_an_int8_run_has_the_published_row_and_the_peak_of_int8(
    quantization: str, published: float, peak: float
) -> None:
    arguments = {"model_name": "gpt3-175b", "per_device_batch_size": "3", "max_target_length": "2048", "steps": "30"}
    arguments |= {"quantization": quantization} if quantization else {"dtype": "bfloat16"}
    lines = [step(n, 14.2, 400.0, 3 * 2048 / 14.2, 3 * 2048 * 256) for n in range(10)]
    r = report("\n".join(lines), example(topology="v6e-256", arguments=arguments))
    assert r["published"]["step_s"] == published
    assert r["environment"]["peak_tflops_per_device"] == peak


def test_a_loss_that_is_not_finite() -> None:
    lines = [step(n, 2.0, loss=3.0 if n < 5 else float("nan")) for n in range(8)]
    r = report("\n".join(lines), on="v6e-16")
    assert (check(r, "loss")["step"], check(r, "loss")["recovered"]) == (5, False)
    assert r["loss"]["last"] == 3.0 and r["loss"]["not_finite_at"] == 5
    json.dumps(r, allow_nan=False)


# --- how it ended

TEN = example(arguments={"steps": "10"})
ENDS = {
    "finished": (10, "EXIT_CODE=0", "FINISHED", "complete"),
    "no exit code": (10, "", "FINISHED", "complete"),
    "upload of the log failed": (
        10,
        "CommandException: No URLs matched: /logs/train-0.log\nEXIT_CODE=1",
        "FINISHED",
        "upload_failed",
    ),
    "upload by gcloud failed": (10, "ERROR: (gcloud.storage.cp) The following URLs matched no objects\nEXIT_CODE=1", "FINISHED", "upload_failed"),
    "something after the last step failed": (10, "EXIT_CODE=137", "FINISHED", "complete_exit_code"),
    "data ended": (7, "Traceback (most recent call last):\nStopIteration\nEXIT_CODE=1", "OUT_OF_DATA", "out_of_data"),
    "data ended, exit code 0": (7, "Training stopped: `load_next_batch()` failed with <class 'StopIteration'> exception: ().\nEXIT_CODE=0", "OUT_OF_DATA", "out_of_data"),
    "out of memory": (3, "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 30.31G. Only 29.35G free.\nEXIT_CODE=1", "OUT_OF_MEMORY", "failure"),
    "aborted": (5, "Aborting training due to NaN loss.\nEXIT_CODE=1", "NOT_FINITE", "not_finite"),
    "unknown failure": (5, "EXIT_CODE=1", "CRASHED", "exit_code"),
    "stopped early": (5, "EXIT_CODE=0", "UNKNOWN", "exit_0_early"),
    "still running": (5, "", None, "no_end"),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "last", "ending", "reason"), ENDS.values(), ids=ENDS)
def test_how_it_ended(steps: int, last: str, ending: str | None, reason: str) -> None:
    r = report(log(*[60.0, 3.0] + [2.0] * (steps - 2)) + last + "\n", TEN)
    assert (r["ending"], r["ending_reason"], r["steps"]) == (ending, reason, steps)
    for language in LANGUAGES:
        text = page_text(r, language).ended
        assert str(steps) in text and "10" in text and "{" not in text


@pytest.mark.parametrize(("recipe", "last"), [(TEN, "EXIT_CODE=0"), (TEN, ""), (None, "EXIT_CODE=0")])
@pytest.mark.parametrize("word", ["nan", "inf"])
def test_steps_without_a_finite_loss_are_no_training_that_finished(word: str, recipe: Recipe | None, last: str) -> None:
    lines = [step(n, 2.0, loss=3.0 if n < 6 else float(word)) for n in range(10)]
    r = report("\n".join([*lines, last]) + "\n", recipe)
    assert (r["ending"], r["ending_reason"]) == ("NOT_FINITE", "loss_not_finite") and "learning_rate" in r["ending_fix"]
    assert r["loss"]["ends_not_finite"]
    for language in LANGUAGES:
        assert "NaN" in page_text(r, language).ended
    r = report("\n".join([*lines, step(10, 2.0, loss=2.9), last]) + "\n", TEN)
    assert r["ending"] == "FINISHED" and r["loss"]["last"] == 2.9


def test_without_a_plan_exit_code_0_is_the_end() -> None:
    r = report(log(60.0, 3.0, 2.0) + "EXIT_CODE=0\n")
    assert (r["ending"], r["ending_reason"]) == ("FINISHED", "exit_0") and "not known" in page_text(r).ended


# --- words


def test_both_languages_say_the_same_things() -> None:
    for key, text in texts().items():
        english, chinese = (
            {name.partition("[")[0] for _, name, _, _ in string.Formatter().parse(text.get(language, key)) if name}
            for language in LANGUAGES
        )
        assert chinese <= english and text.keys() in ({"zh"}, {"en", "zh"}), key
        assert english == chinese or key == "by_architecture", key


def test_every_text_of_the_pages_has_chinese() -> None:
    """Those that templates name, in which a key stands behind `t(`."""
    written = "".join(path.read_text() for path in page.TEMPLATES.glob("*.j2"))
    keys = {*re.findall(r'\bt\("([^"]+)"', written), *(words for row in maxtext.FACTS.steady.values() for words in row)}
    assert len(keys) > 60 and keys <= texts().keys()


NOT_LOGS = {
    "empty": (b"", "train.log has no completed step"),
    "another log": (b"epoch 1 loss 2.0\nepoch 2 loss 1.5\n", "train.log has no completed step"),
    "binary": (bytes(range(256)) * 40, "train.log has no completed step"),
    "cut in the first step": (
        b"completed step: 0, secon",
        "train.log has no completed step that can be read: 'completed step: 0, secon'",
    ),
    "died before the first step": (
        b"jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 30.31G. Only 29.35G free.\n",
        "train.log has no completed step: ",
    ),
}


@pytest.mark.parametrize(("content", "message"), NOT_LOGS.values(), ids=NOT_LOGS)
def test_what_is_no_log_is_one_line(content: bytes, message: str) -> None:
    with pytest.raises(UserError) as e:
        report(content)
    assert e.value.what.startswith(message) and "\n" not in str(e.value)


def test_all_files_are_written(tmp_path: Path) -> None:
    write(tmp_path, source_log(), load.load(*_almodel()))
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert names == {"result.json", "report.html", "report.md", "step-time.svg", "loss.svg"}
    html = (tmp_path / "report" / "report.html").read_text()
    assert "Wrong FLOP formula" in html and "7 of 10 steps" in html and "<script" not in html
    assert "dispatch artefact, far below the median: step 1 has its time" in html
    assert "podwright report --log train.log --recipe almodel-8b-source" in html
    assert json.loads((tmp_path / "report" / "result.json").read_text())["steady_state"]["step_s"] == 7.462


def test_a_log_of_maxtext_itself() -> None:
    """MaxText 0.2.5 on a CPU, 12 steps, of which it traced steps 4 and 5; step 6 waited until the trace was written."""
    text = (Path(__file__).parents[1] / "watch" / "maxtext_cpu.log").read_text()
    r = report(text)
    assert (r["ending"], r["steps"], r["steps_planned"], r["name"], r["precision"]) == (
        "FINISHED",
        12,
        12,
        "toy",
        "bf16",
    )
    assert excluded(r) == {
        0: ("compiles", "rule"),
        1: ("warm_up", "rule"),
        4: ("profiled", "rule"),
        5: ("profiled", "rule"),
        6: ("profiled", "rule"),
    }
    assert r["steady_state"]["step_s"] == 0.048 and r["steady_state"]["num_steps"] == 7
    assert check(r, "tokens")["verdict"] == "ok" and check(r, "tokens")["per"] == "device"
    assert r["last_step_figures"] == {"lm_loss": 6.021, "perplexity": 411.817}
    assert r["environment"]["versions"] == {"jax": "0.12.0.1", "jaxlib": "0.12.0.1"}
    assert r["loss"] == {
        "change": pytest.approx(6.021 / 6.123 - 1),
        "first": 6.123,
        "last": 6.021,
        "first_step": 0,
        "last_step": 11,
        "not_finite_at": None,
        "ends_not_finite": False,
    }
    assert r["wall_time"]["total_s"] == pytest.approx(32.0, abs=0.5)


def test_without_its_configuration_the_profilers_lines_show_the_slow_step() -> None:
    text = (Path(__file__).parents[1] / "watch" / "maxtext_cpu.log").read_text()
    r = report("\n".join(line for line in text.splitlines() if "Config param" not in line))
    assert excluded(r)[6] == ("beside_profiler", "evidence") or excluded(r)[6][0] == "pays_back"
    assert excluded(r)[5][0] == "dispatch" and r["steady_state"]["step_s"] == pytest.approx(0.05, abs=0.006)


@pytest.mark.parametrize(
    ("printed", "precision", "profiled"),
    [
        ({"quantization": "QuantizationType.FP8_FULL", "profiler": "ProfilerType.NONE"}, "fp8", False),
        ({"quantization": "", "dtype": "bfloat16", "profiler": ""}, "bf16", False),
        ({"quantization": "int8", "profiler": "xplane"}, "int8", True),
        (
            {"quantization": "QuantizationType.NONE", "dtype": "float32", "profiler": "ProfilerType.XPLANE"},
            "fp32",
            True,
        ),
    ],
)
def test_values_that_are_printed_as_enums(printed: dict[str, str], precision: str, profiled: bool) -> None:
    header = "\n".join(
        f"Config param {k}: {v}"
        for k, v in ({"skip_first_n_steps_for_profiler": "4", "profiler_steps": "1"} | printed).items()
    )
    r = report(log(*[60.0, 3.0] + [2.0] * 6, header=header), on="tpu7x-2x2x2")
    assert r["precision"] == precision and (4 in excluded(r)) == profiled
    assert r["environment"]["peak_tflops_per_device"] == {"fp8": 2307.0}.get(precision, 1153.5)


def reasons(r: Result) -> dict[int, str]:
    """Of the steps after the first two."""
    return {n: reason for n, (reason, _) in excluded(r).items() if n > 1}


def test_a_slow_step_beside_traced_ones_does_not_count() -> None:
    seconds = [60.0, 3.0] + [2.0] * 18
    for n in (4, 9, 11):
        seconds[n] = 3.5
    r = report(log(*seconds, header=""), example(arguments=PROFILED | {"steps": "20"}))
    assert reasons(r) == {4: "beside_profiler", 9: "beside_profiler"} | dict.fromkeys((5, 6, 7, 8), "profiled")


@pytest.mark.parametrize(("n", "near"), [(5, False), (6, True), (7, True), (9, True), (10, False)])
def test_how_near_the_profilers_lines_must_be(n: int, near: bool) -> None:
    seconds = [60.0, 3.0] + [2.0] * 14
    seconds[n] = 4.5
    lines = log(*seconds).splitlines()
    lines.insert(8, "I0811 7 profiler_session.cc:217] Profiler session tear down.")  # after step 6
    r = report("\n".join(lines), on="v6e-16")
    assert reasons(r) == ({n: "beside_profiler"} if near else {})
    assert r["slow_steps"] == ([] if near else [{"step": n, "seconds": 4.5}])


def test_the_spread_of_two_steps() -> None:
    s = report(log(60.0, 3.0, 2.0, 3.0), on="v6e-16")["steady_state"]
    assert (s["step_s"], s["step_s_iqr"], s["num_steps"]) == (2.5, [2.25, 2.75], 2)
    assert report(log(60.0, 3.0, 2.0), on="v6e-16")["steady_state"]["step_s_iqr"] is None


def test_a_step_that_is_not_the_second_does_not_warm_up() -> None:
    r = report("\n".join(step(n, 2.0) for n in (0, 2, 3, 4)), on="v6e-16")
    assert excluded(r) == {0: ("compiles", "rule")}


@pytest.mark.parametrize("cycle", [(0.05, 0.05, 36.5), (24.35, 0.05), (0.05, 0.05, 24.4, 24.4)])
def test_steps_that_come_in_bursts_have_no_median(cycle: tuple[float, ...]) -> None:
    r = report(log(60.0, 4.0, *cycle * 7))
    assert {reason for reason, _ in evidence(r).values()} == {"bursts"} and r["steady_state"]["step_s"] is None
    assert len(evidence(r)) == 7 * len(cycle)
    kept = report(log(60.0, 4.0, *[2.0] * 12, *[0.05, 4.0] * 2, 600.0))
    assert kept["steady_state"]["step_s"] == 2.0


def test_more_than_any_device_can_do_is_impossible_on_unknown_hardware() -> None:
    r = report("\n".join(step(n, 0.05, tflops) for n, tflops in enumerate([150000.0] * 8)))
    peak = check(r, "peak")
    assert peak["verdict"] == "warning" and "peak" not in peak
    for language in LANGUAGES:
        assert "150,000.0" in sentence(peak, language) and "{" not in sentence(peak, language)


def test_a_little_above_the_peak_is_impossible_too() -> None:
    lines = log(*[60.0, 3.0] + [2.0] * 6).splitlines()
    lines[5] = step(4, 2.0, tflops=950.0)
    assert reasons(report("\n".join(lines), on="v6e-16")) == {4: "impossible"}


def test_half_of_the_steps_above_the_peak_are_a_wrong_formula() -> None:
    lines = [step(n, 2.0, tflops=950.0 if n % 2 else 900.0) for n in range(8)]
    assert reasons(report("\n".join(lines), on="v6e-16")) == {}


def test_artefacts_after_a_restart() -> None:
    second = log(50.0, 3.0, 2.0, 2.0, 0.9, 3.1, 2.0, first=6, header="")
    r = report(log(*[60.0, 3.0] + [2.0] * 6) + second, on="v6e-16")
    assert reasons(r) == {6: "compiles", 7: "warm_up", 10: "dispatch", 11: "pays_back"}


def test_of_many_steps_that_do_not_count_fifty_are_listed() -> None:
    seconds = [60.0, 3.0] + [2.0, 2.0, 2.0, 0.1, 3.9] * 40
    r = report(log(*seconds), on="v6e-16")
    assert (
        len(r["excluded"]) == 50 and r["steady_state"]["num_left_out"] == 82 and r["steady_state"]["num_steps"] == 120
    )
    assert r["excluded_counts"] == {"compiles": 1, "warm_up": 1, "dispatch": 40, "pays_back": 40}


def test_a_step_that_has_the_time_of_the_warm_up_does_not_count() -> None:
    """As logs of MaxText begin: step 0 compiles, step 1 is 0.3 s, step 2 has twice the time of the others."""
    r = report(log(125.0, 0.31, 54.2, *[27.4] * 8), on="v6e-16")
    assert reasons(r) == {2: "pays_back"} and r["excluded"][2]["other_step"] == 1
    assert r["steady_state"]["num_steps"] == 8 and r["slow_steps"] == []


# --- limits of the evidence, each on both sides


def steps_of(*seconds: float) -> Result:
    return report(log(60.0, 4.0, *[4.0] * 8, *seconds, *[4.0] * 8), on="v6e-16")


def evidence(r: Result) -> dict[int, tuple[str, str]]:
    return {n: row for n, row in excluded(r).items() if n > 1}


@pytest.mark.parametrize(
    ("seconds", "left_out"),
    [
        ((0.6,), {}),  # above a tenth of the median, and no neighbour has its time
        ((0.4,), {}),
        ((0.399,), {10: ("dispatch", "evidence")}),
        ((1.0, 4.5), {}),  # 3 s are missing, and the neighbour has 0.5 more
        ((1.0, 5.5), {10: ("dispatch", "evidence"), 11: ("pays_back", "evidence")}),
        ((5.5, 1.0), {10: ("pays_back", "evidence"), 11: ("dispatch", "evidence")}),
        ((2.0, 6.0), {}),  # half of the median is no artefact
    ],
)
def test_a_fast_step_is_left_out_by_its_time_or_its_neighbours(seconds: tuple[float, ...], left_out: object) -> None:
    assert evidence(steps_of(*seconds)) == left_out


def test_a_fast_warm_up_is_paid_by_the_step_after_it_alone() -> None:
    assert evidence(report(log(60.0, 0.05, 9.0, *[4.0] * 8))) == {2: ("pays_back", "evidence")}
    assert evidence(report(log(60.0, 0.05, 4.0, 9.0, *[4.0] * 8))) == {}
    again = log(60.0, 0.05, 9.0, *[4.0] * 8, first=11, header="XPK Start: now")
    both = evidence(report(log(60.0, 0.05, 9.0, *[4.0] * 8) + again))
    assert [n for n, (reason, _) in both.items() if reason == "pays_back"] == [2, 13]


def test_slow_steps_are_those_over_twice_the_median() -> None:
    assert steps_of(8.0)["slow_steps"] == []
    assert steps_of(8.0, 8.1)["slow_steps"] == [{"step": 11, "seconds": 8.1}]
    assert report(log(60.0, *[0.5] * 9, 1.5))["slow_steps"] == [{"step": 10, "seconds": 1.5}]


def test_a_step_below_the_peak_counts_and_one_above_it_does_not() -> None:
    lines = [step(n, 4.0, tflops) for n, tflops in enumerate([100.0] * 6 + [900.0, 950.0])]
    assert evidence(report("\n".join(lines), on="v6e-16")) == {7: ("impossible", "evidence")}


@pytest.mark.parametrize(("between", "profiled"), [(31, 31), (32, 0)])
def test_steps_between_two_hidden_ones_are_profiled_up_to_32_steps_apart(between: int, profiled: int) -> None:
    hidden = "completed profiler activation/deactivation step: {}, loss: 3.0"
    lines = [step(n, 4.0) for n in range(4)]
    lines += [hidden.format(4), *(step(5 + n, 4.0) for n in range(between)), hidden.format(5 + between)]
    lines += [step(6 + between + n, 4.0) for n in range(4)]
    r = report("\n".join(lines))
    assert r["excluded_counts"].get("profiled", 0) == profiled and r["excluded_counts"]["no_seconds"] == 2


# --- words of short logs, and of both languages


def test_a_log_of_one_step_says_what_it_lacks() -> None:
    r = report(log(60.0), on="v6e-16")
    text = "\n".join(page.summary(r))
    assert "after 1 step and" in text and "1 steps" not in text
    assert (
        "No step time: the log has only steps that compile and warm up (1). Give the log of a run with more steps."
        in text
    )
    for name in ("tokens", "peak", "flops"):
        assert check(r, name)["verdict"] == "unknown" and check(r, name)["why"] == "steps"
        assert "could not be checked: no step counts." in sentence(check(r, name))
    chinese = "\n".join(page.summary(r, "zh"))
    assert "没有单步耗时：日志只有编译与 warmup 的 1 步" in chinese and "Loss 变化：3.000（step 0）" in chinese


def test_a_log_whose_steps_are_left_out_for_several_reasons_names_them() -> None:
    header = "Num_devices: 16, shape (16,)\nConfig param profiler: xplane\nConfig param profiler_steps: 9\nConfig param skip_first_n_steps_for_profiler: 2"
    r = report(log(60.0, 3.0, 2.0, 2.0, header=header))
    assert page_text(r).headline == "No step time: all 4 steps are left out, for the reasons below."


def test_a_log_that_ends_before_its_first_step_is_called_that() -> None:
    with pytest.raises(UserError, match=r"train.log has no completed step; give the log of a training process"):
        report("Num_devices: 16, shape (16,)\n")


def test_a_slice_of_other_devices_than_the_log_is_a_conflict() -> None:
    r = report(log(60.0, 3.0, *[2.0] * 8), on="v6e-32")
    assert check(r, "conflict")["what"] == "16 devices in the log, 32 in v6e-32" and r["environment"]["chips"] == 16


def test_counts_of_one_are_singular() -> None:
    t = Words("en")
    assert (
        t("done", steps=1) == "1 step" and t("done", steps=1001) == "1,001 steps" and t("done", steps=11) == "11 steps"
    )
    assert t("of", steps=1, steps_planned=21) == "1 of 21 steps"


def test_a_page_in_chinese_has_no_english_sentence(tmp_path: Path) -> None:
    """Curves, tables, checks, warnings and what differs from the recipe."""
    given = {"steps": "8", "per_device_batch_size": "2", "max_target_length": "8192", "model_name": "llama3.1-8b"}
    evaluated = "Completed eval after train step 9, loss=9.0"
    text = (
        log(60.0, 3.0, 0.01, 4.0, *[2.0] * 8)
        + evaluated
        + "\n"
        + log(60.0, 3.0, *[2.0] * 4, first=10, header="XPK Start: now")
    )
    text = text.replace("loss: 3.000", "loss: 12.000", 2).replace("loss: 3.000", "loss: 0.010")
    r = write(tmp_path, text, example(topology="v6e-32", arguments=given), language="zh")
    assert r["warnings"] and [c for c in r["checks"] if c["check"] == "conflict"]
    html = (tmp_path / "report" / "report.html").read_text()
    html = re.sub(r"<style>.*?</style>|<pre.*?</pre>|<svg.*?>|<[^>]*>", "\n", html, flags=re.DOTALL)
    readme, markdown = (
        re.sub(r"<!--.*?-->|```sh.*?```", "", (tmp_path / name).read_text(), flags=re.DOTALL)
        for name in ("README.md", "report/report.md")
    )
    plain = re.compile(r"(?:\b[a-zA-Z]+\b[ ,;.:]+){3,}")
    assert [line for line in (html + readme + markdown).splitlines() if plain.search(line)] == []
    assert "单步耗时" in html and "灰点" in html and "可能是另一个 recipe" in html
    assert "nats/token" in (tmp_path / "report" / "loss.svg").read_text()


def test_a_sentence_has_its_values_in_each_language() -> None:
    text = Sentence("{n} devices in the log, {num_devices} in {slice}", n=16, num_devices=32, slice="v6e-32")
    assert text == "16 devices in the log, 32 in v6e-32" == Words("en")(text)
    assert Words("zh")(text) == "日志为 16 devices，v6e-32 为 32"


def test_every_suspicion_of_a_log_has_a_chinese_form() -> None:
    steps = [{"step": n, "loss": 12.0 if n < 2 else 0.1} for n in range(40)]
    slow = [{"step": n, "loss": 12.0 - n / 4} for n in range(40)]
    rising = [{"step": n, "loss": 12.0 - n / 100} for n in range(400)]
    curves = [
        suspicions(steps, [], None),
        suspicions(slow, [{"step": 39, "loss": 9.0}], None),
        suspicions(rising, [{"step": 100, "loss": 8.0}, {"step": 390, "loss": 8.3}], None),
    ]
    for (text,) in curves:
        assert not re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", Words("zh")(text)), text


def test_the_ending_and_its_remedy_are_in_the_language_of_the_page() -> None:
    r = figures_of_failure("ABORTED: The TPU is already in use by process with pid 2239507.\n")
    assert (
        "此 worker 的进程 2239507 仍在使用 TPU" in page_text(r, "zh").ended and "kill 2239507" in page_text(r, "zh").fix
    )
    assert "process 2239507 of this worker" in page_text(r).ended and "type kill 2239507" in page_text(r, "en").fix
    r = figures_of_failure("something that no row of the table of failures matches\n")
    assert page_text(r, "zh").fix == page_text(r, "en").fix == ""


def figures_of_failure(text: str) -> Result:
    return report(log(60.0, 3.0, *[2.0] * 3) + text + "EXIT_CODE=1\n", on="v6e-16")


def test_the_remedy_on_the_chinese_page_is_chinese(tmp_path: Path) -> None:
    failure = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm\nEXIT_CODE=1\n"
    r = write(tmp_path, log(60.0, 3.0, *[2.0] * 3) + failure, on="v6e-16", language="zh")
    assert "arguments.per_device_batch_size" in r["ending_fix"]
    html = (tmp_path / "report" / "report.html").read_text()
    assert "输入更小的 arguments.per_device_batch_size" in html and "type a smaller" not in html


# --- times and steps that cannot be


def with_times(word: str, num: int = 8, among: int = 0) -> str:
    """A log of `num` steps whose seconds are `word`, behind `among` steps of 2 s."""
    lines = [step(n, 2.0) for n in range(among)]
    lines += [step(among + n, 2.0).replace("seconds: 2.000", f"seconds: {word}") for n in range(num)]
    return "\n".join(["Num_devices: 16, shape (16,)", *lines]) + "\n"


@pytest.mark.parametrize("word", ["0.000", "-2.000", "inf", "nan", "1e308", "9" * 400])
def test_times_that_are_impossible_have_no_median(tmp_path: Path, word: str) -> None:
    r = write(tmp_path, with_times(word), on="v6e-16", language="zh")
    assert r["steady_state"]["step_s"] is None and r["steady_state"]["tflops_per_chip"] is None
    assert (check(r, "times")["why"], check(r, "times")["num"]) == ("all", 8)
    text = page.summary(r)
    warning = "warning: Impossible: the times of 8 steps are 0 s, below 0 s or no number. There is no median."
    assert text.count(warning) == 1 and "No step time: all 8 steps are left out, for the reasons below." in text
    assert r["wall_time"]["productive_s"] is None


@pytest.mark.parametrize("word", ["-2.000", "inf", "nan", "1e308"])
def test_a_few_impossible_times_do_not_count(word: str) -> None:
    r = report(with_times(word, num=2, among=8), on="v6e-16")
    assert r["steady_state"]["step_s"] == 2.0 and r["steady_state"]["num_steps"] == 6
    assert check(r, "times")["num"] == 2 and "They do not count." in sentence(check(r, "times"))
    assert {reason for number, (reason, _) in excluded(r).items() if number > 1} == {"no_time"}
    assert r["wall_time"]["productive_s"] == 16.0


def test_half_of_the_times_impossible_leaves_no_median() -> None:
    r = report(with_times("0.000", num=4, among=6), on="v6e-16")
    assert r["steady_state"]["step_s"] is None and r["excluded_counts"]["few_times"] == 4
    assert report(with_times("0.000", num=3, among=6))["steady_state"]["step_s"] == 2.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("total_weights: 131072", "total_weights: 0", "the log has no total_weights above 0."),
        ("total_weights: 131072, ", "", "the log has no total_weights above 0."),
        ("Tokens/s/device: 4096.000, ", "", "the log has no Tokens/s above 0."),
        ("Tokens/s/device: 4096.000", "Tokens/s/device: inf", "the log has no Tokens/s above 0."),
    ],
)
def test_tokens_that_cannot_be_checked_say_which_figure_is_missing(old: str, new: str, message: str) -> None:
    r = report(log(*[2.0] * 8).replace(old, new), on="v6e-16")
    assert sentence(check(r, "tokens")) == f"Tokens/s could not be checked: {message}"


def test_steps_that_are_missing_are_named() -> None:
    lines = [step(n, 2.0) for n in (0, 1, 2, 4, 7, 8)]
    r = report("\n".join(["Num_devices: 16, shape (16,)", *lines]) + "\n")
    assert (check(r, "missing")["num"], check(r, "missing")["what"]) == (3, "3, 5-6")
    assert "warning: Steps that are missing in the log: 3 (3, 5-6)." in page.summary(r)
    many = report("\n".join(step(n, 2.0) for n in range(0, 60, 2)) + "\n")
    what = check(many, "missing")["what"]
    assert check(many, "missing")["num"] == 29 and what.startswith("1, 3, 5, ") and what.endswith(", ...")
    resumed = report(log(*[2.0] * 4, first=100) + log(*[2.0] * 4, first=102))
    assert not [c for c in resumed["checks"] if c["check"] == "missing"]


def test_the_host_whose_lines_count_is_named() -> None:
    lines = [f"[pod/w-0-{host}/jax-tpu] {step(n, 2.0 + host)}" for n in range(4) for host in (1, 0)]
    r = report("\n".join(lines) + "\n")
    assert sentence(check(r, "hosts")) == (
        "The log has lines of other hosts too (1); those of pod/w-0-1/jax-tpu count, which reported the first step."
    )

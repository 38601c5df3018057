"""The devices' use in a report: means over the steps alone, of each process; what is warned of; the plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from podwright.recipe.load import load
from podwright.report import device_utilization, page
from podwright.report.records import read
from podwright.report.result import result
from podwright.rundir import DEVICE_COLUMNS, RunDir, append_jsonl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAD = ",".join(DEVICE_COLUMNS) + "\n"


def made(
    folder: Path, busy: float, wait_s: float, used_mib: int = 20_000, device: str = "gpu0", recipe: str = "phase2-tiny"
) -> RunDir:
    """Ten steps of a second after ten seconds of a test, by two processes."""
    run = RunDir(folder / "run")
    run.attempt(1).mkdir(parents=True)
    asked = load(recipe)
    run.recipe.write_text(json.dumps(asked.model_dump(mode="json")))
    for time, phase in ((0, "loading"), (1, "evaluation before"), (10.5, asked.kind), (20.5, "saving"), (30, "saving")):
        append_jsonl(run.events, {"event": "phase", "phase": phase, "time": time, "attempt": 1})
    for n in range(1, 11):
        figures = {"loss": 1.0, "data_wait_s": wait_s, "step_s": 1.0}
        append_jsonl(run.metrics, {"stage": asked.kind, "step": n, "time": 10 + n, "attempt": 1} | figures)
    for process, more in ((0, 0), (1, 10)):
        rows = [
            f"{t},{device},{busy + more if t > 10 else 1},{used_mib if t > 10 else 500},81920,{300 + more if t > 10 else 90},60\n"
            for t in range(1, 30)
        ]
        run.devices(1, process).write_text(HEAD + "".join(rows) + "29.5,gpu0,1")
    return run


@pytest.mark.parametrize(
    ("recipe", "device", "caption"),
    [
        ("qwen3-tiny-arithmetic-grpo", "tpu0", "Mean of the TPU devices: memory used by the run"),
        ("almodel-tiny", "cpu", "Mean of the processes"),
        ("almodel-tiny", "gpu0", "Mean of the GPUs"),
    ],
)
def test_runs_in_jax_have_means_of_each_process_and_a_plot(
    tmp_path: Path, recipe: str, device: str, caption: str
) -> None:
    run = made(tmp_path, 80, 0.02, device=device, recipe=recipe)
    run.devices(1, 0).with_name("devices-0-copy.csv").write_text(HEAD)
    figures = result(run)
    assert [p["utilization_percent"] for p in figures["device_use"]["processes"]] == [80, 90]
    assert figures["units"]["device_use"].startswith("means over the samples during steps")
    page.write(run)
    assert "<code>attempts/1/devices-*.csv</code>" in (run.report / "report.html").read_text()
    text = (run.report / "report.md").read_text()
    assert "(devices.svg)" in text and caption in text and ", during the last attempt." in text


def test_the_means_are_of_the_steps(tmp_path: Path) -> None:
    run = made(tmp_path, 80, 0.02)
    found = result(run)
    total = found["device_use"]
    assert (total["utilization_percent"], total["memory_mib_max"], total["power_w"], total["temperature_c_max"]) == (
        85,
        20_000,
        305,
        60,
    )
    assert [p["utilization_percent"] for p in total["processes"]] == [80, 90] and total["num_samples"] == 20
    assert found["warnings"] == [] and len(read(run).devices) == 58, "a row that is cut short counts for nothing"
    page.write(run)
    drawn = (run.report / "devices.svg").read_text()
    assert "utilization, %" in drawn and "power, W" in drawn and "memory in use, GiB" in drawn
    assert "(devices.svg)" in (run.report / "report.md").read_text()


def test_the_plot_is_of_the_last_attempt_without_what_was_not_measured(tmp_path: Path, drawn: list[Figure]) -> None:
    run = made(tmp_path, 80, 0.02)
    run.attempt(2).mkdir()
    rows = ["never,gpu0,99,99,81920,99,60", *(f"{40 + 30 * n},gpu0,{n},,81920,{300 if n else ''},60" for n in range(5))]
    run.devices(2, 0).write_text(HEAD + "\n".join(rows) + "\n")
    plot = device_utilization.plot(read(run), result(run))
    assert plot and "attempts/2/" in plot.caption
    utilization, power = (ax.lines[0].get_xydata().tolist() for ax in drawn[0].axes)
    assert utilization == [[0, 0], [0.5, 1], [1, 2], [1.5, 3], [2, 4]]
    assert power == [[0.5, 300], [1, 300], [1.5, 300], [2, 300]]


@pytest.mark.parametrize(
    ("busy", "wait_s", "used_mib", "device", "recipe", "said"),
    [
        (30, 0.0, 20_000, "gpu0", "phase2-tiny", ["utilization during steps was 35 %, and 75.6 % of GPU memory was never used: type"]),
        (30, 0.0, 80_000, "gpu0", "phase2-tiny", ["type training.fsdp=true, and then a larger per_device_batch_size."]),
        (30, 0.0, 20_000, "cpu", "phase2-tiny", []),
        (80, 0.1, 20_000, "gpu0", "phase2-tiny", ["waited for data for 10.0 % of the step time: give each process more CPU cores"]),
        (80, 0.1, 20_000, "gpu0", "phase1-tiny", ["or type a larger per_device_batch_size."]),
    ],
)  # fmt: skip
def test_idle_devices_are_warned_of(
    tmp_path: Path, busy: float, wait_s: float, used_mib: int, device: str, recipe: str, said: list[str]
) -> None:
    run = made(tmp_path, busy, wait_s, used_mib, device, recipe)
    found = result(run)["warnings"]
    assert len(found) == len(said) and all(part in warning for part, warning in zip(said, found, strict=True)), found


def test_a_run_without_samples_has_no_figures_and_no_plot(tmp_path: Path) -> None:
    run = made(tmp_path, 80, 0.0)
    for process in (0, 1):
        run.devices(1, process).unlink()
    records = read(run)
    assert (
        device_utilization.figures(records) is None
        and device_utilization.plot(records, result(run)) is None
        and device_utilization.warnings(records) == []
    )


def test_an_attempt_that_came_to_no_phase_has_a_report_too(tmp_path: Path) -> None:
    run = made(tmp_path, 80, 0.02)
    append_jsonl(run.journal, {"event": "submitting", "attempt": 2, "time": 40})
    append_jsonl(run.journal, {"event": "ended", "attempt": 2, "ending": "CRASHED", "time": 41})
    run.attempt(2).mkdir()
    assert result(run)["device_use"]["num_samples"] == 20
    run.events.unlink()
    assert result(run)["device_use"] is None

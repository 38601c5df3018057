"""bench/gpu_check keeps to its time, keeps what it measured, and runs every line on a CPU."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.syspath_prepend(str(BENCH))

    def load(name: str) -> ModuleType:
        return importlib.import_module(f"gpu_check.{name}")

    return SimpleNamespace(**{name: load(name) for name in ("__main__", "record", "rows", "wheels")})


def rows_of(path: Path) -> dict[str, dict]:
    return {row["row"]: row for row in json.loads(path.read_text())["rows"]}


def check(modules: SimpleNamespace, folder: Path, limit_s: float, *names: str):
    result = modules.record.Result({"bench": "gpu_check"}, list(names), folder / "out.json")
    return modules.__main__.Check(False, limit_s, folder, result, None)


def test_a_row_for_which_no_time_is_left_is_in_the_result(modules: SimpleNamespace, tmp_path: Path) -> None:
    late = check(modules, tmp_path, 10, "first", "second")
    late.run_row(modules.rows.Row("second", "environment", (), 60, 30), {})
    rows = rows_of(tmp_path / "out.json")
    assert rows["second"] == {"row": "second", "status": "left out", "reason": "10 s were left"}
    assert rows["first"]["status"] == "left out", "a row that nobody reached"


def test_a_row_ends_at_its_limit_and_one_that_fails_says_how(modules: SimpleNamespace, tmp_path: Path) -> None:
    begin = check(modules, tmp_path, 60, "slow", "wrong")
    begin.run_row(modules.rows.Row("slow", "environment", (), 0.1, 0), {})
    begin.run_row(modules.rows.Row("wrong", "nothing", (), 60, 0), {})
    rows = rows_of(tmp_path / "out.json")
    assert rows["slow"]["status"] == "timed out" and rows["slow"]["seconds"] < 30
    assert rows["wrong"]["status"] == "failed" and "KeyError: 'nothing'" in rows["wrong"]["reason"]


def test_a_figure_is_kept_when_it_is_measured_and_compared_with_its_peer(
    modules: SimpleNamespace, tmp_path: Path
) -> None:
    rows = ["grpo", "grpo trl", "phase2", "phase2 trainer"]
    result = modules.record.Result({}, rows, tmp_path / "out.json")
    result.change("grpo", status="running")
    result.measured("grpo", {"step_s": 0.5})
    assert rows_of(tmp_path / "out.json")["grpo"] == {"row": "grpo", "status": "running", "figures": [{"step_s": 0.5}]}
    result.measured("grpo trl", {"step_s": 4.0})
    assert json.loads((tmp_path / "out.json").read_text())["times_faster_than_peers"] == {"grpo trl": 8.0}
    for name, seconds in (("phase2", (0.1, 0.1)), ("phase2 trainer", (0.2, 0.3))):
        for batch, step_s in zip(("16", "32"), seconds, strict=True):
            result.measured(name, {"variant": batch, "step_s": step_s})
    assert result.ratios() == {"grpo trl": 8.0, "phase2 trainer 16": 2.0, "phase2 trainer 32": 3.0}
    assert "step_s 0.5" in result.table() and [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_the_rows_of_the_longest_check_fit_its_limit_but_for_the_last(modules: SimpleNamespace) -> None:
    """The rows that run at once take as long as the longest of them; a row with less than its least time is left out."""
    limit, rows = 480, modules.rows
    assert len({row.name for row in rows.ALL}) == len(rows.ALL)
    at_once = max(row.limit_s for row in rows.AT_ONCE)
    assert at_once + sum(row.least_s for row in rows.TIMED) <= limit
    assert all(row.least_s <= row.limit_s for row in rows.ALL)


def test_results_of_a_card_do_not_replace_each_other(
    modules: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = modules.__main__
    monkeypatch.setattr(main, "BENCH", tmp_path)
    (tmp_path / "results").mkdir()
    card = {"name": "NVIDIA H100 80GB HBM3"}
    first = main.result_path(None, card)
    assert first.name == f"gpu_check-h100-80gb-hbm3-{time.strftime('%Y-%m-%d')}.json"
    first.touch()
    assert main.result_path(None, card).stem == f"{first.stem}-b"
    assert main.result_path(None, {}) is None, "nothing is measured on a CPU"


def test_only_what_a_machine_lacks_is_carried_there(modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def resolve(argv: list[str], **options: str) -> subprocess.CompletedProcess[str]:
        asked.append((options["input"], Path(argv[argv.index("-c") + 1]).read_text().split()))
        text = "jax==0.11.2\nPydantic_Core==2.50\ntokamax==0.0.17\ntorch==2.13.0\nnvidia-cublas==13.1\n"
        return subprocess.CompletedProcess(argv, 0, text)

    monkeypatch.setattr(modules.wheels.subprocess, "run", resolve)
    have = ["jax==0.11.2", "pydantic-core==2.50", "torch==2.11.0+cu130"]
    assert modules.wheels.missing("3.12", "x86_64", have, "13") == ["tokamax==0.0.17"]
    assert asked[0][1] == ["jax==0.11.2", "pydantic-core==2.50"]
    assert {"jax", "av", "pydantic", "tokamax", "trl"} <= set(asked[0][0].split()), "of pyproject.toml, and peers"
    assert "nvidia-cublas==13.1" in modules.wheels.missing("3.12", "x86_64", [], "13")
    assert "jax[cuda13]" in asked[1][0].split()


def test_an_end_from_outside_keeps_the_result_and_leaves_no_process(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    argv = [sys.executable, "-m", "gpu_check", "--gpu", "none", "--only", "kernels 1", "--out", str(out)]
    process = subprocess.Popen(argv, cwd=ROOT, env=os.environ | {"PYTHONPATH": f"{BENCH}:{ROOT}"})
    deadline = time.monotonic() + 120
    while not out.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    started = psutil.Process(process.pid).children(recursive=True)
    assert any("gpu_check.part kernels 0 9" in " ".join(child.cmdline()) for child in started)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 1
    assert rows_of(out)["kernels 1/9"]["status"] == "interrupted"
    assert not psutil.wait_procs(started, timeout=5)[1]


@pytest.mark.long
def test_every_line_runs_on_a_cpu(tmp_path: Path) -> None:
    out, results = tmp_path / "out.json", set((BENCH / "results").iterdir())
    argv = ["make", "--no-print-directory", "gpu-check", "GPU=none", f"PYTHON={sys.executable}", f"OUT={out}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = rows_of(out)
    assert done.returncode == 0, done.stdout + done.stderr
    odd = {name: row for name, row in rows.items() if row["status"] != "ok"}
    assert all(row["status"] == "skipped" and "is not installed" in row["reason"] for row in odd.values()), odd
    assert set(odd) <= {"grpo trl"}
    for name, row in rows.items():
        figures = {key: value for line in row.get("figures", []) for key, value in line.items()}
        if name.startswith("kernels"):
            assert 0 < figures["worst_error"] <= figures["tolerance"]
        if name.endswith("resumed"):
            assert figures["resumed_from"] and figures["repeated_steps"] and figures["repeated_difference"] < 1e-3, name
        if name.endswith("second start"):
            assert figures["programs"] == "cached", name
    assert json.loads(out.read_text())["dry"] is True
    assert set((BENCH / "results").iterdir()) == results, "nothing was measured"

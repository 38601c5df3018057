"""Phase 1, really run: by the command line to its report, and its aligner.pt taken by Phase 2; the whole recipe in a long test."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from podwright.counted_steps import read_steps
from podwright.report.result import result
from podwright.rundir import RunDir
from tests.e2e import fork_server
from tests.e2e.trainer import ROOT, finish, prepare, start

RECIPE = "phase1-tiny"
SMALL = (
    "data.num_train=60",
    "data.num_test=10",
    "per_device_batch_size=16",
    "training.max_steps=5",
    "evaluation.every_n_steps=2",
)


def podwright(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return fork_server.podwright(argv, folder, env)


def test_a_typed_run_leaves_a_report_and_an_aligner_for_phase_2(tmp_path: Path) -> None:
    done = podwright(tmp_path, "run", RECIPE, *SMALL, "--on", "local", "--name", "one", "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert (row["ending"], row["step"], row["max_steps"]) == ("FINISHED", 5, 5)
    assert "recall@1 after: " in done.stderr and "chance " in done.stderr
    run = RunDir(tmp_path / "runs" / "one")
    steps = read_steps(run, "contrastive")
    promised = "loss grad_norm learning_rate epoch samples samples_per_s data_wait_s step_s peak_memory_gib"
    assert [s["step"] for s in steps] == [1, 2, 3, 4, 5] and set(promised.split()) <= set(steps[0])
    found = result(run)
    assert found["kind"] == "contrastive" and found["recall_at_1_after"] > found["recall_at_1_before"]
    assert [t["step"] for t in found["evaluations"]] == [0, 2, 4, 5] and len(found["directions"]) == 6
    assert found["data"]["lines_with"]["text"] + found["data"]["lines_with"]["image"] > 80 and found["notices"] == []
    page = (run.report / "report.md").read_text()
    assert "| text | image | 10 |" in page and "recall@1 on 10 held-out lines is" in page
    drawn = {"retrieval.svg", "directions.svg", "loss.svg", "learning-rate.svg", "samples-per-s.svg", "devices.svg"}
    assert {p.name for p in run.report.glob("*.svg")} == drawn and "<th>from</th>" in (
        run.report / "report.html"
    ).read_text()
    planned = podwright(tmp_path, "plan", "phase2-tiny", f"aligner.source={run.aligner}", "--json")
    assert planned.returncode == 0 and json.loads(planned.stdout)["ok"] is not False


@pytest.mark.long
def test_the_recipe_keeps_its_promise(tmp_path: Path) -> None:
    run = prepare(tmp_path / "run", recipe=RECIPE)
    end = finish(run, start(run), timeout=1200)
    assert end["ending"] == "FINISHED", end["log"]
    found = result(run)
    assert found["expected"]["verdict"] == "within tolerance"
    assert all(d["recall_at_5_after"] > 3 * d["chance_at_5"] for d in found["directions"])

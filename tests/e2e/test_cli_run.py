"""`podwright run` as a user types it, on the real trainer: smoke runs of the demo and of the real GSM8K files."""

import json
import subprocess
import sys

import pytest

from tests.e2e.trainer import ROOT, environment
from tests.unit.data import test_layouts

GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"


def podwright(*argv, timeout=500):
    command = [sys.executable, "-m", "podwright", *argv]
    env = environment()  # one device, as on a user's machine
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def run_and_report(tmp_path, *argv):
    runs = ["--runs", str(tmp_path)]
    done = podwright("run", *argv, "--name", "smoke", *runs, "--json")
    standing = json.loads(done.stdout)
    assert done.returncode == 0 and standing["ending"] == "FINISHED", (
        done.stderr + (tmp_path / "smoke/attempts/1/log.txt").read_text()
    )
    result = json.loads(podwright("report", "smoke", *runs, "--json").stdout)
    assert [r["name"] for r in json.loads(podwright("list", *runs, "--json").stdout)] == ["smoke"]
    return standing, result


def test_the_demo_in_three_steps(tmp_path):
    standing, result = run_and_report(tmp_path, "qwen3-tiny-arithmetic-grpo", "--smoke", "3", "model.name=qwen3-micro")
    assert standing["step"] == 3
    assert 0 <= result["accuracy_before"] <= 1 and 0 <= result["accuracy_after"] <= 1
    assert (tmp_path / "smoke" / "report" / "report.html").exists()


@pytest.mark.long
@pytest.mark.skipif(not GSM8K.is_dir(), reason="the GSM8K files are not beside this checkout")
def test_the_real_gsm8k_files_go_the_same_way(tmp_path):
    overrides = [
        f"data.source={GSM8K}",
        "batch_size=4",
        "grpo.num_generations=4",
        "model.name=qwen3-micro",
        "rollout.total_generation_steps=64",
    ]
    standing, result = run_and_report(tmp_path, "qwen3-tiny-gsm8k-grpo", "--smoke", "3", *overrides)
    assert standing["step"] == 3
    assert result["steady_state"]["step_s"] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *("columns.csv.gz", "chat.jsonl", "DAPO.parquet", "Alpaca.json.bz2"),
        *("ShareGPT.json", "problem.tsv", "completion.jsonl.xz", "turns.parquet"),
    ],
)
def test_rows_of_other_layouts_are_trained_on(tmp_path, name):
    layout, _, container = name.partition(".")
    rows = [test_layouts.LAYOUTS[layout](n) for n in range(64)]
    overrides = [f"data.source={tmp_path / name}", "model.name=qwen3-micro", "batch_size=4"]
    if layout == "columns":
        rows = [{"q": row["q"], "a": row["extra_info"]["a"]} for row in rows]
        overrides.append("data.columns={question: q, answer: a}")
    (tmp_path / name).write_bytes(test_layouts.CONTAINERS[container](rows))
    standing, result = run_and_report(tmp_path / "runs", "qwen3-tiny-arithmetic-grpo", "--smoke", "3", *overrides)
    assert standing["step"] == 3
    assert 0 <= result["accuracy_before"] <= 1 and 0 <= result["accuracy_after"] <= 1

"""Multimodal training, really run: by the command line to its report, stopped and resumed, in two processes, with bad files."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from podwright.counted_steps import read_steps
from podwright.recipe import ethogram
from podwright.report.result import result
from podwright.rundir import RunDir, read_jsonl
from tests.e2e import fork_server
from tests.e2e.trainer import ROOT, finish, logs, prepare, put_foreign_names, start

RECIPE = "phase2-tiny"
SMALL = (
    "data.num_train=40",
    "data.num_test=4",
    "per_device_batch_size=8",
    "training.max_steps=6",
    "optimizer.learning_rate=1e-3",
    "optimizer.warmup_steps=2",
    "evaluation.every_n_steps=0",
    "evaluation.max_new_tokens=4",
    "checkpoint.every_n_steps=2",
)
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # cores are shared


def podwright(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)} | ONE_THREAD
    return fork_server.podwright(argv, folder, env)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[RunDir, Path]:
    folder = tmp_path_factory.mktemp("typed")
    done = podwright(folder, "run", RECIPE, *SMALL, "--on", "local", "--name", "whole", "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert (row["ending"], row["step"], row["max_steps"]) == ("FINISHED", 6, 6)
    assert "Traceback" not in done.stderr and "100.0 % valid JSON" in done.stderr
    return RunDir(folder / "runs" / "whole"), folder


def test_a_typed_run_leaves_every_record_and_a_report(whole):
    run, _ = whole
    steps = read_steps(run, "multimodal")
    assert [r["step"] for r in steps] == [1, 2, 3, 4, 5, 6] and steps[-1]["loss"] < steps[0]["loss"]
    promised = "loss grad_norm learning_rate epoch samples samples_per_s tokens_per_s_per_device padding_share data_wait_s step_s"
    assert set(f"{promised} tflops_per_device mfu peak_memory_gib".split()) <= set(steps[0])
    assert steps[-1]["samples"] == 48 and 0 <= steps[0]["padding_share"] < 0.2
    found = result(run)
    assert found["kind"] == "multimodal" and found["json_valid"] == 1.0 and found["num_tested"] == 4
    assert {r["field"] for r in found["fields"]} == {f.rpartition(".")[2] for f in ethogram.SCHEMA.fields}
    assert None not in (
        found["accuracy_after"],
        found["accuracy_without_image"],
        found["accuracy_without_audio"],
        found["majority"],
    )
    assert found["device_use"]["utilization_percent"] > 10 and found["device_use"]["memory_mib"] > 100
    assert found["data"]["lines"] == 40 and found["environment"]["num_trained_params"] > 900_000
    page = (run.report / "report.md").read_text()
    assert "| ears |" in page and "field accuracy on 4 held-out answers is" in page
    assert {p.name for p in run.report.glob("*.svg")} == {
        "accuracy.svg",
        "fields.svg",
        "loss.svg",
        "learning-rate.svg",
        "samples-per-s.svg",
        "devices.svg",
    }
    assert "<figure>" in (run.report / "report.html").read_text()
    samples = list(read_jsonl(run.samples))
    assert len(samples) == 8 and {s["when"] for s in samples} == {"before", "after"}


def test_a_prediction_parses_and_is_written_down(whole):
    run, folder = whole
    made = run.path / "data" / "val"
    files = ["--image", str(made / "00000.png"), "--audio", str(made / "00000.wav")]
    done = podwright(folder, "predict", "whole", *files, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    written = json.loads((folder / found.pop("written_to")).read_text())
    assert written == found and set(found) == {
        "timestamp",
        "input_type",
        "model_checkpoint",
        "metadata",
        "input_file",
        "analysis",
    }
    assert found["metadata"] == {"model_version": "whole", "phase": "phase2", "schema_version": "V3"}
    analysis = found["analysis"]
    assert json.loads(analysis.pop("raw_model_output")) == {k: v for k, v in analysis.items() if k != "parsing_note"}
    assert analysis.pop("parsing_note") == "" and list(ethogram.SCHEMA.answer_faults(analysis)) == []
    done = podwright(folder, "predict", "whole", "--image", str(made / "00000.wav"), "--json")
    assert done.returncode == 2 and "cannot be read" in json.loads(done.stdout)["error"]
    done = podwright(folder, "predict", "whole", "--json")
    assert done.returncode == 2 and json.loads(done.stdout)["fix"] == "give --image, --audio, --video or --text"


def test_a_stopped_run_goes_on_to_the_same_weights(whole, tmp_path):
    run = prepare(tmp_path / "run", *SMALL, recipe=RECIPE)
    put_foreign_names(run)
    process = start(run, **ONE_THREAD)
    until = time.monotonic() + 900
    while not run.metrics.exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    end = finish(run, process)
    if end["ending"] == "STOPPED":
        assert process.returncode == 3 and 1 <= end["step"] < 6 and f"stopped after step {end['step']}" in end["detail"]
        end = finish(run, start(run, attempt=2, **ONE_THREAD), attempt=2)
    assert end["ending"] == "FINISHED", end["log"]
    one, other = (torch.load(r.path / "model.pt", weights_only=True)["model_state_dict"] for r in (whole[0], run))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.long
def test_two_processes_are_one(whole, tmp_path):
    """As torchrun starts them, where there is no jax, each with a part of the model: the same lines a step, the same loss, and weights that
    differ by rounding."""
    halved = [o for o in SMALL if not o.startswith("per_device")]
    spread = ("per_device_batch_size=4", "optimizer.scale_with_devices=false", "training.fsdp=true")
    run = prepare(tmp_path / "run", *halved, *spread, recipe=RECIPE)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    run.attempt(1).mkdir(parents=True)
    (tmp_path / "jax.py").write_text("raise ImportError('PyTorch trains here')\n")
    started = []
    for rank in (0, 1):
        env = {
            "PYTHONPATH": f"{tmp_path}:{ROOT}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": "2",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
        }
        with (tmp_path / f"{rank}.txt").open("w") as log:
            argv = [sys.executable, "-m", "podwright.train", str(run.path)]
            started.append(
                subprocess.Popen(
                    argv, cwd=ROOT, env=os.environ | ONE_THREAD | env, stdout=log, stderr=subprocess.STDOUT
                )
            )
    codes = [process.wait(900) for process in started]
    assert codes == [0, 0], logs(run)
    (seen,) = [e for e in read_jsonl(run.events) if e["event"] == "environment"]
    assert (seen["processes"], seen["max_steps"]) == (2, 6)
    pairs = [
        [r[k] for r in read_steps(x, "multimodal")] for k in ("loss", "grad_norm", "samples") for x in (whole[0], run)
    ]
    assert (
        pairs[0] == pytest.approx(pairs[1], rel=1e-4)
        and pairs[2] == pytest.approx(pairs[3], rel=1e-3)
        and pairs[4] == pairs[5]
    )
    one, other = (torch.load(r.path / "model.pt", weights_only=True)["model_state_dict"] for r in (whole[0], run))
    assert all(torch.allclose(one[name], other[name], atol=2e-3) for name in one)


@pytest.mark.long
def test_the_recipe_keeps_its_promise(tmp_path):
    """Every answer parses, most fields are right, and neither picture nor sound can be done without."""
    run = prepare(tmp_path / "run", recipe=RECIPE)
    end = finish(run, start(run), timeout=1200)
    assert end["ending"] == "FINISHED", end["log"]
    found = result(run)
    assert found["json_valid"] == 1.0 and found["expected"]["verdict"] != "outside tolerance"
    assert found["accuracy_after"] > found["majority"] + 0.3
    assert max(found["accuracy_without_image"], found["accuracy_without_audio"]) < found["accuracy_after"] - 0.2


def begun(folder: Path, name: str) -> tuple[subprocess.Popen[bytes], RunDir]:
    """Two processes on CPUs of this machine, at their second step."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | ONE_THREAD
    argv = [
        sys.executable,
        "-m",
        "podwright",
        "run",
        RECIPE,
        *SMALL,
        "training.max_steps=40",
        "--on",
        "cpu-2",
        "--name",
        name,
    ]
    process = subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run, until = RunDir(folder / "runs" / name), time.monotonic() + 900
    while sum(1 for _ in read_jsonl(run.metrics)) < 2:
        assert process.poll() is None and time.monotonic() < until, logs(run)
        time.sleep(0.05)
    return process, run


@pytest.mark.long
def test_a_target_of_two_devices_gets_two_processes_that_stop_together(tmp_path):
    process, run = begun(tmp_path, "r")
    assert podwright(tmp_path, "stop", "r").returncode == 0
    process.wait(900)
    end = json.loads(run.exit(1).read_text())
    assert (
        end["ending"] == "STOPPED"
        and 2 <= end["step"] < 40
        and (run.checkpoints / f"step-{end['step']:08d}.pt").exists()
    )
    (seen,) = [e for e in read_jsonl(run.events) if e["event"] == "environment"]
    assert seen["processes"] == 2


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_takes_the_others_along_and_is_named(tmp_path, rank):
    process, run = begun(tmp_path, "r")
    launcher = psutil.Process(json.loads(run.pid(1).read_text())["pid"])
    ranks = {
        int(p.environ()["RANK"]): p
        for p in launcher.children(recursive=True)
        if "podwright.train" in p.cmdline() and "RANK" in p.environ()
    }
    assert sorted(ranks) == [0, 1]
    ranks[rank].kill()
    _, alive = psutil.wait_procs([launcher, *ranks.values()], timeout=60)
    assert not alive
    process.wait(900)
    (ended,) = [e for e in read_jsonl(run.journal) if e["event"] == "ended"]
    assert ended["ending"] == "UNKNOWN", ended
    assert ended["detail"].startswith(f"process {rank} on {socket.gethostname()}: killed by SIGKILL"), ended

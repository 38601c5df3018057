"""Each kind's tiny recipe as `podwright run ... --on local`: killed behind its first checkpoint, resumed, and held to its records."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_check.part import TINY, Skipped, put

BFLOAT16 = () if TINY else ("model.compute_dtype=bfloat16",)
GENERATED = ("data.source=arithmetic", "data.tokenizer=bytes", "data.num_documents=1500")
# A GPU does a hundred such steps a second, and the run must not be over before it is killed.
STEPS, SAVED = (8, 2) if TINY else (80, 10)
SETTINGS = {
    "grpo": (
        "qwen3-tiny-arithmetic-grpo",
        *("data.num_train=200", "data.num_test=12", "batch_size=8", "grpo.num_generations=4", *BFLOAT16),
        *("rollout.total_generation_steps=16", "warm_start.max_steps=3", "warm_start.batch_size=8"),
        *("evaluation.batch_size=8", "evaluation.every_n_steps=0", *(["model.name=qwen3-micro"] if TINY else [])),
    ),
    "pretrain": (
        "qwen3-0.6b-pretrain",
        *("model.name=qwen3-tiny", *GENERATED, "batch_size=4", "sequence_length=128"),
        *("mesh.fsdp=1", "evaluation.every_n_steps=0", "evaluation.num_batches=1"),
        *(("model.compute_dtype=float32", "model.name=qwen3-micro") if TINY else ()),
    ),
    "pretrain-hybrid": (
        "almodel-tiny",
        *("data.num_documents=1500", "batch_size=4", "sequence_length=128", *BFLOAT16),
        *("evaluation.every_n_steps=0", "evaluation.num_batches=1"),
    ),
    "phase1": (
        "phase1-tiny",
        *("data.num_train=60", "data.num_test=10", "per_device_batch_size=16", "evaluation.every_n_steps=0"),
    ),
    "phase2": (
        "phase2-tiny",
        *("data.num_train=40", "data.num_test=4", "per_device_batch_size=8", "optimizer.warmup_steps=2"),
        *("evaluation.every_n_steps=0", "evaluation.max_new_tokens=4"),
        *(() if TINY else ("model.mixed_precision=bf16",)),
    ),
}
PATIENCE_S = 600


def run(kind: str) -> None:
    if kind.startswith("phase") and not importlib.util.find_spec("torch"):
        raise Skipped("the package torch is not installed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by the time limit"))
    from podwright.rundir import RunDir

    folder = RunDir(Path(os.environ["PODWRIGHT_RUNS"]) / kind)
    recipe, *overrides = SETTINGS[kind]
    overrides += [f"training.max_steps={STEPS}", f"checkpoint.every_n_steps={SAVED}"]
    try:
        launcher = _podwright("run", recipe, *overrides, "--on", "local", "--name", kind)
        killed_at = _kill_behind_a_checkpoint(folder, launcher)
        assert launcher.wait(PATIENCE_S) != 0, "a run whose trainer was killed ends with an error"
        code = _podwright("resume", kind).wait(PATIENCE_S)
    finally:
        for number in (1, 2):
            _signal(folder, number, signal.SIGKILL)
    figures = _records(folder, killed_at)
    put(**figures)
    assert (code, figures["ending"], figures["step"]) == (0, "FINISHED", STEPS), figures
    assert figures["resumed_from"] and figures["repeated_steps"] and figures["report"], figures


def _podwright(*words: str) -> subprocess.Popen[bytes]:
    """What it prints goes to the log of this row."""
    return subprocess.Popen([sys.executable, "-m", "podwright", *words], stdin=subprocess.DEVNULL, stdout=sys.stderr)


def _kill_behind_a_checkpoint(run: Any, launcher: subprocess.Popen[bytes]) -> int:
    """The step of the last record, when a step was done that no whole checkpoint holds: the resume must repeat it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert launcher.poll() is None, f"the run ended by itself: {run.path}"
        time.sleep(0.01)
        if not _step_to_repeat(run):
            continue
        # Small models save within milliseconds: the trainer stands still while the files are read again.
        _signal(run, 1, signal.SIGSTOP)
        step = _step_to_repeat(run)
        _signal(run, 1, signal.SIGKILL if step else signal.SIGCONT)
        if step:
            return step
    raise AssertionError("no checkpoint was written")


def _step_to_repeat(run: Any) -> int:
    """The last recorded step where a whole checkpoint exists and is older; otherwise 0."""
    from podwright.rundir import is_metric, main_stage, read_jsonl, recipe_of

    # A checkpoint gets its name when it is whole: orbax's folder N, or PyTorch's file step-N.pt.
    written = run.checkpoints.iterdir() if run.checkpoints.is_dir() else ()
    saved = [int(found[1]) for path in written if (found := re.fullmatch(r"(?:step-)?(\d+)(?:\.pt)?", path.name))]
    if not saved or not run.metrics.exists():
        return 0
    stage = main_stage(recipe_of(run))
    steps = [record["step"] for record in filter(is_metric, read_jsonl(run.metrics)) if record["stage"] == stage]
    return int(steps[-1]) if steps and steps[-1] > max(saved) else 0


def _signal(run: Any, attempt: int, number: signal.Signals) -> None:
    """To the trainer of an attempt and its workers, which are a session of their own."""
    import psutil

    with contextlib.suppress(OSError, ValueError, KeyError, psutil.Error):
        record = json.loads(run.pid(attempt).read_text())
        if abs(psutil.Process(record["pid"]).create_time() - record["created"]) < 1:
            os.killpg(record["pid"], number)


def _records(run: Any, killed_at: int) -> dict[str, Any]:
    """`repeated_difference`: the largest relative difference of the loss of a step that was done twice."""
    from podwright.rundir import is_metric, main_stage, read_jsonl, recipe_of

    ended = json.loads(run.exit(2).read_text()) if run.exit(2).exists() else {}
    events, stage = list(read_jsonl(run.events)), main_stage(recipe_of(run))
    firsts = [e for e in events if e["event"] == "first_step" and e["stage"] == stage]
    losses: dict[int, list[float]] = {}
    peaks = [0.0]
    for record in filter(is_metric, read_jsonl(run.metrics)):
        if record["stage"] == stage:
            losses.setdefault(record["step"], []).append(record["loss"])
            peaks.append(record.get("peak_memory_gib") or 0.0)
    repeated = [values for values in losses.values() if len(values) > 1]
    return {
        "ending": ended.get("ending"),
        "step": ended.get("step"),
        "killed_at": killed_at,
        "resumed_from": next((e["step"] for e in events if e["event"] == "resumed"), None),
        "loss": losses[max(losses)][-1] if losses else None,
        "repeated_steps": len(repeated),
        "repeated_difference": max((abs(a - b) / max(abs(a), 1e-9) for a, b, *_ in repeated), default=None),
        "first_step_s": [round(e["seconds"], 2) for e in firsts],
        "programs": [e.get("programs") for e in firsts],
        "peak_gib": round(max(peaks), 2),
        "notices": [e["message"] for e in events if e["event"] == "notice"],
        "report": (run.report / "report.html").exists(),
    }

"""A trainer that speaks the contract and learns nothing: STANDIN_STEP_S seconds a step, a checkpoint after each.

STANDIN_DO says what goes wrong: `crash` (a traceback at step 2), `killed` (SIGKILL at step 2), `deaf` (ignores SIGTERM),
`preempted` (the first attempt ends PREEMPTED at step 2), `orphan` (leaves a child behind).
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

run, attempt = Path(sys.argv[1]), int(sys.argv[3])
do = os.environ.get("STANDIN_DO", "")
stopping = False


def stop(number: int, frame: object) -> None:
    global stopping
    stopping = True


def append(name: str, **record: object) -> None:
    with (run / name).open("a") as f:
        f.write(json.dumps({"time": time.time(), "attempt": attempt, **record}) + "\n")


def leave(ending: str, step: int, detail: str = "", fix: str = "") -> None:
    (run / "attempts" / str(attempt) / "exit.json").write_text(
        json.dumps({"ending": ending, "detail": detail, "fix": fix, "step": step})
    )
    sys.exit(0)


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN if do == "deaf" else stop)
    lock = (run / "trainer.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (run / "second-trainer").touch()
        leave("BAD_INPUT", 0, "two trainers")
    if do == "orphan":
        orphan = subprocess.Popen(["sleep", "600"])
        (run / "orphan").write_text(str(orphan.pid))
    last = run / "checkpoint"
    step = int(last.read_text()) if last.exists() else 0
    if step:
        append("events.jsonl", event="resumed", step=step)
    append("events.jsonl", event="phase", phase="grpo")
    while step < json.loads((run / "recipe.json").read_text())["training"]["max_steps"]:
        if stopping:
            leave("STOPPED", step)
        time.sleep(float(os.environ.get("STANDIN_STEP_S", "0.02")))
        step += 1
        if step == 2 and do == "crash":
            raise RuntimeError("the stand-in was told to crash")
        if step == 2 and do == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 2 and do == "preempted" and attempt == 1:
            leave("PREEMPTED", step)
        append("metrics.jsonl", stage="grpo", step=step, reward=0.1 * step, kl=0.01, tokens_per_s=1000.0, step_s=0.02)
        part = run / "checkpoint.part"
        part.write_text(str(step))
        part.replace(last)
        print(f"step {step} done", flush=True)
    leave("FINISHED", step)


main()

"""The logs of 256 pods, 100 lines a second each for a minute, brought to a run directory: lost and doubled lines, connections, memory.

python bench/gke_follow.py [--pods 256] [--lines-per-s 100] [--seconds 60] [--out bench/results/gke_follow.json]

The pods are those of the simulated cluster of the tests, whose API server the real kubectl reads; their logs are written by this process
as a kubelet writes them. Streams are cut in the middle and repeat earlier lines. Connections and resident memory are summed up over the
following process and all its children, four times a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from stamp import keep, stamp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lab.kube import streams  # noqa: E402
from lab.kube.control import Kube  # noqa: E402

CONTAINER = "jax-tpu"
TEXT = "I1123 07:00:00.000000 140579179993984 metric_logger.py:265] a line of a usual length, with a number that tells it from others: {}"


def follow(folder: Path, context: str, num_pods: int) -> None:
    """The process that is measured: until FOLDER/ended exists."""
    from podwright.rundir import RunDir
    from podwright.shell import Shell
    from podwright.targets.gke.pod_logs import LogFollower, PodLog

    logs = [PodLog(f"job-{n}", CONTAINER, n) for n in range(num_pods)]
    follower = LogFollower(Shell(), lambda words: ("kubectl", f"--context={context}", *words), "podwright-run=t", RunDir(folder), 1)  # fmt: skip
    before, failures = "", 0
    while not (folder / "ended").exists():
        failure = follower.bring(logs)
        failures += bool(failure and failure != before)
        before = failure
        time.sleep(0.5)
    while follower.bring(logs, ended=True):
        failures += 1
    (folder / "failures").write_text(str(failures))


class Logs:
    """The logs of all pods as a kubelet writes them."""

    def __init__(self, kube: Kube, num_pods: int) -> None:
        self.files = []
        for n in range(num_pods):
            states = [{"name": CONTAINER, "restartCount": 0, "state": {"running": {}}}]
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"job-{n}", "labels": {"podwright-run": "t"}},
                "spec": {"nodeName": "n", "containers": [{"name": CONTAINER, "image": "i"}]},
                "status": {"phase": "Running", "containerStatuses": states},
            }
            path = streams.log_file(kube.folder, kube.create(body), CONTAINER)
            path.parent.mkdir(parents=True)
            self.files.append(path.open("a"))
        self.count = 0

    def write(self, lines: int) -> None:
        """So many to each."""
        for f in self.files:
            for _ in range(lines):
                seconds, rest = divmod(time.time_ns(), 10**9)
                stamp_text = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09}Z"
                f.write(f"{stamp_text} stdout F {TEXT.format(self.count)}\n")
                self.count += 1
            f.flush()

    def compare(self, run: Path) -> dict[str, int]:
        lost = doubled = misplaced = 0
        for n, f in enumerate(self.files):
            written = [line.replace(" stdout F ", " ", 1) for line in Path(f.name).read_text().splitlines()]
            path = run / "attempts" / "1" / (f"log-{n}.txt" if n else "log.txt")
            kept = path.read_text().splitlines() if path.exists() else []
            lost += len(set(written) - set(kept))
            doubled += len(kept) - len(set(kept))
            misplaced += len(set(kept)) == len(set(written)) and kept != written
        return {"lines": self.count, "lost": lost, "doubled": doubled, "logs_out_of_order": misplaced}


def usage(process: psutil.Process) -> tuple[int, float]:
    """Connections, and MB of resident memory, with all children."""
    connections, memory = 0, 0.0
    for each in [process, *process.children(recursive=True)]:
        try:
            connections += sum(c.status == "ESTABLISHED" for c in each.net_connections("tcp"))
            memory += each.memory_info().rss / 1e6
        except psutil.Error:  # it has just ended
            continue
    return connections, memory


def measure(folder: Path, num_pods: int, lines_per_s: int, seconds: float) -> dict[str, Any]:
    run = folder / "run"
    run.mkdir()
    with Kube(folder) as kube:
        logs = Logs(kube, num_pods)
        kube.fault("repeat", resource="pods/log", back_s=3)
        argv = [sys.executable, __file__, "--follow", str(run), "--context", kube.context, "--pods", str(num_pods)]
        environment = os.environ | kube.environment | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(argv, env=environment) as child:
            process = psutil.Process(child.pid)
            most = (0, 0.0)
            start = time.monotonic()
            ticks = 0
            while time.monotonic() < start + seconds:
                logs.write(lines_per_s // 4)
                ticks += 1
                if ticks % 20 == 0:
                    kube.fault("cut", resource="pods/log", lines=7 + ticks % 50, calls=60)
                most = tuple(map(max, most, usage(process)))  # type: ignore[assignment]
                time.sleep(max(0.0, start + ticks / 4 - time.monotonic()))
            written_s = time.monotonic() - start
            kube.clear_faults()
            for n in range(num_pods):
                state = {"name": CONTAINER, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
                kube.patch_status("pods", f"job-{n}", {"phase": "Succeeded", "containerStatuses": [state]})
            (run / "ended").touch()
            while child.poll() is None:
                most = tuple(map(max, most, usage(process)))  # type: ignore[assignment]
                time.sleep(0.25)
        reads = [r for r in kube.requests() if r["resource"] == "pods/log"]
        return {
            "pods": num_pods,
            "lines_per_s": logs.count / written_s,
            "seconds": written_s,
            **logs.compare(run),
            "most_connections": most[0],
            "peak_memory_mb": round(most[1]),
            "requests": len(reads),
            "looks_that_failed": int((run / "failures").read_text()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=256)
    parser.add_argument("--lines-per-s", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--follow", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--context", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.follow:
        follow(given.follow, given.context, given.pods)
        return
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), given.pods, given.lines_per_s, given.seconds)
    keep(stamp(__file__) | result, given.out)


if __name__ == "__main__":
    main()

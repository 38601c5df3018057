"""`python -m gpu_check`, what `make gpu-check` calls: runs the rows within a time limit, and keeps each figure when it is measured.

This process imports no framework and nothing of the product: it must be there when one of them fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stamp import stamp

from gpu_check.environment import card
from gpu_check.record import Result
from gpu_check.rows import ALL, AT_ONCE, TIMED, Row
from gpu_check.wheels import unpacked

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parent
TINY_LIMIT_S = 1800  # of all rows on a CPU, each as long as it takes
GRACE_S = 5.0  # from the request to end to the kill


class Check:
    """The rows of one call. `folder`: where runs, the cache and the logs of this check are."""

    def __init__(self, tiny: bool, limit_s: float, folder: Path, result: Result, site: Path | None):
        self.tiny, self.limit_s, self.folder, self.result = tiny, limit_s, folder, result
        self.begin, self.children = time.monotonic(), list[subprocess.Popen[str]]()
        paths = [str(path) for path in (site, ROOT, BENCH) if path] + [p for p in [os.environ.get("PYTHONPATH")] if p]
        self.environment = os.environ | {
            "PYTHONPATH": ":".join(paths),
            "PYTHONUNBUFFERED": "1",
            "PODWRIGHT_CACHE": str(folder / "cache"),
            "PODWRIGHT_RUNS": str(folder / "runs"),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        if tiny:
            # A compiler that does not optimize: most of the time on a CPU goes into compiling.
            quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
            self.environment |= {
                "GPU_CHECK_TINY": "1",
                "JAX_PLATFORMS": "cpu",
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                "XLA_FLAGS": quick,
            }

    def left_s(self) -> float:
        return self.limit_s - (time.monotonic() - self.begin)

    def run(self, only: str = "") -> None:
        """Correctness with several processes on the card, then what is timed, one after the other."""
        at_once, timed = ([row for row in rows if only in row.name] for rows in (AT_ONCE, TIMED))
        # Each takes what it needs of the memory; the share of a trainer would be nearly all of it.
        shared = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        workers = 1 if self.tiny else max(2, min(len(at_once), os.cpu_count() or 2))
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda row: self.run_row(row, shared), at_once))
        for row in timed:
            self.run_row(row, {})

    def run_row(self, row: Row, more: dict[str, str]) -> None:
        left = self.left_s()
        if left < (1 if self.tiny else row.least_s):
            self.result.change(row.name, reason=f"{max(left, 0):.0f} s were left")
            print(self.result.line(row.name), flush=True)
            return
        limit = left if self.tiny else min(left, row.limit_s)
        self.result.change(row.name, status="running")
        begin = time.monotonic()
        status, reason = self.child(row, limit, more)
        seconds = round(time.monotonic() - begin, 1)
        self.result.change(row.name, status=status, seconds=seconds, **({"reason": reason} if reason else {}))
        print(self.result.line(row.name), flush=True)

    def child(self, row: Row, limit_s: float, more: dict[str, str]) -> tuple[str, str]:
        """Status and reason of a row, whose figures are kept as they come."""
        argv = [sys.executable, "-m", "gpu_check.part", row.part, *row.arguments]
        environment = self.environment | more | {"GPU_CHECK_SPAWNED": str(time.time())}
        log_path, skipped = self.folder / f"{row.name.replace(' ', '-').replace('/', '-of-')}.log", ""
        with log_path.open("w") as log:
            process = subprocess.Popen(
                argv,
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            self.children.append(process)
            ended = threading.Event()

            def expire() -> None:
                ended.set()
                end(process)

            timer = threading.Timer(limit_s, expire)
            timer.start()
            assert process.stdout
            for line in process.stdout:
                if not line.startswith(('{"figures"', '{"skipped"')):
                    log.write(line)
                    continue
                said = json.loads(line)
                skipped = said.get("skipped", skipped)
                if "figures" in said:
                    self.result.measured(row.name, said["figures"])
            code = process.wait()
            timer.cancel()
        if ended.is_set():
            return "timed out", f"after {limit_s:.0f} s"
        if skipped:
            return "skipped", skipped
        if code:
            lines = [line for line in log_path.read_text().splitlines() if line.strip()]
            return "failed", f"exit code {code}: {lines[-1][:300] if lines else ''}"
        return "ok", ""

    def end(self) -> None:
        for process in self.children:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Asks the session of a row to end, so that it ends what it started in others, and then ends it."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)


def result_path(out: Path | None, device: dict[str, Any]) -> Path | None:
    """bench/results/gpu_check-CARD-DATE.json, with a letter behind a date that is taken; where nothing was asked for on a CPU, none."""
    if out or not device:
        return out
    name = "-".join(word.lower() for word in device["name"].split() if word != "NVIDIA")
    stem = f"gpu_check-{name}-{time.strftime('%Y-%m-%d')}"
    names = [stem, *(f"{stem}-{letter}" for letter in "bcdefgh")]
    return next(path for path in (BENCH / "results" / f"{name}.json" for name in names) if not path.exists())


def versions(check: Check) -> dict[str, Any]:
    """Of the libraries; the check ends here where jax does not see the card."""
    argv = [sys.executable, "-m", "gpu_check.part", "environment"]
    done = subprocess.run(argv, env=check.environment, cwd=check.folder, capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"figures"')]
    if not lines:
        sys.exit(f"podwright does not start here: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    figures: dict[str, Any] = json.loads(lines[-1])["figures"]
    return figures


def main() -> int:
    parser = argparse.ArgumentParser("python -m gpu_check", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--gpu", choices=("one", "none"), default="one", help="none: every line with tiny sizes on the CPU"
    )
    parser.add_argument("--limit", type=float, default=480, metavar="SECONDS", help="of all rows together")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows with these words in their names")
    parser.add_argument("--out", type=Path, help="the result's file; default: in bench/results")
    parser.add_argument("--wheels", type=Path, help="a folder of packages that this machine lacks")
    parser.add_argument("--commit", default="", help="of this copy, where it is no git repository")
    parser.add_argument("--keep", action="store_true", help="keep runs and logs")
    options = parser.parse_args()
    tiny = options.gpu == "none"
    device = {} if tiny else card()
    if not tiny and not device:
        sys.exit(
            "nvidia-smi shows no GPU here; to run every line with tiny sizes on the CPU type: make gpu-check GPU=none"
        )
    folder = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    about = stamp("gpu_check") | ({"commit": options.commit} if options.commit else {}) | {"dry": tiny, "card": device}
    about["machine"] = f"{device.get('name', 'no GPU')}, {about['machine']}"
    names = [row.name for row in ALL if options.only in row.name]
    result = Result(about, names, result_path(options.out, device))
    check = Check(tiny, TINY_LIMIT_S if tiny else options.limit, folder, result, unpacked(options.wheels, folder))

    def leave(*_: Any) -> None:
        result.interrupt()
        check.limit_s = 0  # begins no other row
        print(result.table(), flush=True)
        check.end()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    result.about |= versions(check)
    check.run(options.only)
    result.about["seconds"] = round(time.monotonic() - check.begin, 1)
    for name in names[:1]:
        result.change(name)
    print(result.table())
    print(f"result: {result.path}" if result.path else "no result is kept: nothing was measured")
    bad = [row for row in result.rows.values() if row["status"] in ("failed", "timed out")]
    if bad or options.keep:
        print(f"logs: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())

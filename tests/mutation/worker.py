"""Runs tests against one mutant after another, in an environment that imports the mutant; started once for a tree.

Each mutant has a process of its own, forked from this one, which has imported the libraries that take seconds. What a mutant does to a file or a
compiled program ends with it. Jobs come in and results go out as JSON lines.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

LIBRARIES: tuple[str, ...] = (
    "numpy",
    "scipy.stats",
    "hypothesis",
    "jax",
    "jax.numpy",
    "jax.experimental.multihost_utils",
    "optax",
)
LIBRARIES += ("optax.contrib", "orbax.checkpoint", "torch", "transformers", "pydantic", "tokenizers", "yaml", "pytest")


class Chosen:
    """A plugin of pytest: runs these tests alone, in this order, and keeps the first that fails."""

    def __init__(self, tests: list[str], out: str):
        self.order, self.out = {name: place for place, name in enumerate(tests)}, out

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            with open(self.out, "a") as out:
                out.write(report.nodeid + "\n")


def verdict(tests: list[str], limit_s: int, scratch: str) -> dict[str, Any]:
    """Whether a test fails: "killed" with its name, "timeout" after `limit_s` seconds of processor time, or "survived"."""
    Path(scratch).write_text("")
    begin, child = time.monotonic(), os.fork()
    if not child:
        _test(tests, limit_s, scratch)
    done, status, used = os.wait4(child, os.WNOHANG)
    while not done and time.monotonic() - begin < 60 + 5 * limit_s:
        time.sleep(0.05)
        done, status, used = os.wait4(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what its tests have started
    if not done:
        _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    # 5: pytest found none of the tests
    state = "timeout" if code < 0 else {0: "survived", 5: "no tests"}.get(code, "killed")
    failed = Path(scratch).read_text().splitlines()
    return {"verdict": state, "test": failed[0] if failed else "", "cpu_s": round(used.ru_utime + used.ru_stime, 1)}


def _test(tests: list[str], limit_s: int, scratch: str) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    with open(os.devnull, "r+") as nothing:
        for stream in (0, 1, 2):
            os.dup2(nothing.fileno(), stream)
    import hypothesis
    import pytest

    hypothesis.settings.register_profile("mutation", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("mutation")
    names = list(dict.fromkeys(name.partition("::")[0] for name in tests))
    code = 1
    with contextlib.suppress(BaseException):
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *names], plugins=[Chosen(tests, scratch)]))
    os._exit(code)


def main() -> None:
    importlib.import_module("conftest")  # the environment of the tests
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    scratch = str(Path(sys.prefix, f"failed-{os.getpid()}"))
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(verdict(job["tests"], job["limit_s"], scratch)), flush=True)


if __name__ == "__main__":
    main()

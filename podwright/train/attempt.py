"""One attempt of a run in this process: trains, turns every fault into an ending, and writes exit.json."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podwright import extras
from podwright.errors import UserError, from_os, message_of
from podwright.failures.match import match
from podwright.recipe import load
from podwright.recipe.advice import of_run, saved_step
from podwright.recipe.location import storage_failure
from podwright.rundir import Ending, RunDir, read_events, recipe_of, write_json
from podwright.storage.base import StorageFailure, cause_of, failure_of
from podwright.train import entry, patient_gcs, run_directory
from podwright.train.emit import TrainingOutcome
from podwright.train.run_storage import AttemptStart

_SOURCE_LINE = re.compile(r"\[\S*gloo/\S+\] ?")  # of PyTorch, before what it says
# Faults of a value, of data or of code, which do not pass with time.
_REPEATED = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(NameError, SyntaxError, TypeError, ValueError),
)
# That are of a file or a disk even where the error names none; a connection or a process has the others too.
_OF_DISKS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ENODEV),
)
_DISK_FULL = re.compile(r"(?i)no space left|disk quota exceeded|inline_container.*(unexpected pos|failed writing)")
_NO_ADDRESSES = re.compile(
    r"(?i)(can't|cannot) allocate memory|not enough memory|out of memory allocating|bad_alloc|start new thread|failed to map segment"
)
_OPEN_FILES = 1 << 20
STATUS = {Ending.FINISHED: 0, Ending.STOPPED: 3}
AT_ONCE_S = 5.0
"""that an attempt which has trained nothing yet may take to stop by itself"""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequest:
    """True after SIGTERM, SIGINT or SIGUSR1 (SLURM's warning): the loop then finishes its step and saves. After a second one it is in a
    hurry, and a step that can be dropped is."""

    def __init__(self) -> None:
        self.requests = 0
        self.listen()

    def listen(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._ask)

    def _ask(self, *_: Any) -> None:
        self.requests += 1

    def then(self, leave: Callable[[], None]) -> None:
        """Calls `leave` in a thread, AT_ONCE_S after the first request, whatever this thread is at: Python runs its handlers of signals
        between two instructions of its own, and a compiler takes minutes for one."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def wait() -> None:
            while os.read(reader, 1)[0] not in _SIGNALS:
                pass
            time.sleep(AT_ONCE_S)
            leave()

        threading.Thread(target=wait, name="stop", daemon=True).start()

    def __call__(self) -> bool:
        return self.requests > 0

    def hurried(self) -> bool:
        return self.requests > 1


def main() -> int:
    """The exit status: 0 finished, 3 stopped, 1 for every other ending."""
    parser = argparse.ArgumentParser(prog="python -m podwright.train")
    parser.add_argument("run", type=Path)
    parser.add_argument("--attempt", type=int, default=1)
    parser.add_argument("--storage", default="", metavar="URL", help="where checkpoints and records are kept")
    parser.add_argument("--allocation", default="", metavar="NAME", help="of the machines, for whoever finds the claim")
    parser.add_argument("--takeover", action="store_true", help="no process of an earlier attempt is left")
    args = parser.parse_args()
    _allow_open_files()
    run = RunDir(args.run)
    start = AttemptStart(args.attempt, args.storage or run.storage_url, args.allocation, args.takeover)
    if "RANK" not in os.environ and (processes := _num_processes(run)) > 1:
        from podwright.train.multimodal.processes import launch

        if failure := launch.several(processes, sys.argv[1:], os.environ):
            names = {"process": failure[0], "host": socket.gethostname(), "code": failure[1]}
            _write(run, run.fault(args.attempt), names)
        return _status_of(run, args.attempt)
    number = _number()
    run_directory.guard(run.recipe)
    if limit := _address_limit():
        _say(f"podwright: {limit}")
    stopping = StopRequest()
    stopping.then(lambda: _leave(run, start))
    record, fault, own = _guarded(run, start, stopping)
    _say(f"{record['ending']}: {record['detail']}; {record['fix']}".rstrip("; "))
    if number == 0 or (fault and own):  # the first process may not live to tell the fault of another
        _write(run, run.exit(args.attempt, number), record | {"time": time.time()})
    if record["ending"] != Ending.STORAGE_UNREACHABLE:
        _finish(start, number)
    status = STATUS.get(Ending(record["ending"]), 1)
    if status == STATUS[Ending.STOPPED] and "TORCHELASTIC_RUN_ID" in os.environ:
        status = 0  # torchrun takes any other for a fault, for which it would end those that are still saving
    if fault and ("JAX_COORDINATOR_ADDRESS" in os.environ or "MASTER_ADDR" in os.environ):
        os._exit(status)  # an orderly exit waits for the other processes, and they may be waiting for this one
    return status


def _say(text: str) -> None:
    """To the log, whose disk may be full."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  what is left in its buffer would be this process's exit status


def _write(run: RunDir, path: Path, record: dict[str, Any]) -> None:
    """Unless the run's directory was deleted, which would come back with nothing else in it."""
    if run.path.is_dir():
        try:
            write_json(path, record)
        except OSError as e:
            _say(f"{path} cannot be written: {e}")


def _finish(start: AttemptStart, number: int) -> None:
    """The last records go to the storage; what stands in the way changes no ending."""
    try:
        start.finish(number)
    except UserError as e:
        _say(f"the last records are not in the storage: {e}")


def _num_processes(run: RunDir) -> int:
    """That its recipe's kind wants here; 1 where a recipe or a package cannot be read, which the attempt then says."""
    try:
        return entry.of(json.loads(run.recipe.read_text())["kind"]).num_processes(os.environ)
    except Exception:
        return 1


def _status_of(run: RunDir, attempt: int) -> int:
    """Of processes that have written down how they ended."""
    try:
        return STATUS.get(Ending(json.loads(run.exit(attempt).read_text())["ending"]), 1)
    except (OSError, ValueError, KeyError):
        return 1


def _guarded(run: RunDir, start: AttemptStart, stopping: StopRequest) -> tuple[dict[str, Any], bool, bool]:
    """The exit record of the training, whether it ended by a fault, and whether that was this process's own."""
    try:
        outcome = _run(run, start, stopping)
    except UserError as e:
        if failure := storage_failure(e):
            return _record(*explain(failure, run)), True, True
        return _record(Ending.BAD_INPUT, e.what, e.fix), True, True
    except Exception as e:  # the one place where every fault becomes an ending
        traceback.print_exc()
        lost = start.storage and start.storage.failure()
        if elsewhere := run.fault_elsewhere(start.number):
            return elsewhere, True, False
        return _record(*explain(lost or e, run)), True, not _is_by_peer(e)
    finally:
        start.trained = lambda: True  # however it ended, that is written down now, and no stop comes before it
    return _record(outcome.ending, outcome.detail, outcome.fix, outcome.step), False, True


def _record(ending: Ending, detail: str, fix: str, step: int | None = None) -> dict[str, Any]:
    return {"ending": str(ending), "step": step, "detail": detail, "fix": fix}


def _leave(run: RunDir, start: AttemptStart) -> None:
    """Ends an attempt that has trained nothing yet: nothing is lost, and a resume begins where this one did."""
    if start.trained():
        return
    number = _number()
    saved = saved_step(read_events(run.events)) or 0
    record = _record(Ending.STOPPED, "stopped before a step of this attempt had ended", "", saved)
    _say(f"{record['ending']}: {record['detail']}")
    if number == 0:
        _write(run, run.exit(start.number, number), record | {"time": time.time()})
    if start.storage:
        start.storage.leave(start.number, number)
    os._exit(0 if "TORCHELASTIC_RUN_ID" in os.environ else STATUS[Ending.STOPPED])


def _number() -> int:
    return int(os.environ.get("JAX_PROCESS_ID", os.environ.get("RANK", "0")))


def _run(run: RunDir, start: AttemptStart, stopping: StopRequest) -> TrainingOutcome:
    with entry.naming(run.recipe):
        recipe = load.stored(recipe_of(run))
    if "gs://" in f"{start.url} {recipe.model_dump_json()}":
        with contextlib.suppress(ImportError):  # whoever opens the place says which package is missing
            patient_gcs.install()
    return entry.of(recipe.kind).train(run, start, stopping)


def _is_by_peer(e: Exception) -> bool:
    """Returns whether the exception only says that another process has gone."""
    failure = match(str(e), "trainer")
    return failure is not None and failure.row.name == "PeerGone"


def _allow_open_files() -> None:
    """As many as this process and what it starts may have without asking anybody; many shells begin with 1024."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    if resource.RLIM_INFINITY != allowed < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS allows fewer than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _address_limit() -> str:
    """In words, what `ulimit -v` allows this process; "" where there is no limit. The log begins with it, since native
    code that fails by it (bad_alloc) may end the process before an ending is written."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else f"ulimit -v allows {limit / 2**30:.2f} GiB of addresses"


def explain(e: Exception, run: RunDir) -> tuple[Ending, str, str]:
    """The ending that a fault is, one line about it, and what to type."""
    first = f"{type(e).__name__}: {message_of(e, 300)}"
    then = f"then type: podwright resume {run.typed}"
    if isinstance(e, ModuleNotFoundError) and e.name:
        extra = extras.of(e.name)
        if extra:
            what = f"the package {e.name} is not installed where the trainer runs"
            return Ending.BAD_INPUT, what, f"{extras.install(extra)}, {then}"
    failure = e if isinstance(e, StorageFailure) else None
    if not failure and run.storage_url:
        failure = failure_of(e, run.storage_url)
    if failure:
        return Ending.STORAGE_UNREACHABLE, failure.what, f"{failure.fix}, {then}"
    if not isinstance(e, OSError) and _DISK_FULL.search(str(e)):
        e = OSError(errno.ENOSPC, str(e))
    at = run.path if isinstance(e, OSError) and e.errno in _OF_DISKS else ""
    if isinstance(e, OSError) and e.errno != errno.ENOMEM:
        of_disk = from_os(e, at)
        if of_disk:
            return Ending.CRASHED, of_disk.what, f"{of_disk.fix}, {then}"
    limit = _address_limit()
    if limit and (isinstance(e, MemoryError) or _NO_ADDRESSES.search(str(e))):
        raised = "type ulimit -v unlimited where the run is started (a line of setup in the target)"
        return Ending.OUT_OF_MEMORY, f"{first} ({limit})", f"{raised}, {then}"
    if text_failure := match(str(e), "trainer"):
        seen = _SOURCE_LINE.sub("", first).partition(". This is typically caused")[0]
        fields = asdict(of_run(run)) | {"first": first, "seen": seen, "then": then}
        return text_failure.row.ending or Ending.CRASHED, text_failure.cause(fields), text_failure.remedy(fields)
    if "RESOURCE_EXHAUSTED" in str(e):  # as quotas and rates say too
        ending = Ending.STORAGE_UNREACHABLE if cause_of(e) else Ending.CRASHED
        what = f"a service refuses requests: a quota or a rate limit is used up ({first})"
        return ending, what, f"wait a minute, {then}"
    if isinstance(e, MemoryError):
        return Ending.OUT_OF_MEMORY, first, f"{of_run(run).host_memory}, or use a machine with more memory"
    if isinstance(e, UnicodeError | OverflowError):  # of a value or a line of data, which another start reads again
        return Ending.BAD_INPUT, first, f"fix what `podwright logs {run.typed}` names, then start it again"
    fix = ""
    if isinstance(e, _REPEATED):
        fix = f"fix what `podwright logs {run.typed}` ends with: every start comes there again"
    return Ending.CRASHED, first, fix

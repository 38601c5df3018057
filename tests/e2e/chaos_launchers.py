"""The launchers of a life: `podwright` processes on one machine after the other, of which some are frozen or left to themselves for a while."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab import machine
from podwright.run import mirror
from podwright.rundir import RunDir
from tests.e2e.conftest import LAUNCH, Bench, wait_for
from tests.e2e.fork_server import ForkedProcess, ForkServer

LINGER_S = 90.0
"""for so long a launcher that nobody waits for may live after the end of the run"""
KEY = "tpu-vm"
"""the folder beside the file of targets that goes with a person to another machine"""
CODES = (0, 1, 2, 130)
A_CALL = "a call of gcloud"
"""the moment of a launcher's death that a fault "orphaned" of the cloud has caused"""


@dataclass
class Launcher:
    process: "subprocess.Popen[bytes] | ForkedProcess"
    verb: str
    out: Path
    machine: int
    began: float
    """Unix seconds"""
    ended: float = 0.0
    deadly: Sequence[str] = ()
    """lines of the journal around which it dies, as Kill.event"""
    interrupted: bool = False
    killed: bool = False

    def output(self) -> str:
        """Once it has ended."""
        self.process.wait()
        self.ended = self.ended or time.time()
        return self.out.read_text()

    def send(self, number: int, *, group: bool) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(self.process.pid, number)

    def is_frozen(self) -> bool:
        return self.process.poll() is None and psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED

    def kill(self, *, group: bool) -> None:
        self.killed = True
        self.send(signal.SIGKILL, group=group)
        self.process.kill()
        self.process.wait()
        self.ended = time.time()


class Launchers:
    """`run`: what starts the run, without its name. `killed_by_calls`: the processes that calls of gcloud have killed."""

    def __init__(
        self,
        bench: Bench,
        target: str,
        run: Sequence[str],
        environment: Mapping[str, str],
        forks: ForkServer | None,
        killed_by_calls: Callable[[], Collection[int]],
    ) -> None:
        self._bench, self._target, self._words, self._forks = bench, target, run, forks
        self._killed_by_calls = killed_by_calls
        self._environment = {**os.environ, "PYTHONPATH": str(LAUNCH.parents[1]), **environment}
        self._folders = [bench.folder]
        self._url = ""
        self.all: list[Launcher] = []
        self.left: list[Launcher] = []
        """that nobody waits for"""

    @property
    def folder(self) -> Path:
        """Of the machine where the next one starts."""
        return self._folders[-1]

    @property
    def run(self) -> RunDir:
        return RunDir(self.folder / "runs" / "r")

    @property
    def machines(self) -> int:
        return len(self._folders)

    @property
    def drives(self) -> bool:
        """Whether the run is driven from the machine where the next one starts, and was not only observed there so far."""
        return self.run.journal.exists() and not mirror.observes(self.run)

    def move(self) -> None:
        """To another machine, with the targets and the key of this one: the next launcher takes the run over."""
        before, self._url = self.folder, self.run.storage_url
        after = self._folders[0] / f"machine-{self.machines + 1}"
        (after / "runs").mkdir(parents=True)
        shutil.copy(before / "targets.yaml", after)
        if (before / KEY).exists():
            (after / KEY).mkdir(mode=0o700)
            for path in (before / KEY).glob("id_*"):
                shutil.copy(path, after / KEY)
        self._folders.append(after)

    def start(self, verb: str, deadly: Sequence[str] = ()) -> Launcher:
        """`deadly`: lines of the journal around which it dies, as Kill.event. A run that was not taken over yet is taken over first."""
        name = "r"
        if self._url and not self.drives:
            verb, name = "resume", self._url
        argv = ["clean", self._target, "--yes"] if verb == "clean" else [verb, name]
        if verb == "run":
            argv = ["run", *self._words, "--name", "r", "--force"]
        environment = self._environment | {"LAUNCH_DIES": ",".join(deadly)}
        environment["PODWRIGHT_TARGETS"] = str(self.folder / "targets.yaml")
        out = self._folders[0] / f"launcher-{len(self.all) + 1}.txt"
        process = self.started(argv, self.folder, environment, out)
        self.all.append(Launcher(process, verb, out, self.machines, time.time(), deadly=deadly))
        return self.all[-1]

    def started(
        self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], out: Path
    ) -> "subprocess.Popen[bytes] | ForkedProcess":
        if self._forks:
            return self._forks.start(self._bench.launch, argv, folder, environment, out)
        with out.open("w") as f:
            return subprocess.Popen(
                [sys.executable, str(self._bench.launch), *argv],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=f,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=machine.end_with_parent,
            )

    def death(self, launcher: Launcher) -> str:
        """The moment at which the script has had it killed without Launcher.kill: one of `deadly`, or A_CALL; "" if it has not died so."""
        if launcher.process.poll() != -signal.SIGKILL:
            return ""
        moment = launcher.output().rpartition("dies ")[2].strip()  # lab/launcher.py prints it last
        if moment in launcher.deadly:
            return moment
        return A_CALL if launcher.process.pid in self._killed_by_calls() else ""

    def fault(self, launcher: Launcher) -> str:
        """What is wrong with how it has ended; "" where nothing is."""
        code, out = launcher.process.returncode, launcher.output()
        if "Traceback" in out:
            return f"traceback: {out[-1500:]}"
        if code not in CODES and not launcher.killed and not self.death(launcher):
            return f"podwright {launcher.verb} had exit code {code}: {out[-300:]}"
        return ""

    def faults_of_left(self) -> list[str]:
        """Wait for those that nobody has waited for; what is wrong with their ends."""
        with contextlib.suppress(AssertionError):
            wait_for(lambda: all(each.process.poll() is not None for each in self.left), LINGER_S)
        faults = []
        for each in self.left:
            if each.process.poll() is None:
                each.kill(group=True)
                faults.append(f"a launcher that was left did not end: {each.output()[-600:]}")
            elif fault := self.fault(each):
                faults.append(fault)
        return faults

    def end(self) -> None:
        for each in self.all:
            if each.process.poll() is None:
                each.kill(group=True)

"""Rewards run in a child process: one that hangs or crashes in C code ends that process, and not the trainer.

The child starts before jax does, so it inherits none of its devices. It loads the functions that a recipe names and calls them in its main
thread, since libraries such as math-verify use signals. Rows come and numbers go over a socket; what rewards print goes to the trainer's log.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from podwright.errors import UserError
from podwright.recipe import schema
from podwright.train.grpo import reward

STOP_S = 20.0
"""that a reward may still take when the trainer is to stop"""
LOAD_S = 600.0
"""in which rewards are to be loaded: libraries are imported, models read"""
_CLOSE_S = 5.0  # in which the child leaves by itself when the trainer does
_TICK_S = 0.1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # which a cluster sends to every process of a job
_PR_SET_PDEATHSIG = 1  # of prctl(2), Linux


class RewardProcess:
    def __init__(self, stopping: Callable[[], bool]):
        self._stopping = stopping
        self._limit_s = 0.0
        self._rewards: list[schema.Reward] = []
        self._start()

    def load(self, rewards: Sequence[schema.Reward], limit_s: float) -> list[reward.LoadedReward]:
        """As `reward.load` does, with functions that are called in the child. A call may take `limit_s`."""
        self._rewards = list(rewards)
        self._limit_s = limit_s
        names = self._load()
        return [
            reward.LoadedReward(name, functools.partial(self._call, name), r.weight)
            for name, r in zip(names, rewards, strict=True)
        ]

    def _call(self, name: str, prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        """UserError as in the child, and for a reward that ends the child; RewardTimeout where it does not return in time."""
        try:
            values: list[float] = self._answer(self._limit_s, name, prompts, completions, columns)
            return values
        except TimeoutError:
            ended = ""
        except (EOFError, OSError):
            ended = self._ended()
        index = None if self._stopping() else self._culprit(name, prompts, completions, columns)
        if self._stopping():  # which cuts every limit short
            index, ended = None, ""
        if ended:
            what = f"the reward {name} ended its process ({ended}), {reward.where(index, columns, completions)}"
            fix = "fix the function (after SIGKILL `dmesg` says whether memory was full), then resume the run"
            raise UserError(what, fix, "reward-failed")
        alone = {} if index is None else {"question": columns["question"][index], "completion": completions[index]}
        raise reward.RewardTimeout({"reward": name, **alone})

    def _culprit(self, name: str, prompts: list[str], completions: list[str], columns: reward.Columns) -> int | None:
        """The sample for which a new child gives no answer alone, of those that are tried in the time of a call."""
        self._kill()
        self._start()
        self._load()

        def call(prompts: list[str], completions: list[str], **columns: Any) -> None:
            with contextlib.suppress(UserError):  # it has returned
                self._answer(self._limit_s, name, prompts, completions, columns)

        return reward.failing_sample(call, (EOFError, OSError), prompts, completions, columns, self._limit_s)

    def close(self) -> None:
        self._connection.close()  # a child that waits for rows leaves by that
        self._ended()

    def _start(self) -> None:
        self._connection, connection = multiprocessing.Pipe()
        argv = [sys.executable, "-u", "-X", "faulthandler", "-m", __name__, str(connection.fileno())]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            pass_fds=[connection.fileno()],
            process_group=0,
        )
        connection.close()

    def _load(self) -> list[str]:
        limit_s = max(LOAD_S, self._limit_s)
        try:
            names: list[str] = self._answer(limit_s, self._rewards)
        except (EOFError, OSError) as e:
            what = f"the rewards did not load within {limit_s:g} s, or ended their process ({self._ended()})"
            raise UserError(what, "fix what they do when they are imported", "rewards-not-loaded") from e
        return names

    def _answer(self, limit_s: float, *request: Any) -> Any:
        """TimeoutError for none in `limit_s`; EOFError or another OSError when the child has ended."""
        # A child that does not take its rows is late too: of megabytes this waits for it.
        threading.Thread(target=self._send, args=(self._connection, request), daemon=True).start()
        left_s = limit_s
        while not self._connection.poll(_TICK_S):
            left_s = min(left_s - _TICK_S, STOP_S if self._stopping() else math.inf)
            if left_s <= 0:
                self._kill()
                raise TimeoutError
            if self._process.poll() is not None:  # what it has started may keep the socket open
                raise EOFError
        value, fault = self._connection.recv()
        if fault:
            raise UserError(*fault)
        return value

    def _send(self, connection: Connection, request: Any) -> None:
        with contextlib.suppress(OSError):  # the child has ended, which whoever waits for its answer sees
            connection.send(request)

    def _ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_S)
        self._kill()
        code = self._process.returncode
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def _kill(self) -> None:
        """Ends the child and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def main() -> None:
    """Answers until the trainer closes its end of the socket, or has ended: hanging in C code, this process is then killed."""
    for number in _SIGNALS:  # not ignored, which what a reward starts would inherit
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: [signal.signal(number, signal.SIG_DFL) for number in _SIGNALS])
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connection = Connection(int(sys.argv[1]))
    loaded = dict[str, reward.LoadedReward]()
    with contextlib.suppress(EOFError, OSError):
        while True:
            first, *rows = connection.recv()
            value: Any = None
            fault = None
            try:
                if rows:
                    value = reward.score([loaded[first]], *rows)[first]
                else:
                    loaded = {r.name: r for r in reward.load(first)}
                    value = list(loaded)
            except UserError as e:
                fault = e.what, e.fix, e.code
            connection.send((value, fault))


if __name__ == "__main__":
    main()

"""The first Ctrl-C stops a run and the second leaves it; whoever only watches just leaves."""

import os
import signal

import pytest

from podwright.run.interrupts import Interrupts


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_who_runs_stops_first_and_leaves_second() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(stops=True, say=said.append) as interrupts:
        assert (interrupts.stop, interrupts.leave) == (False, False)
        interrupt()
        assert (interrupts.stop, interrupts.leave) == (True, False)
        interrupt()
        assert interrupts.leave
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    assert len(said) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_who_watches_only_leaves() -> None:
    with Interrupts(stops=False, say=pytest.fail) as interrupts:
        interrupt()
        assert (interrupts.stop, interrupts.leave) == (False, True)

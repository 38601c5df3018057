"""A log that grows is read to the end of its attempt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from podwright.rundir import RunDir
from podwright.targets.base import Handle, Polled, Process
from podwright.watch import logs


def test_a_log_is_followed_until_the_attempt_has_ended_with_what_was_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    polls = iter([(Process.RUNNING, "step 1\n"), (Process.RUNNING, ""), (Process.ENDED, "the end\n")])

    def poll(handle: Handle) -> Polled:
        process, text = next(polls)
        with run.log(1).open("a") as f:
            f.write(text)
        return Polled(process)

    monkeypatch.setattr(logs, "_POLL_S", 0.0)
    target: Any = SimpleNamespace(poll=poll, traits=SimpleNamespace(poll_s=0.0, ships_files=False))
    handle = {"run_dir": str(run.path), "attempt": 1}
    assert list(logs.read(target, handle, follow=True)) == ["step 1\n", "the end\n"]
    assert list(logs.read(target, handle)) == ["step 1\nthe end\n"], "at once, and without a poll"

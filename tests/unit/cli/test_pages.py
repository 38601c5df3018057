"""The verb ui: one page alone takes the place of the command; with a forwarded port both run until one of them ends."""

import time
from pathlib import Path

import pytest

from podwright import shell, track
from podwright.cli.app import main
from podwright.run import execution, listing
from podwright.rundir import RunDir

ENDS, STAYS = ["true"], ["sleep", "600"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(execution, "forward_argv", lambda run, port: ENDS)
    monkeypatch.setattr(listing, "find", lambda runs, name: RunDir(tmp_path / name))
    return "made"


def test_a_page_without_a_forwarded_port_takes_the_place_of_the_command(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    became = list[list[str]]()
    monkeypatch.setattr(track, "tensorboard_argv", lambda run: STAYS)
    monkeypatch.setattr(shell, "become", lambda argv, env: became.append(list(argv)))
    assert main(["ui", run]) == 0 and became == [STAYS]


def test_a_port_that_is_no_longer_forwarded_ends_the_page_too(
    run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = list[int]()
    end = shell.Shell.end
    monkeypatch.setattr(shell.Shell, "end", staticmethod(lambda process: (end(process), ended.append(process.poll()))))
    monkeypatch.setattr(track, "tensorboard_argv", lambda run: STAYS)
    assert main(["ui", run, "--forward=6006"]) == 2
    assert "port 6006 of the first host is no longer forwarded" in capsys.readouterr().err
    assert len(ended) == 2 and None not in ended


def test_a_page_that_ends_gives_the_port_back(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "forward_argv", lambda run, port: STAYS)
    monkeypatch.setattr(track, "tensorboard_argv", lambda run: ENDS)
    began = time.monotonic()
    assert main(["ui", run, "--forward"]) == 0
    assert time.monotonic() - began < 300, "it does not wait for the forwarded port, which lasts 600 s"

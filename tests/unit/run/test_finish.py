"""Trackers and the report may fail; the run does not notice."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import podwright
from podwright.run.finish import Mirror, write_report
from podwright.rundir import RunDir, write_json


def tracked(folder: Path, monkeypatch: pytest.MonkeyPatch, mirror: object) -> RunDir:
    run = RunDir(folder)
    write_json(run.recipe, {"kind": "grpo", "training": {"max_steps": 1}, "trackers": ["tensorboard"]})
    fake = SimpleNamespace(mirror=mirror)
    monkeypatch.setitem(sys.modules, "podwright.track", fake)
    monkeypatch.setattr(podwright, "track", fake, raising=False)
    return run


def test_a_tracker_that_fails_is_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: RunDir, trackers: list[str]) -> list[str]:
        raise ConnectionError("no server")

    warnings: list[str] = []
    mirror = Mirror(tracked(tmp_path, monkeypatch, broken), warnings.append)
    mirror(last=True)
    mirror(last=True)
    assert warnings == ["trackers are behind: ConnectionError: no server"]


def test_each_warning_of_a_tracker_is_passed_on_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    mirror = Mirror(
        tracked(tmp_path, monkeypatch, lambda run, trackers: [f"{t} is behind" for t in trackers]), warnings.append
    )
    mirror(last=True)
    mirror(last=True)
    assert warnings == ["tensorboard is behind"]


def test_a_run_without_trackers_mirrors_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    run = tracked(tmp_path, monkeypatch, lambda *a: calls.append(a))
    write_json(run.recipe, {"kind": "grpo", "training": {"max_steps": 1}, "trackers": []})
    Mirror(run, print)(last=True)
    assert calls == []


def test_a_report_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from podwright.report import page

    def broken(run: RunDir, readme: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(page, "write", broken)
    assert write_report(RunDir(tmp_path)) == "OSError: no space"

"""What a machine without an extra is told: one line with the command that installs it, by every verb, and never a traceback."""

import importlib
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from podwright import extras
from podwright.cli.app import main
from podwright.recipe.location import Location, Unreachable
from podwright.track import TRACKERS

STORED = "gs://bucket/runs/a-0123abcd"
VERBS = ("watch", "logs", "stop", "resume", "report", "eval", "checkpoints", "ui", "export", "predict", "diagnose")
ARGUMENTS = {"export": ["out"], "predict": ["--text", "x"]}
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def without_gcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty directory with a target whose storage is a bucket, and without the packages that reach buckets."""
    for module in ("gcsfs", "google.api_core", "google.api_core.exceptions", "google.cloud", "google.cloud.storage"):
        monkeypatch.setitem(sys.modules, module, None)
    for protocol in ("gs", "gcs"):  # of which another test may have loaded the class
        monkeypatch.delitem(importlib.import_module("fsspec.registry")._registry, protocol, raising=False)
    entry = "boxes: {kind: ssh, hosts: ['127.0.0.1:2'], storage: 'gs://bucket/runs'}\n"
    (tmp_path / "targets.yaml").write_text(entry)
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.setenv("PODWRIGHT_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_for_a_run_in_a_bucket_names_the_extra(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, STORED, *ARGUMENTS.get(verb, [])]) == 2
    package = "the package google-cloud-storage"
    assert capsys.readouterr().err == f"error: storage {STORED} needs {package}; {extras.install('gcs')}\n"


@pytest.mark.parametrize(
    ("argv", "level", "code"),
    [
        (["plan", "almodel-tiny", "--on", "boxes", "--only", "storage"], "inconclusive", 4),
        (["run", "almodel-tiny", "--on", "boxes", "--dry-run"], "error", 3),
        (["target", "check", "boxes"], "error", 3),
        (["doctor", "--on", "boxes"], "error", 3),
    ],
)
def test_a_target_with_a_bucket_cannot_be_used_without_the_extra_and_a_plan_knows_nothing_of_it(
    argv: list[str], level: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == code
    out = capsys.readouterr().out
    line = f"{level}: storage gs://bucket/runs needs the package google-cloud-storage; {extras.install('gcs')}"
    assert line in out.splitlines()


def test_data_in_a_bucket_names_the_extra() -> None:
    with pytest.raises(Unreachable, match="needs the package gcsfs") as e:
        Location.of("gs://bucket/data")
    assert e.value.fix == extras.install("gcs")


def of_wheel(monkeypatch: pytest.MonkeyPatch, origin: str | None) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return origin

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'podwright[torch]'"),
        ('{"url":"file:///w/podwright-0.1.0-py3-none-any.whl","archive_info":{}}', "pip install 'podwright[torch]'"),
        ('{"url":"file:///clone","dir_info":{}}', "pip install 'podwright[torch]'"),
        ('{"url":"file:///clone","dir_info":{"editable":true}}', "pip install -e '.[torch]' in podwright's clone"),
    ],
)
def test_a_clone_is_spoken_of_only_where_the_package_runs_from_one(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, command: str
) -> None:
    of_wheel(monkeypatch, origin)
    assert extras.pip("torch") == command and extras.install("torch") == f"type {command}"


def test_every_hint_is_made_in_one_place() -> None:
    """No other file has a command that installs an extra of this package."""
    sources = [path for path in (ROOT / "podwright").rglob("*.py") if path.name != "extras.py"]
    assert not [path for path in sources if re.search(r"pip install .*(\.|podwright)\[", path.read_text())]


def test_the_extras_that_are_named_exist_and_bring_the_modules() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*extras._MODULES, *TRACKERS, "onnx", "tpu-compile", "cuda12"} <= set(declared)
    assert [extras.of(name) for name in ("google.api_core", "gcsfs", "jax.numpy", "peft", "nobody")] == [
        "gcs",
        "gcs",
        "jax",
        "torch",
        "",
    ]

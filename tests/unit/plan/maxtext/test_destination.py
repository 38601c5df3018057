"""Where a MaxText recipe is planned for, and what a compile settles."""

from pathlib import Path

import pytest

from podwright import slices, targets
from podwright.cli import destination
from podwright.plan import kinds
from podwright.plan.document import ProgramEntry
from podwright.plan.findings import Finding, Level
from podwright.plan.kinds import CompiledPrograms
from podwright.recipe import load
from podwright.targets import ResolvedTarget
from podwright.targets.settings.gke import GkeSettings
from tests.unit.recipe.maxtext.example import example


def test_without_a_target_the_slice_of_the_recipe_is_taken() -> None:
    place = destination.find("", example(topology="tpu7x-4x8x8", num_slices=2))
    assert (place.name, place.where) == ("2x tpu7x-4x8x8", slices.parse("2x tpu7x-4x8x8"))
    assert not place.here
    assert destination.find("v6e-16", example()).where == slices.parse("v6e-16")


def test_a_recipe_that_names_no_slice_is_planned_for_this_machine() -> None:
    place = destination.find("", load.load("qwen3-tiny-arithmetic-grpo"))
    assert place.name == "local" and place.here and place.where is None


@pytest.mark.parametrize("topology", ["", "tpu7x-4x8x8"])
def test_a_cluster_gives_a_recipe_the_slice_that_it_names(topology: str) -> None:
    settings = GkeSettings.model_validate(
        {"kind": "gke", "project": "my-project", "cluster": "pod", "zones": ["us-central1-a"], "topology": topology}
    )
    cluster = ResolvedTarget("pod", settings.devices(), settings)
    assert destination.of(cluster, example(topology="tpu7x-4x4x4")).where == slices.parse("tpu7x-4x4x4")
    other = destination.of(cluster, load.load("qwen3-tiny-arithmetic-grpo")).where
    assert other == (slices.parse(topology) if topology else None)


@pytest.mark.parametrize(
    ("answer", "without_login"),
    [
        ("error: context was not found for specified context: gke_my-project_us-central1_pod", True),
        ("exec: executable gke-gcloud-auth-plugin not found", True),
        ('error: the server doesn\'t have a resource type "jobsets"', False),
    ],
)
def test_a_plan_without_a_login_is_inconclusive_and_a_start_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, without_login: bool
) -> None:
    for tool in ("kubectl", "gcloud"):
        (tmp_path / tool).write_text(f"#!/bin/bash\ncat >&2 << 'END'\n{answer}\nEND\nexit 1\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    given = {"kind": "gke", "project": "my-project", "cluster": "pod", "zones": ["us-central1-a"]}
    monkeypatch.setattr(targets, "resolve", lambda name: ResolvedTarget(name, None, GkeSettings.model_validate(given)))
    first = next(f for f in destination.find("pod", example()).findings if f.check == "target")
    assert first.level == ("inconclusive" if without_login else "error"), first
    start = next(f for f in destination.of(targets.resolve("pod"), example()).findings if f.check == "target")
    assert (start.level, start.message) == ("error", first.message)


def test_a_target_with_devices_of_its_own_keeps_them() -> None:
    here = targets.resolve("cpu-8")
    assert destination.of(here, example()).where == here.slice


@pytest.mark.parametrize(
    ("verdict", "level", "check", "settled"),
    [("fits", "inconclusive", "model", True), ("fits", "inconclusive", "mesh", True), ("fits", "inconclusive", "data", False),
     ("too large", "inconclusive", "model", True), ("fits", "warning", "model", False), ("unknown", "inconclusive", "model", False)],
)  # fmt: skip
def test_a_step_of_a_known_size_settles_what_was_not_known_of_its_model(
    verdict: str, level: Level, check: str, settled: bool
) -> None:
    program = ProgramEntry(
        name="train_step", verdict=verdict, hbm_gib=1.0, limit_gib=2.0, compile_s=1.0, cached=False, resident_gib={}, error="", notes=()
    )  # fmt: skip
    part = kinds.of(example())
    assert part.settled(Finding(check, level, "a fact"), CompiledPrograms((), (program,))) is settled
    grpo = load.load("qwen3-tiny-arithmetic-grpo")
    assert not kinds.of(grpo).settled(Finding(check, level, "a fact"), CompiledPrograms((), (program,)))

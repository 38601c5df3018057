"""The JobSet of a recipe equals what xpk creates, field by field: dry runs of four versions, and one xpk that is really started."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.targets.gke import jobset
from tests.unit.recipe.maxtext.example import example
from tests.unit.targets.gke.entry import gke

DRY_RUNS = Path(__file__).resolve().parents[5] / "shared" / "research" / "xpk_dry_runs"
VERSIONS = ("0.16.1", "1.8.0", "1.13.1", "1.16.0")
SLICES = ("tpu7x-4x4x8-1", "tpu7x-2x2x1-1", "v6e-16-2")
PRINTED = re.compile(r"Temp file \(\w+\) content: \n(.*?)^\[XPK\]", re.DOTALL | re.MULTILINE)


def differences(ours: Any, theirs: Any, at: str = "") -> list[str]:
    """Every field in which two manifests differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = list(dict.fromkeys([*ours, *theirs]))
        absent = "(absent)"
        return [line for key in keys for line in differences(ours.get(key, absent), theirs.get(key, absent), f"{at}.{key}")]  # fmt: skip
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [line for k, pair in enumerate(zip(ours, theirs, strict=True)) for line in differences(*pair, f"{at}[{k}]")]  # fmt: skip
    return [] if ours == theirs and type(ours) is type(theirs) else [f"{at}: {ours!r} is not {theirs!r}"]


def printed(path: Path) -> Any:
    """The manifest in the output of a dry run."""
    match = PRINTED.search(path.read_text())
    assert match, path.name
    return yaml.safe_load(match[1])


@pytest.mark.skipif(not DRY_RUNS.is_dir(), reason="the kept dry runs of xpk are not here")
@pytest.mark.parametrize("slice_", SLICES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifest_equals_a_kept_dry_run(version: str, slice_: str) -> None:
    topology, _, num_slices = slice_.rpartition("-")
    recipe = example(
        topology=topology,
        num_slices=int(num_slices),
        image="img",
        versions={"xpk": version},
        xpk={"priority": "very-high", "max-restarts": "0", "enable-debug-logs": ""},
    )
    theirs = printed(DRY_RUNS / f"{version}-{slice_}.txt")
    ours = jobset.maxtext(recipe, gke(), theirs["metadata"]["name"], "echo hi")
    assert differences(yaml.safe_load(jobset.text(ours)), theirs) == []
    assert list(ours) == list(theirs) and "&id" not in jobset.text(ours)

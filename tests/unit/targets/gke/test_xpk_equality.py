"""The JobSet of a recipe equals what xpk creates, field by field: dry runs of four versions, and one xpk that is really started, also by the
rendered script."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.maxtext import xpk
from podwright.recipe.maxtext.schema import MaxTextRecipe, command
from podwright.targets.gke import jobset, rendering, xpk_shape
from tests import real_xpk
from tests.real_xpk import differences
from tests.unit.recipe.maxtext.example import RAW, example
from tests.unit.recipe.maxtext.launch_script import VALUES
from tests.unit.recipe.maxtext.test_read import imported
from tests.unit.targets.gke.entry import gke
from tests.unit.targets.gke.rendered import Scripts

DRY_RUNS: dict[str, Any] = json.loads((Path(__file__).parent / "dry_runs.json").read_text())
"""manifests that `xpk workload create --dry-run` wrote, by version, slice and number of slices"""
VERSIONS = ("0.16.1", "1.8.0", "1.13.1", "1.16.0")
SLICES = ("tpu7x-4x4x8-1", "tpu7x-2x2x1-1", "v6e-16-2")
OPTIONS = {"priority": "very-high", "max-restarts": "0", "enable-debug-logs": ""}


@pytest.mark.parametrize("slice_", SLICES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifest_equals_a_kept_dry_run(version: str, slice_: str) -> None:
    topology, _, num_slices = slice_.rpartition("-")
    changes = {"topology": topology, "num_slices": int(num_slices), "image": "img", "xpk": OPTIONS}
    theirs = DRY_RUNS[f"{version}-{slice_}"]
    recipe = example(**changes, versions={"xpk": version})
    ours = jobset.maxtext(recipe, gke(), theirs["metadata"]["name"], "echo hi")
    assert differences(yaml.safe_load(jobset.text(ours)), theirs) == []
    assert list(ours) == list(theirs) and "&id" not in jobset.text(ours)


CASES: list[dict[str, Any]] = [
    {},
    {"topology": "tpu7x-2x2x2", "xpk": {"use-parallel-containers": "", "docker-name": "main"}},
    {"topology": "v6e-8", "num_slices": 3, "xpk": {"priority": "low", "max-restarts": "2", "env": "A=b c"}},
    {"topology": "v6e-1", "xpk": {"ttl-seconds-after-finished": "60", "termination-grace-period-seconds": "90"}},
    {"topology": "v5p-16", "xpk": {"restart-on-exit-codes": "3,5", "scheduler": "s", "docker-image-pull-secret": "p"}},
    {"topology": "v5e-16", "xpk": OPTIONS},
    {"arguments": {**RAW["arguments"], "prompt": 'it\'s "quoted" & <so>'}},
]


@pytest.mark.long
@pytest.mark.parametrize(
    "changes", [CASES[0], *(pytest.param(case, marks=pytest.mark.long) for case in CASES[1:])], ids=str
)
def test_the_manifest_equals_that_of_the_real_xpk(tmp_path: Path, changes: dict[str, Any]) -> None:
    recipe, own = example(image="img", versions={"xpk": "1.16.0"}, **changes), gke()
    slice_ = jobset.slice_of(recipe)
    argv = [
        *("--cluster=c", "--project=p", "--zone=us-central1-a", "--workload=w", "--docker-image=img"),
        f"--device-type={slice_.names()['xpk']}",
        f"--num-slices={slice_.num_slices}",
        *(f"--{name}={value}" if value else f"--{name}" for name, value in recipe.xpk.items()),
        f"--command={command(recipe)}",
    ]
    theirs = real_xpk.manifest(real_xpk.installed("1.16.0"), argv, tmp_path)
    ours = jobset.maxtext(recipe, own, "w", command(recipe))
    assert differences(yaml.safe_load(jobset.text(ours)), theirs) == []


@pytest.mark.long
@pytest.mark.parametrize("changes", [{"xpk": OPTIONS}, {"topology": "v6e-8", "num_slices": 3}], ids=str)
def test_the_rendered_script_has_the_real_xpk_create_the_rendered_jobset(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    machines = {"machine_type": "ct6e-standard-4t"} if "v6e" in changes.get("topology", "") else {}
    scripts = Scripts(tmp_path, example(versions={"xpk": "1.16.0"}, **changes), **machines)
    real_xpk.dry(real_xpk.installed("1.16.0"), scripts.bin / "xpk", tmp_path)
    code, out = scripts.run(scripts.rendered.submit, "xpk", WORKLOAD_NAME="my-run")
    assert code == 0, out
    ours = yaml.safe_load(scripts.rendered.files[rendering.MANIFEST].replace("${WORKLOAD_NAME}", "my-run"))
    for container in ours["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]:
        del container["envFrom"]  # the Secret of variables, which xpk knows nothing of
    assert differences(ours, real_xpk.printed(out)) == []


def test_the_rendered_call_has_the_options_of_the_launch_script_in_their_order(tmp_path: Path) -> None:
    of_script = imported(**VALUES)
    recipe = load.require(load.parse(of_script.recipe), MaxTextRecipe)
    theirs = xpk.options(of_script.argv, "1.16.0").values
    typed = {name: VALUES.get(name, "x") for name in recipe.variables if name not in ("WORKLOAD_NAME", "WORKLOAD_IMAGE")}  # fmt: skip
    scripts = Scripts(tmp_path, recipe, typed)
    assert scripts.run(scripts.rendered.submit, "xpk", WORKLOAD_NAME="my-run")[0] == 0
    ours = xpk.options(scripts.calls("xpk")[0], "1.16.0").values
    of_target = ("cluster", "project", "zone", "workload", "docker-image", "command")
    assert {k: v for k, v in ours.items() if k not in of_target} == {
        k: v for k, v in theirs.items() if k not in of_target
    }
    assert [key for key in ours if key in recipe.xpk] == [key for key in theirs if key in recipe.xpk]


@pytest.mark.parametrize(
    ("version", "options", "topology", "shape"),
    [
        ("0.17.3", {}, "tpu7x-4x4x4", (1, 4, (8471, 8080))),
        ("1.0.0", {}, "tpu7x-4x4x4", (1, 4, (8471, 8080))),
        ("1.1.2", {}, "tpu7x-4x4x4", (2, 2, ())),
        ("1.4.0", {}, "tpu7x-4x4x4", (2, 2, ())),
        ("v1.11.0", {}, "tpu7x-2x2x1", (2, 2, ())),
        ("1.11.0", {}, "v6e-16", (1, 4, ())),
        ("1.13.1", {"no-use-parallel-containers": ""}, "tpu7x-4x4x4", (1, 4, ())),
        ("1.8.0", {"no-use-parallel-containers": ""}, "tpu7x-4x4x4", (2, 2, ())),  # which did not know the option
        ("1.14.0", {}, "tpu7x-4x4x4", (1, 4, ())),
        ("1.15.0", {"use-parallel-containers": ""}, "tpu7x-4x4x4", (2, 2, ())),
        ("2.0", {}, "tpu7x-4x4x4", (1, 4, ())),
        ("", {}, "tpu7x-4x4x4", (1, 4, ())),
        ("367c838", {}, "tpu7x-4x4x4", (1, 4, ())),
        ("1.11.0", {}, "v6e-1", (1, 1, ())),
    ],
)
def test_the_shape_of_a_pod_goes_by_version_and_generation(
    version: str, options: dict[str, str], topology: str, shape: tuple[int, int, tuple[int, ...]]
) -> None:
    slice_ = jobset.slice_of(example(topology=topology))
    found = xpk_shape.shape_of(version, options, slice_)
    assert (found.containers, found.chips, found.ports) == shape


@pytest.mark.parametrize(("key", "value"), [("max-restarts", "many"), ("ttl-seconds-after-finished", "1h"), ("restart-on-exit-codes", "3;4")])  # fmt: skip
def test_an_option_that_is_no_number_is_refused(key: str, value: str) -> None:
    with pytest.raises(UserError, match=f"xpk.{key}=.* is no whole number"):
        rendering.render(example(xpk={key: value}), gke(), "pod", {})


def test_the_targets_priority_and_queue_count_before_those_of_the_recipe() -> None:
    manifest = jobset.maxtext(example(), gke(priority="mine", queue="q"), "n", "c")
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "mine"
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"

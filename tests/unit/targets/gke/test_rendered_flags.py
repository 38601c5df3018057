"""What rendered scripts request of the cloud against what a run requests: the same flags, for every way to pay, every shape and every key of a target."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.recipe import load
from podwright.recipe.kinds import Recipe
from podwright.shell import Shell
from podwright.targets.gke import capacity, rendering
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.settings.gke import GkeSettings
from tests.unit.recipe.maxtext.example import example
from tests.unit.targets.gke.entry import ENTRY, gke
from tests.unit.targets.gke.rendered import Scripts

VERSION = "1.34.1-gke.100"
SHAPES = ("v6e-4", "v6e-16", "2x v6e-16", "tpu7x-2x2x1", "tpu7x-4x4x4", "3x tpu7x-4x4x4", "v5p-16")
CAPACITIES = ("existing", "reserved", "spot", "on-demand", "flex-start")
OF_A_RUN = ("--async", "--format=json", "--metadata=", "--description=")
"""what only a run's own call has: nobody waits for its answer, and it names the run"""
OTHER_NAMES = ("--node-labels=podwright-run=", "--labels=podwright-run=", "--placement-policy=", "--node-labels=podwright-pool=", "--labels=podwright-pool=")  # fmt: skip

KEYS: dict[str, dict[str, Any]] = {
    "project": {"project": "other-project"},
    "cluster": {"cluster": "other-cluster"},
    "zones": {"zones": ["us-central1-c", "us-central1-b"]},
    "region": {"region": "us-central1-a", "zones": ["us-central1-a"]},
    "bucket": {"bucket": "gs://other/runs"},
    "image": {"image": "other:1"},
    "reservations": {"reservations": ["projects/p-1/reservations/r-2/reservationBlocks/b-1"], "provisioning": "reserved"},
    "provisioning": {"provisioning": "on-demand"},
    "patience": {"patience": "3h"},
    "zone_patience": {"zone_patience": "20m"},
    "max_life": {"max_life": "36h", "provisioning": "flex-start"},
    "price": {"price": 1.0},
    "preemptions_per_day": {"preemptions_per_day": 1.0},
    "machine_type": {"machine_type": "tpu7x-ultranet-4t", "topology": "tpu7x-4x4x4"},
    "gcloud": {"gcloud": ["--disk-size=200GB", "--service-account=me@p.example", "--tags=a, b $zone"]},
    "topology": {"topology": "v6e-64"},
    "namespace": {"namespace": "team"},
    "queue": {"queue": "mine"},
    "priority": {"priority": "high"},
    "python_image": {"python_image": "python:3.12-slim"},
    "recipes": {"recipes": "/somewhere"},
    "maxtext": {"maxtext": "v1"},
    "jax": {"jax": "0.9.2"},
    "libtpu": {"libtpu": "0.0.37"},
    "env": {"env": ["HF_TOKEN", "MORE"]},
}  # fmt: skip
"""another value of each key of a target, with what it needs"""


def of_slice(topology: str) -> dict[str, Any]:
    number, _, one = topology.rpartition("x ")
    return {"topology": one, "num_slices": int(number or 1)}


def compared(argv: list[str]) -> list[str]:
    """The call without the names of its run, and without what only a run's own calls have."""
    words = [word for word in argv if not word.startswith(OF_A_RUN)]
    renamed = [next((name for name in OTHER_NAMES if word.startswith(name)), "") for word in words]
    plain = [
        name.replace("podwright-run", "podwright-pool") + word[len(name) :].partition(",cloud.")[2] if name else word
        for word, name in zip(words, renamed, strict=True)
    ]
    verb = plain.index("create")
    return [*plain[1:verb], *sorted(word for word in plain[verb:] if word.startswith("--"))]


def rendered_calls(scripts: Scripts, networks: bool) -> list[list[str]]:
    facts = f"{VERSION}\t{'True' if networks else ''}\n"
    answers = {"gcloud container clusters describe*": facts, "gcloud compute resource-policies describe*": ("", 1)}
    code, output = scripts.run("node_pool.sh", answers=answers)
    assert code == 0, output
    return [argv for argv in scripts.calls("gcloud") if "create" in argv]


def calls_of_run(own: GkeSettings, topology: str, networks: bool) -> list[list[str]]:
    if own.capacity == "existing":  # whose runs create no pools: the script does
        own = own.model_copy(update={"provisioning": "reserved" if own.reservations else "on-demand"})
    provisioner = NodePoolProvisioner(Shell(), own.for_slice(topology))
    request = provisioner.describe_request(Path("/runs/r"), 1.0, 1, ())
    cluster = {"currentMasterVersion": VERSION} | ({"networkConfig": {"enableMultiNetworking": True}} if networks else {})  # fmt: skip
    return [list(argv) for argv in provisioner.creations(request, cluster)]


def require_equal(folder: Path, recipe: Recipe, topology: str, settings: dict[str, Any]) -> list[list[str]]:
    """The rendered calls, which are those of a run."""
    own, seen = gke(**settings), list[list[str]]()
    for networks in (False, True) if topology == "2x v6e-16" else (False,):
        seen = rendered_calls(Scripts(folder, recipe, **settings), networks)
        assert [compared(argv) for argv in seen] == [compared(argv) for argv in calls_of_run(own, topology, networks)]
    return seen


@pytest.mark.parametrize("topology", SHAPES)
@pytest.mark.parametrize("paid", CAPACITIES)
def test_rendered_pools_have_the_flags_of_those_of_a_run(tmp_path: Path, paid: str, topology: str) -> None:
    settings: dict[str, Any] = {"provisioning": paid, "topology": topology}
    settings |= {"reservations": ["r-1", "r-2"]} if paid == "reserved" else {}
    seen = require_equal(tmp_path, example(**of_slice(topology)), topology, settings)
    for argv in (argv for argv in seen if "node-pools" in argv):
        assert ("--spot" in argv, "--flex-start" in argv) == (paid == "spot", paid == "flex-start")
        assert ("--accelerator-network-profile=auto" in argv) == (topology == "2x v6e-16")


@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_a_target_changes_both_alike(tmp_path: Path, key: str) -> None:
    base: dict[str, Any] = {"provisioning": "spot", "topology": "v6e-16"}
    settings = {k: v for k, v in (base | KEYS[key]).items() if k != "provisioning" or "reservations" not in KEYS[key]}
    assert getattr(gke(**settings), key) != getattr(gke(**base), key)
    topology = settings["topology"]
    require_equal(tmp_path, example(**of_slice(topology)), topology, settings)


@pytest.mark.parametrize("paid", ["existing", "spot", "flex-start"])
def test_a_rendered_jobset_ends_when_that_of_a_run_does(tmp_path: Path, paid: str) -> None:
    def lives(manifest: str) -> list[int]:
        jobs = yaml.safe_load(manifest)["spec"]["replicatedJobs"]
        return [job["template"]["spec"].get("activeDeadlineSeconds", 0) for job in jobs]

    settings: dict[str, Any] = {"provisioning": paid, "topology": "v6e-16", "max_life": "36h"}
    recipe = example(**of_slice("v6e-16"))
    assert lives(Scripts(tmp_path, recipe, **settings).rendered.files["jobset.yaml"]) == [36 * 3600]
    ours = rendering.render(load.load("qwen3-1.7b-gsm8k-grpo", []), gke(**settings), "pod", {})
    assert lives(ours.files["jobset.yaml"]) == [36 * 3600]
    assert lives(Scripts(tmp_path, recipe, topology="v6e-16").rendered.files["jobset.yaml"]) == [0], "that of xpk"


def test_every_key_of_a_target_has_another_value_above() -> None:
    assert set(KEYS) == set(GkeSettings.model_fields) - {"kind"} and set(ENTRY) <= {*KEYS, "kind"}


@pytest.mark.parametrize("paid", CAPACITIES)
def test_recipes_of_other_kinds_too(tmp_path: Path, paid: str) -> None:
    settings: dict[str, Any] = {"provisioning": paid, "topology": "2x v6e-16"}
    settings |= {"reservations": ["r-1"]} if paid == "reserved" else {}
    require_equal(tmp_path, load.load("qwen3-1.7b-gsm8k-grpo", []), "2x v6e-16", settings)


@pytest.mark.parametrize("paid", CAPACITIES[1:])
@pytest.mark.parametrize(("changes", "words"), [({}, ["--priority=low"]), ({"priority": "high"}, ["--priority=high"]), ({"region": "us-central1-a", "zones": ["us-central1-a"]}, ["--priority=low", "--zone=us-central1-a"])])  # fmt: skip
def test_the_rendered_call_of_xpk_leaves_out_what_the_target_decides(
    tmp_path: Path, paid: str, changes: dict[str, Any], words: list[str]
) -> None:
    settings = {"provisioning": paid} | changes | ({"reservations": ["r-1"]} if paid == "reserved" else {})
    recipe = example(xpk={option: "" for option in capacity.OPTIONS} | {"priority": "low", "max-restarts": "0"}, num_slices=2, versions={"xpk": "1.8.0"})  # fmt: skip
    scripts = Scripts(tmp_path, recipe, **settings)
    assert scripts.run("submit_toy.sh", "xpk", WORKLOAD_NAME="r")[0] == 0
    (call,) = scripts.calls("xpk")
    assert {*words, "--num-slices=2", "--max-restarts=0"} <= set(call)
    assert not {f"--{option}" for option in capacity.OPTIONS} & set(call)
    assert "xpk==1.8.0" in scripts.rendered.files["submit_toy.sh"]


def test_a_target_without_node_pools_of_its_own_is_rendered_as_before(tmp_path: Path) -> None:
    (argv,) = [each for each in rendered_calls(Scripts(tmp_path, example(**of_slice("v6e-16")), topology="v6e-16"), False)]  # fmt: skip
    assert "--num-nodes=4" in argv and not {"--spot", "--flex-start"} & set(argv)


def test_what_a_rendered_folder_says_of_nodes_that_come_with_the_pods(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, provisioning="flex-start", max_life="12h")
    code, output = scripts.run("setup_training_env.sh", answers={"kubectl*get nodes*": ""})
    assert code == 0 and "note: 16 nodes with tpu7x 4x4x4 come when the pods of a run ask for them" in output, output
    answers = {"gcloud container node-pools describe*": ("ERROR: Not found", 1)}
    code, output = scripts.run("setup_training_env.sh", answers=answers)
    assert code == 1 and "missing: node pool pw-tpu7x-4x4x4-0; node_pool.sh creates it" in output
    assert "end 12 h after their start" in scripts.rendered.files["node_pool.sh"]

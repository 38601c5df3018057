"""Every command line by which node pools are requested: accepted by gcloud's own linter, with the flags that its machines need and no others."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from podwright.shell import Shell
from podwright.targets.gke import pool_access, pool_calls
from podwright.targets.gke.pool_replies import classifier
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.machines import Request
from podwright.targets.settings.gke import GkeSettings
from tests.unit.targets.gke.entry import gke

ZONE = "us-central1-ai1a"
CAPACITIES = ("reserved", "spot", "on-demand", "flex-start")
SLICES = ("tpu7x-4x4x8", "tpu7x-2x2x1", "v6e-16", "v6e-4", "v6e-1", "v5p-16", "v5e-8", "2x tpu7x-4x4x4", "2x v6e-16")
NEWER = "--accelerator-network-profile=auto"
"""which gcloud 528 does not know, and xpk 1.16 sends with gcloud's beta track"""


def settings(capacity: str = "spot", topology: str = "v6e-16", **changes: object) -> GkeSettings:
    reserved = {"reservations": ["r-1"]} if capacity == "reserved" else {}
    return gke(provisioning=capacity, topology=topology, **reserved, **changes)


def request(own: GkeSettings) -> Request:
    return NodePoolProvisioner(Shell(), own).describe_request(Path("/runs/my run,~1"), 1.0, 1, ())


def creations(own: GkeSettings, networks: bool = True) -> list[tuple[str, ...]]:
    cluster = {"currentMasterVersion": "1.33.5-gke.1080000", "networkConfig": {"enableMultiNetworking": networks}}
    return NodePoolProvisioner(Shell(), own).creations(request(own), cluster)


def pool_of(own: GkeSettings) -> tuple[str, ...]:
    return creations(own)[-1]


def every_call() -> list[tuple[str, ...]]:
    own = settings("reserved", "tpu7x-4x4x8")
    asked = [
        pool_calls.describe_cluster(own),
        pool_calls.list_pools(own),
        pool_calls.list_operations(own),
        pool_calls.delete_pool(own, "pw-r-1-0"),
        pool_calls.list_policies(own),
        pool_calls.delete_policy(own, "pw-r-1"),
        pool_calls.describe_reservation(own, "projects/other/reservations/r-1", ZONE),
        pool_calls.describe_reservation(own, "r-1/reservationBlocks/b-1", ZONE),
        pool_calls.describe_machine_type(own, ZONE),
        pool_of(settings(gcloud=["--disk-size=200GB", "--host-maintenance-interval=PERIODIC", "--tags=a,b"])),
    ]
    return asked + [call for kind in CAPACITIES for slice_ in SLICES for call in creations(settings(kind, slice_))]


@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed")
def test_every_command_passes_gclouds_own_linter(tmp_path: Path) -> None:
    commands = sorted({shlex.join(word for word in argv if word != NEWER) for argv in every_call()})
    (tmp_path / "commands.json").write_text(json.dumps([{"command_string": command} for command in commands]))
    argv = ["gcloud", "meta", "lint-gcloud-commands", f"--commands-file={tmp_path}/commands.json"]
    rows = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert len(rows) == len(commands)
    assert [(row["command_string"], row.get("error_message")) for row in rows if not row["success"]] == []


@pytest.mark.parametrize("slice_", SLICES)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_every_pool_has_the_common_flags_and_nothing_asks(capacity: str, slice_: str) -> None:
    own = settings(capacity, slice_)
    asked = request(own)
    labels = ",".join(f"{key}={value}" for key, value in asked.labels.items())
    for argv in creations(own):
        assert "--quiet" in argv and f"--project={own.project}" in argv
        if "node-pools" not in argv:
            continue
        wanted = {
            "--cluster=my-cluster",
            "--location=us-central1",
            f"--node-locations={ZONE}",
            f"--machine-type={own.machine_type}",
            "--node-version=1.33.5-gke.1080000",
            "--scopes=storage-full,gke-default,https://www.googleapis.com/auth/cloud-platform",
            "--enable-gvnic",
            "--max-pods-per-node=15",
            f"--labels={labels}",
            "--async",
        }
        dra = ",cloud.google.com/gke-networking-dra-driver=true" if slice_ == "2x v6e-16" else ""
        assert wanted | {f"--node-labels={labels}{dra}"} <= set(argv)
        assert "--metadata=podwright-run-dir=/runs/my%20run%2C%7E1" in argv
        assert not any(word.startswith(("--region", "--enable-queued-provisioning", "--tags")) for word in argv)
    assert {"podwright-run", "podwright-by", "podwright-expires"} == set(asked.labels)


def flags(argv: tuple[str, ...], *names: str) -> list[str]:
    return [word for word in argv if word.startswith(tuple(f"--{name}" for name in names))]


@pytest.mark.parametrize(
    ("capacity", "wanted"),
    [
        ("reserved", ["--reservation-affinity=specific", "--reservation=r-1", "--num-nodes=4"]),
        ("spot", ["--spot", "--num-nodes=4"]),
        ("on-demand", ["--num-nodes=4"]),
        (
            "flex-start",
            [
                "--flex-start",
                "--num-nodes=0",
                "--enable-autoscaling",
                "--max-nodes=4",
                "--location-policy=ANY",
                "--reservation-affinity=none",
                "--no-enable-autorepair",
                "--max-run-duration=86400s",
            ],
        ),
    ],
)
def test_capacity_is_requested_as_the_settings_say(capacity: str, wanted: list[str]) -> None:
    names = (
        "reservation",
        "spot",
        "flex",
        "num-nodes",
        "enable-auto",
        "no-enable",
        "max-nodes",
        "location-policy",
        "max-run",
    )
    assert flags(pool_of(settings(capacity)), *names) == wanted


@pytest.mark.parametrize(
    ("slice_", "wanted"),
    [
        ("tpu7x-4x4x8", ["--placement-policy={name}"]),
        ("v6e-16", ["--placement-type=COMPACT", "--tpu-topology=4x4"]),
        ("v6e-8", ["--placement-type=COMPACT", "--tpu-topology=2x4"]),
        ("v5p-16", ["--placement-type=COMPACT", "--tpu-topology=2x2x2"]),
        ("tpu7x-2x2x1", []),
        ("tpu7x-1x1x1", []),
        ("v6e-4", []),
        ("v5e-1", []),
    ],
)
def test_placement_goes_by_generation_and_number_of_hosts(slice_: str, wanted: list[str]) -> None:
    own = settings("on-demand", slice_)
    name = request(own).name
    assert flags(pool_of(own), "placement", "tpu-topology") == [each.format(name=name) for each in wanted]
    policies = [argv for argv in creations(own) if "resource-policies" in argv]
    assert len(policies) == (slice_ == "tpu7x-4x4x8") == bool(request(own).details["policy"])
    for argv in policies:
        assert {"--type=HIGH_THROUGHPUT", "--accelerator-topology=4x4x8", "--region=us-central1"} <= set(argv)
        assert f"--description=podwright-run={request(own).labels['podwright-run']} " in " ".join(argv)


def test_there_is_a_pool_for_each_slice_with_names_that_gke_takes() -> None:
    own = settings("on-demand", "3x tpu7x-4x4x4")
    long = NodePoolProvisioner(Shell(), own).describe_request(Path("/runs/" + "A_very-long.name" * 4), 1.0, 999, ())
    assert long.details["pools"] == [f"{long.name}-{k}" for k in range(3)]
    assert max(map(len, long.details["pools"])) <= 38 and long.num_chips == 192
    assert sum("workload-policy" in argv for argv in creations(own)) == 1, "one policy serves all slices"


def test_a_reservation_is_named_as_the_target_names_it() -> None:
    own = gke(topology="v6e-16", reservations=["projects/other/reservations/r-1", "r-2/reservationBlocks/b-1"])
    assert own.places == (f"{ZONE}/projects/other/reservations/r-1", f"{ZONE}/r-2/reservationBlocks/b-1")
    asked = NodePoolProvisioner(Shell(), own).describe_request(Path("/runs/r"), 1.0, 2, [own.places[0]])
    assert asked.zone == own.places[1] and "--reservation=r-2/reservationBlocks/b-1" in asked.argv
    assert asked.details["reservation"] == "r-2/reservationBlocks/b-1"


def test_a_machine_type_is_used_as_it_is_written() -> None:
    assert "--machine-type=tpu7x-ultranet-4t" in pool_of(
        settings("spot", "tpu7x-4x4x8", machine_type="tpu7x-ultranet-4t")
    )


def test_a_dry_run_does_not_ask_for_the_version_of_the_cluster() -> None:
    assert "--node-version=MASTER_VERSION" in request(settings()).argv


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_hosts_of_several_slices_of_v6e_get_the_networks_that_the_cluster_has(capacity: str) -> None:
    own = settings(capacity, "2x v6e-16")
    for argv in (pool_of(own), request(own).argv):
        assert argv[:4] == ("gcloud", "beta", "container", "node-pools") and NEWER in argv
        assert any("cloud.google.com/gke-networking-dra-driver=true" in word for word in flags(argv, "node-labels"))
    without = creations(own, networks=False)[-1]
    assert without[:3] == ("gcloud", "container", "node-pools") and "dra-driver" not in " ".join(without)
    others = [settings(capacity, slice_) for slice_ in ("v6e-16", "2x tpu7x-4x4x4")]
    assert not [own for own in others if NEWER in pool_of(own)]


def test_further_options_of_the_target_are_sent_by_the_beta_track() -> None:
    given = ["--service-account=a@b.example", "--disk-size=200GB", "--no-enable-autoupgrade", "--tags=a, b"]
    argv = pool_of(settings(gcloud=given))
    assert argv[1] == "beta" and [word for word in argv if word in given] == given


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("slice_", SLICES)
def test_no_option_of_the_target_replaces_one_that_a_pool_needs(capacity: str, slice_: str) -> None:
    """Of two that have one name gcloud takes the last one, without a word."""
    sent = {word for word in pool_of(settings(capacity, slice_)) if word.startswith("--")}
    for option in sorted(
        sent | {"--zone=z", "--region=r", "--enable-autorepair", "--no-enable-gvnic", "--min-nodes=1"}
    ):
        with pytest.raises(ValidationError, match=r"(decides; set that|is set for each node pool)"):
            settings(capacity, slice_, gcloud=[option])


@pytest.mark.parametrize("word", ["disk-size=200", "-m", "--disk-size 200", "--Disk=1", "--a=\n", "", "--"])
def test_what_is_no_option_is_refused(word: str) -> None:
    with pytest.raises(ValidationError, match=r"is no option; write it like \[--disk-size=200GB\]"):
        settings(gcloud=[word])


@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed")
@pytest.mark.parametrize(
    ("changes", "level", "text"),
    [
        ({"topology": "v6e-16"}, "", ""),
        ({"gcloud": ["--disk-size=200GB"]}, "info", "knows all options of the node pools"),
        ({"gcloud": ["--disk-sise=200GB"]}, "error", "unrecognized arguments: --disk-sise=200GB (did you mean '--disk-size'?)"),
        ({"gcloud": ["--disk-type=tape"]}, "error", "argument --disk-type: Invalid choice: 'tape'"),
    ],
)  # fmt: skip
def test_a_check_asks_the_gcloud_of_this_machine(changes: dict[str, object], level: str, text: str) -> None:
    own = settings(**{"capacity": "spot"} | changes)  # type: ignore[arg-type]
    remarks = pool_access.networks(own, Gcloud(Shell(), classifier(own)))
    assert [remark.level for remark in remarks] == ([level] if level else [])
    assert all(text in remark.what for remark in remarks)

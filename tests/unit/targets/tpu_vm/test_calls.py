"""Every command line of gcloud that is rendered: accepted by gcloud's own linter, with no secret in it, and pure."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from podwright.targets.google import access
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import calls
from podwright.targets.tpu_vm.calls import Place

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHq podwright"
LABELS = {"podwright-run": "0a1b2c3d", "podwright-expires": "1790000000"}


def settings(**given: object) -> TpuVmSettings:
    base = {"kind": "tpu-vm", "project": "my-project", "zones": ["us-east5-b"], "accelerator_type": "v6e-16"}
    return TpuVmSettings.model_validate(base | given)


def creation(**given: object) -> tuple[str, ...]:
    own = settings(**given)
    return calls.create(Place("pw-r-1", own.project, own.zones[0], own.queued), own, LABELS, "podwright", KEY)


def every_call() -> list[tuple[str, ...]]:
    queued, node = Place("pw-r-1", "my-project", "us-east5-b", True), Place("pw-r-1", "my-project", "us-east5-b", False)
    kinds = ("spot", "on-demand", "reserved", "flex-start")
    network = {
        "network": "net",
        "subnetwork": "sub",
        "internal_ips": True,
        "service_account": "a@p.iam.gserviceaccount.com",
    }
    return [
        *(creation(provisioning=kind) for kind in kinds),
        *(creation(provisioning=kind, queued=False) for kind in kinds[:3]),
        creation(labels=["team=nlp"], **network),
        *(
            call(place)
            for place in (queued, node)
            for call in (calls.describe_node, calls.delete, calls.guest_attributes)
        ),
        calls.describe_queued(queued),
        calls.list_queued("my-project"),
        calls.list_nodes("my-project"),
        access.ACCOUNTS,
        calls.configuration(),
        calls.locations("my-project"),
        calls.accelerator_types("my-project", "us-east5-b"),
        calls.runtime_versions("my-project", "us-east5-b"),
        access.describe_bucket("gs://my-bucket"),
        calls.tunnel("t1v-n-1234abcd-w-0", "my-project", "us-east5-b"),
    ]


@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed")
def test_every_command_passes_gclouds_own_linter(tmp_path: Path) -> None:
    commands = sorted({shlex.join(argv) for argv in every_call()})
    (tmp_path / "commands.json").write_text(json.dumps([{"command_string": command} for command in commands]))
    argv = ["gcloud", "meta", "lint-gcloud-commands", f"--commands-file={tmp_path}/commands.json"]
    rows = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert len(rows) == len(commands)
    assert [(row["command_string"], row.get("error_message")) for row in rows if not row["success"]] == []


@pytest.mark.parametrize(
    ("given", "flags", "never"),
    [
        ({}, ["--spot", "--valid-until-duration=21600s"], "alpha"),
        ({"zones": ["us-east5-b", "us-east1-d"]}, ["--valid-until-duration=1800s"], "alpha"),
        ({"provisioning": "on-demand"}, [], "--spot"),
        ({"provisioning": "reserved"}, ["--reserved"], "--spot"),
        (
            {"provisioning": "flex-start", "max_life": "2h"},
            ["alpha", "--provisioning-model=flex-start", "--max-run-duration=7200s"],
            "--spot",
        ),
        ({"queued": False}, ["tpu-vm", "--version=v2-alpha-tpuv6e", "--spot"], "--valid-until-duration=21600s"),
    ],
)
def test_capacity_is_requested_as_the_settings_say(given: dict[str, object], flags: list[str], never: str) -> None:
    argv = creation(**given)
    assert set(flags) <= set(argv) and never not in argv
    assert "--quiet" in argv, "nothing asks"
    assert ("--async" in argv) is given.get("queued", True), (
        "of a node only an operation that is waited for says why there is none"
    )


def test_the_creation_carries_the_key_the_labels_and_what_the_timer_needs() -> None:
    argv = creation(labels=["team=nlp"], max_life="90m")
    assert "--labels=^~^team=nlp~podwright-run=0a1b2c3d~podwright-expires=1790000000" in argv
    resource = "projects/my-project/locations/us-east5-b/queuedResources/pw-r-1?force=true"
    assert f"--metadata=^~^ssh-keys=podwright:{KEY}~podwright-life-s=5400~podwright-resource={resource}" in argv
    script = next(word for word in argv if word.startswith("--metadata-from-file=startup-script="))
    assert Path(script.split("=", 2)[2]).read_text().startswith("#!/bin/bash")
    assert creation(labels=["team=nlp"], max_life="90m") == argv


def test_a_queued_resource_is_deleted_with_its_node_and_a_node_alone() -> None:
    assert "--force" in calls.delete(Place("q", "p", "z", True))
    assert "--force" not in calls.delete(Place("q", "p", "z", False))

"""`podwright target check` and `target add` of Cloud TPU VMs, by the product's own calls of the simulated gcloud; nothing is created."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from lab import machine
from lab.gcloud import store
from lab.gcloud.control import Gcloud as Control
from podwright.cli.app import main
from podwright.shell import Shell
from podwright.targets.base import Remark
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.machines import Allocation, AllocationState, ready, refused, waiting
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import access, replies

A, B = "us-east5-b", "us-east1-d"
SETTINGS: dict[str, Any] = {
    "kind": "tpu-vm",
    "project": "my-project",
    "zones": [A, B],
    "accelerator_type": "v6e-16",
}


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    """A simulated cloud without machines: none is ever created."""
    store.prepare(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    shim = folder / "gcloud"
    shim.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(machine.REPOSITORY)!r})\n"
        f"from pathlib import Path\nfrom lab.gcloud.command import main\nsys.exit(main(Path({str(tmp_path)!r}), sys.argv[1:]))\n"
    )
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    control = Control(SimpleNamespace(root=tmp_path, number=0))  # type: ignore[arg-type]
    yield control
    assert control.resources() == []
    verbs = {word for row in control.calls() for word in row["argv"] if not word.startswith("-")}
    assert not verbs & {"create", "delete", "update"}, "a check creates and deletes nothing"


def checked(**keys: object) -> list[Remark]:
    own = TpuVmSettings.model_validate(SETTINGS | keys)
    return access.check(own, Gcloud(Shell(), replies.of_project(own.project)))


def of_level(remarks: list[Remark], level: str) -> list[str]:
    return [f"{r.what}; {r.fix}" for r in remarks if r.level == level]


def test_a_sound_target_has_its_login_zones_rights_and_bucket_named(cloud: Control) -> None:
    cloud.set(buckets={"my-bucket": {}})
    remarks = checked(storage="gs://my-bucket/runs")
    assert {r.level for r in remarks} == {"info"}
    assert [r.what for r in remarks] == [
        "gcloud is logged in as lab@example.com",
        f"v6e-16 with image v2-alpha-tpuv6e is offered in {A}, {B}; offered is not free",
        "lab@example.com may list queued resources of my-project",
        "lab@example.com may list TPU VMs of my-project",
        "bucket gs://my-bucket is in location us",
    ]


@pytest.mark.parametrize(
    ("knobs", "what", "fix"),
    [
        ({"account": ""}, "gcloud has no login", "type gcloud auth login"),
        ({"login_expired": True}, "the login of gcloud has expired", "type gcloud auth login"),
        ({"api_enabled": False}, "ApiOff: the Cloud TPU API is off", "type gcloud services enable tpu.google"),
        ({"denied": ["tpu.queuedResources.list"]}, "the list of queued resources", "ask for the role TPU Admin"),
        ({"denied": ["tpu.nodes.list"]}, "the list of TPU VMs of my-project: NoPermission", "ask for the role TPU Ad"),
        ({"denied": ["tpu.acceleratorTypes.list"]}, f"what zone {A} offers: NoPermission", "ask for the role TPU Adm"),
    ],
)
def test_what_is_missing_is_one_error_with_what_to_type(
    cloud: Control, knobs: dict[str, Any], what: str, fix: str
) -> None:
    cloud.set(**knobs)
    errors = of_level(checked(), "error")
    assert errors and what in errors[0] and fix in errors[0]
    if "denied" not in knobs:
        assert len(errors) == 1, "what all further calls would repeat is said once"


def test_a_zone_without_the_type_or_the_image_is_an_error_only_where_no_other_has_them(cloud: Control) -> None:
    warned = checked(zones=[A, "us-west4-a", "us-east9-z"])
    assert of_level(warned, "error") == []
    no_type, no_zone = of_level(warned, "warning")
    assert "zone us-west4-a offers no slices of type v6e-16; leave us-west4-a out of zones" in no_type
    assert "zone us-east9-z has no Cloud TPUs" in no_zone
    assert any(f"is offered in {A};" in text for text in of_level(warned, "info"))
    (alone,) = of_level(checked(zones=["us-west4-a"]), "error")
    assert "gcloud compute tpus tpu-vm accelerator-types list --project=my-project --zone=us-west4-a" in alone
    (image,) = of_level(checked(zones=[A], runtime_version="my-image"), "error")
    assert "offers no image my-image" in image


def test_buckets_are_described_by_gclouds_login(cloud: Control) -> None:
    (absent,) = of_level(checked(storage="gs://nowhere/runs"), "error")
    assert absent.startswith("there is no bucket gs://nowhere; type gcloud storage buckets create")
    far = {"location": "EUROPE-WEST4", "location_type": "region"}
    cloud.set(buckets={"far": far, "near": far | {"location": "US-EAST5"}})
    (moved,) = of_level(checked(storage="gs://far"), "warning")
    assert "is in location europe-west4, and the zones of the target are in us-east1, us-east5" in moved
    assert of_level(checked(storage="gs://near"), "warning") == []
    cloud.set(denied=["storage.buckets.get"])
    (denied,) = of_level(checked(storage="gs://near"), "warning")
    assert "may not describe gs://near (storage.buckets.get)" in denied


def test_a_reply_that_says_nothing_certain_is_inconclusive(cloud: Control) -> None:
    cloud.fault("queued-resources list", status=503, calls=None)
    remarks = checked()
    assert of_level(remarks, "error") == []
    (queue,) = of_level(remarks, "inconclusive")
    assert "CloudBusy" in queue
    cloud.fault("locations list", kind="cut", calls=None)
    (zones,) = of_level(checked(), "inconclusive")
    assert zones.startswith("Cloud TPU of my-project: Unclear")


@pytest.mark.parametrize(
    ("keys", "enforced", "only_the_timer"),
    [
        ({}, ["--valid-until-duration"], True),
        ({"queued": False}, [], True),
        ({"provisioning": "on-demand"}, ["--valid-until-duration"], True),
        ({"provisioning": "flex-start", "max_life": "2h"}, ["--valid-until-duration", "--max-run-duration"], False),
    ],
)
def test_it_says_which_end_the_cloud_enforces_and_that_deletion_was_not_checked(
    keys: dict[str, object], enforced: list[str], only_the_timer: bool
) -> None:
    remarks = access.expiry(TpuVmSettings.model_validate(SETTINGS | keys), "my-v6e")
    infos = " ".join(of_level(remarks, "info"))
    assert [flag for flag in ("--valid-until-duration", "--max-run-duration") if flag in infos] == enforced
    assert ("the cloud enforces no end of a slice" in infos) == only_the_timer
    (unchecked,) = of_level(remarks, "inconclusive")
    assert "delete TPUs" in unchecked and "podwright clean my-v6e" in unchecked


@pytest.mark.parametrize(
    ("allocation", "level"),
    [
        (ready(()), "info"),
        (refused("", "OtherImage: node n has the image x"), "error"),
        (waiting("Creating: the machines are being started"), "inconclusive"),
        (Allocation(AllocationState.UNKNOWN, "NoNetwork: this machine does not reach the cloud"), "inconclusive"),
    ],
)
def test_a_slice_that_exists_is_judged_by_what_the_provisioner_says(allocation: Allocation, level: str) -> None:
    own = TpuVmSettings.model_validate(SETTINGS | {"node": "n"})
    assert access.node(own, allocation).level == level
    assert [r.level for r in access.expiry(own, "t")] == ["info"], "nothing deletes it, and no right is needed"


def test_target_check_prints_all_of_it_and_is_never_ok(
    cloud: Control, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "targets.yaml").write_text(json.dumps({"my-v6e": SETTINGS}))
    assert main(["target", "check", "my-v6e", "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "inconclusive"
    levels = [f["level"] for f in document["findings"] if f["check"] == "access"]
    assert levels.count("inconclusive") == 1 and "error" not in levels
    cloud.set(account="")
    assert main(["target", "check", "my-v6e"]) == 3
    assert "error: gcloud has no login; type gcloud auth login" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keys", "says"),
    [({}, "they exist only while a run has them; a run checks them"), ({"node": "n"}, "only a run logs in to n")],
)
def test_a_doctor_agrees_with_the_check_and_says_that_no_host_was_looked_at(
    cloud: Control, tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: dict[str, str], says: str
) -> None:
    (tmp_path / "targets.yaml").write_text(json.dumps({"my-v6e": SETTINGS | keys}))
    codes = [main([*verb, "my-v6e"]) for verb in (["target", "check"], ["doctor", "--on"])]
    checked_, doctored = capsys.readouterr().out.split("\nmy-v6e: ")[:2]
    assert codes == ([3, 3] if keys else [4, 4])
    for text in (checked_, doctored):
        assert "inconclusive: the hosts of my-v6e were not looked at (packages, disk, files): " + says in text
        assert "info: gcloud is logged in as lab@example.com" in text
    cloud.set(account="")
    assert main(["doctor", "--on", "my-v6e"]) == main(["target", "check", "my-v6e"]) == 3


def test_without_gcloud_the_check_says_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    (tmp_path / "targets.yaml").write_text(json.dumps({"my-v6e": SETTINGS}))
    assert main(["target", "check", "my-v6e"]) == 3
    assert "command gcloud not found on this machine; install the Google Cloud CLI" in capsys.readouterr().out


ADD = ["target", "add", "my-v6e", "kind=tpu-vm", "accelerator_type=v6e-16"]


def test_missing_keys_of_a_new_target_are_taken_from_gclouds_configuration_and_named(
    cloud: Control, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.set(properties={"core/project": "my-project", "compute/zone": B})
    assert main(ADD) == 0
    taken = f"taken from the configuration of gcloud and kubectl: project=my-project zones=[{B}]\n"
    assert taken in capsys.readouterr().out
    assert yaml.safe_load((tmp_path / "targets.yaml").read_text())["my-v6e"] == {
        "kind": "tpu-vm",
        "accelerator_type": "v6e-16",
        "project": "my-project",
        "zones": [B],
    }


def test_what_is_typed_comes_before_what_gcloud_has(cloud: Control, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.set(properties={"core/project": "my-project", "compute/zone": B})
    assert main([*ADD, f"zones=[{A}]", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["proposed"], written["zones"], written["project"]) == (["project=my-project"], [A], "my-project")


def test_nothing_is_asked_where_nothing_is_missing(cloud: Control) -> None:
    assert main([*ADD, "project=other-project", f"zones=[{A}]"]) == 0
    assert cloud.calls() == []


def test_what_gcloud_does_not_have_is_named_as_missing(cloud: Control, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.set(properties={"core/project": "my-project"})
    assert main(ADD) == 2
    assert "zones is missing; add zones=" in capsys.readouterr().err

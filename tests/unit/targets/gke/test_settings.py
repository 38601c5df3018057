"""Values of a target of kind gke: what is refused, what follows from the others, and what its verbs say."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright import targets
from podwright.cli.app import main
from podwright.cli.exit_codes import ExitCode
from podwright.errors import UserError
from podwright.targets import entries, kinds
from podwright.targets.settings.gke import MACHINE_TYPE
from tests.unit.targets.gke.entry import gke

GIVEN = {"kind": "gke", "project": "my-project", "cluster": "c", "zones": "[us-central1-ai1a]"}


@pytest.fixture(autouse=True)
def no_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.chdir(tmp_path)


def add(**changes: str) -> Any:
    return entries.add("pod", [f"{key}={value}" for key, value in (GIVEN | changes).items()])


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"project": "$(id)"}, "is no id of a project"),
        ({"cluster": "My Cluster"}, "is no such name; write small letters"),
        ({"cluster": "c" * 41}, "at most 40"),
        ({"recipes": "/nonexistent"}, "recipes=/nonexistent is no directory"),
        ({"cluster": "c;id"}, "is no such name; write small letters"),
        ({"cluster": ""}, "cluster= must have at least 1 character"),
        ({"zones": "[us-central1]"}, "which is no zone; write it like"),
        ({"zones": "[us-central1-a, us-east5-b]"}, "zones: us-east5-b is not in us-central1, where the cluster is"),
        ({"region": "us-east5"}, "zones: us-central1-ai1a is not in us-east5, where the cluster is"),
        ({"region": "central"}, "is no region and no zone; write it like us-central1"),
        ({"bucket": "/shared/runs"}, "is no bucket; write it like gs://my-bucket/runs"),
        ({"bucket": "gs://b/$(id)"}, "is no bucket"),
        ({"bucket": "gs://bucket/a b"}, "is no bucket"),
        ({"bucket": "gs://bucket/a\nb"}, "is no bucket"),
        ({"image": "maxtext:v1'; id"}, "is no image; write it like"),
        ({"python_image": ""}, "is no image"),
        ({"python_image": "python:3.9"}, "python_image=python:3.9 has Python 3.9, and packages of pods are built for Python 3.12; write python_image=python:3.12-slim"),
        ({"python_image": "docker.io/library/python:3.13-slim"}, "has Python 3.13, and packages of pods"),
        ({"python_image": "python:3"}, "has Python 3, and packages of pods"),
        ({"python_image": "python:3.1@sha256:" + "a" * 64}, "has Python 3.1, and packages of pods"),
        ({"reservations": "[a, b, a]"}, "has a twice; leave one of them out"),
        ({"reservations": "['']"}, "has '', which is no reservation"),
        ({"reservations": "[My_Reservation]"}, "is no reservation; write it like [NAME, OTHER]"),
        ({"reservations": "[projects/p-1/zones/us-central1-a/reservations/r]"}, "has r in zone us-central1-a, and zones has us-central1-ai1a alone; add us-central1-a to zones, or leave r out"),
        ({"machine_type": ""}, "is no machine type with TPUs"),
        ({"machine_type": "banana"}, "machine_type=banana is no machine type with TPUs; known are tpu7x-standard-1t"),
        ({"machine_type": "n2-standard-8"}, "is no machine type with TPUs"),
        ({"machine_type": "ct6e-standard-4"}, "is no machine type with TPUs"),
        ({"machine_type": "tpu7x-standard-8t"}, "is no machine type with TPUs"),
        ({"topology": "v6e-16", "machine_type": "tpu7x-standard-4t"}, "machine_type=tpu7x-standard-4t is not for v6e-16, whose hosts have 4 chips; set machine_type=ct6e-standard-4t"),
        ({"topology": "v6e-8", "machine_type": "ct6e-standard-8t"}, "set machine_type=ct6e-standard-4t"),
        ({"topology": "v5e-1", "machine_type": "ct5lp-hightpu-4t"}, "whose hosts have 1 chip; set machine_type=ct5lp-hightpu-1t"),
        ({"queue": "Q"}, "is no such name"),
        ({"namespace": "-n"}, "is no such name"),
        ({"priority": "very high"}, "is no such name"),
        ({"topology": "tpu7x-4x4x7"}, "no tpu7x slice is sold with topology 4x4x7"),
        ({"topology": "8xH100-80GB"}, "topology=8xH100-80GB is no TPU slice of GKE; type topology=tpu7x-4x4x8"),
        ({"topology": "0x v6e-16"}, "the count is from 1 to"),
        ({"provisioning": "reserved"}, "provisioning=reserved: reservations are missing; write reservations=[NAME]"),
        ({"provisioning": "spot", "reservations": "[r]"}, "provisioning=spot uses no reservations; leave one of the two out"),
        ({"provisioning": "rented"}, "provisioning=rented"),
        ({"provisioning": "flex-start", "max_life": "8d"}, "max_life=8d: flex-start allows 7 days"),
        ({"patience": "5m"}, "patience=5m is not from 10m to 365d"),
        ({"patience": ""}, "patience= is no duration; write it like 6h"),
        ({"zone_patience": ""}, "zone_patience= is no duration"),
        ({"zone_patience": "99999999999999d"}, "is not from 10m to 365d"),
        ({"patience": "2h", "zone_patience": "3h"}, "zone_patience=3h is longer than patience=2h, after which a run ends; write 2h or less"),
        ({"max_life": "100000d"}, "max_life=100000d is not from 10m to 365d"),
        ({"price": "inf"}, "price=inf must be a finite number"),
        ({"preemptions_per_day": "nan"}, "preemptions_per_day=nan must be a finite number"),
        ({"bucket": "gs://my-bucket/../runs"}, "bucket=gs://my-bucket/../runs is no bucket"),
        ({"cluster": "[a, b]"}, "cluster=[a, b] must be text"),
        ({"zones": "[]"}, "zones=[] must have at least 1"),
        ({"provisioning": "[spot]"}, "provisioning=[spot] must be "),
        ({"topology": "tpu7x"}, "tpu7x alone names no size"),
        ({"topology": "v4-8"}, "topology=v4-8 is refused: "),
        ({"max_life": "long"}, "max_life=long is no duration; write it like 6h"),
        ({"price": "-1"}, "price=-1"),
        ({"jax": "0.9.2 --index"}, "is no version; write it without blanks and quotes"),
        ({"libtpu": "-x"}, "is no version"),
        ({"maxtext": "`id`"}, "is no version"),
        ({"storage": "gs://bucket"}, "has no key 'storage'"),
        ({"topology": "99999x v6e-16"}, "needs 399,996 nodes, and a cluster has at most 65,000"),
        ({"topology": "16251x v6e-16"}, "needs 65,004 nodes"),
        ({"submit": "xpk"}, "has no key 'submit'"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_in_one_line(given: dict[str, str], refusal: str) -> None:
    with pytest.raises(UserError) as refused:
        add(**given)
    assert refusal in f"{refused.value.what}; {refused.value.fix}"


@pytest.mark.parametrize(("typed", "meant"), [("zone=us-central1-a", "zones"), ("reservation=r", "reservations")])
def test_a_misspelt_key_is_named_before_a_missing_one(typed: str, meant: str) -> None:
    needed = [f"{key}={value}" for key, value in GIVEN.items() if key != "zones"]
    with pytest.raises(UserError, match=f"has no key '{typed.partition('=')[0]}'; did you mean {meant}?"):
        entries.add("pod", [*needed, typed])


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({}, "location", "us-central1"),
        ({"region": "us-central1-c"}, "location", "us-central1-c"),
        ({"bucket": "gs://bucket/runs/"}, "bucket", "gs://bucket/runs"),
        ({}, "machine_type", MACHINE_TYPE),
        ({"machine_type": "tpu7x-ultranet-4t"}, "machine_type", "tpu7x-ultranet-4t"),
        ({"machine_type": "tpu7x-ultranet-4t", "topology": "tpu7x-4x4x8"}, "machine_type", "tpu7x-ultranet-4t"),
        ({"machine_type": "ct5p-hightpu-2t"}, "machine_type", "ct5p-hightpu-2t"),
        ({"topology": "v6e-16"}, "machine_type", "ct6e-standard-4t"),
        ({"topology": "tpu7x-1x1x1"}, "machine_type", "tpu7x-standard-1t"),
        ({"topology": "v5p-16"}, "machine_type", "ct5p-hightpu-4t"),
        ({}, "queue", "multislice-queue"),
        ({"image": "localhost:5000/a/b@sha256:" + "0" * 64}, "image", "localhost:5000/a/b@sha256:" + "0" * 64),
        (
            {"reservations": "[projects/other/reservations/r-1, r/reservationBlocks/r-block-0001]"},
            "reservations",
            ("projects/other/reservations/r-1", "r/reservationBlocks/r-block-0001"),
        ),
        (
            {"reservations": "[projects/p-1/zones/us-central1-ai1a/reservations/r/reservationBlocks/b-1]"},
            "reservation_names",
            ("projects/p-1/reservations/r/reservationBlocks/b-1",),
        ),
        ({"jax": "0.9.2.dev20260306", "libtpu": "0.0.35.dev20260121+nightly"}, "libtpu", "0.0.35.dev20260121+nightly"),
    ],
)
def test_a_value_is_taken_or_follows_from_the_others(given: dict[str, str], key: str, value: object) -> None:
    assert getattr(add(**given), key) == value


def test_the_devices_are_those_of_the_topology() -> None:
    assert gke().devices() is None
    devices = gke(topology="tpu7x-4x4x8").devices()
    assert devices and (devices.num_chips, devices.num_hosts) == (128, 32)


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ({}, ()),
        ({"provisioning": "existing", "reservations": ["r"]}, ()),
        ({"reservations": ["r", "s"]}, ("us-central1-a/r", "us-central1-b/r", "us-central1-a/s", "us-central1-b/s")),
        (
            {"reservations": ["projects/p/zones/us-central1-b/reservations/r", "s"]},
            ("us-central1-b/projects/p/reservations/r", "us-central1-a/s", "us-central1-b/s"),
        ),
        (
            {"reservations": [f"projects/p/zones/us-central1-{zone}/reservations/r" for zone in "ba"]},
            ("us-central1-b/projects/p/reservations/r", "us-central1-a/projects/p/reservations/r"),
        ),
        ({"provisioning": "spot"}, ("us-central1-a", "us-central1-b")),
    ],
)
def test_node_pools_are_requested_in_zones_of_each_reservation(given: dict[str, Any], places: tuple[str, ...]) -> None:
    own = gke(zones=["us-central1-a", "us-central1-b"], topology="v6e-16", **given)
    assert own.places == own.traits().zones == places
    assert bool(own.traits().provisioning) == bool(places)


def test_an_attempt_lives_for_days_and_one_of_flex_start_for_one() -> None:
    assert gke().life_s == 7 * 86400 and gke(provisioning="flex-start").life_s == 86400
    assert gke(max_life="2h").life_s == 7200


def test_the_slice_of_a_recipe_takes_the_place_of_the_topology_with_its_machines() -> None:
    own = gke(topology="v6e-16").for_slice("2x tpu7x-4x4x8")
    assert (own.topology, own.machine_type) == ("2x tpu7x-4x4x8", "tpu7x-standard-4t")
    assert gke().for_slice("v6e-16").machine_type == "ct6e-standard-4t"
    written = gke(machine_type="tpu7x-ultranet-4t").for_slice("tpu7x-4x4x8")
    assert written.machine_type == "tpu7x-ultranet-4t"
    with pytest.raises(UserError, match="machine_type=tpu7x-ultranet-4t is not for v6e-16"):
        gke(machine_type="tpu7x-ultranet-4t").for_slice("v6e-16")


def test_a_target_is_opened_again_with_the_slice_of_a_run() -> None:
    add(topology="v6e-16")
    assert targets.current("pod", None)["settings"]["topology"] == "v6e-16"
    assert targets.current("pod", None, "2x tpu7x-4x4x8")["settings"]["topology"] == "2x tpu7x-4x4x8"
    assert targets.current("local", None, "2x tpu7x-4x4x8")["kind"] == "local", "whose runs take what there is"


def test_the_command_of_the_page_writes_the_entry_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[4] / "docs" / "gke.md").read_text()
    command = next(line for line in page.splitlines() if line.startswith("podwright target add "))
    entry = page.partition("```yaml\n")[2].partition("```")[0]
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "own.yaml"))
    assert main(shlex.split(command)[1:]) == ExitCode.OK
    assert yaml.safe_load((tmp_path / "own.yaml").read_text()) == yaml.safe_load(entry)


def test_the_target_is_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    add()
    assert main(["target", "list"]) == ExitCode.OK and "us-central1-ai1a" in capsys.readouterr().out
    assert main(["target", "show", "pod"]) == ExitCode.OK and "multislice-queue" in capsys.readouterr().out


def test_help_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["target", "add", "--help"]) == ExitCode.OK
    text = " ".join(capsys.readouterr().out.split())
    assert not [kind for kind in kinds.configured() if not re.search(rf"\b{kind}\b", text)]


@pytest.mark.parametrize(
    ("project", "zone", "message"),
    [
        ("My_Project", "us-central1-a", "project=My_Project is no id of a project; "),
        ("my-project", "nowhere", "zones: has 'nowhere', which is no zone"),
    ],
)
@pytest.mark.parametrize("kind", ["gke", "tpu-vm"])
def test_a_wrong_value_of_gclouds_configuration_is_said_to_be_from_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    project: str,
    zone: str,
    message: str,
) -> None:
    config = {"core": {"project": project}, "compute": {"zone": zone}}
    (tmp_path / "gcloud").write_text(f"#!/bin/sh\necho '{json.dumps(config)}'\n")
    (tmp_path / "gcloud").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    further = ["cluster=c"] if kind == "gke" else ["accelerator_type=v6e-16"]
    assert main(["target", "add", "pod", f"kind={kind}", *further]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert message in error and "from the configuration of gcloud and kubectl" in error
    assert (
        main(["target", "add", "pod", f"kind={kind}", *further, "project=$(id)", "zones=[us-east5-b]"])
        == ExitCode.USAGE
    )
    assert "from the configuration" not in capsys.readouterr().err


def test_nodes_that_do_not_come_are_waited_for_in_the_only_place_as_long_as_the_run_has_patience() -> None:
    flex: dict[str, Any] = {"provisioning": "flex-start", "topology": "v6e-16"}
    zones = ["us-central1-a", "us-central1-b"]
    assert gke(**flex, zones=zones).traits().place_patience_s == 1800.0
    assert gke(**flex, zones=zones[:1]).traits().place_patience_s == 6 * 3600.0
    assert gke(**flex, zones=zones, patience="10m").traits().place_patience_s == 600.0
    assert gke(zones=zones[:1], reservations=["r", "s"], zone_patience="1h").traits().place_patience_s == 3600.0

"""Values of a target of kind tpu-vm: what is refused before anything is created, and what to write instead."""

import pytest

from podwright.errors import UserError
from podwright.targets import entries
from podwright.targets.settings import tpu_vm
from tests.unit.targets.tpu_vm.test_calls import settings

GIVEN = {"kind": "tpu-vm", "project": "my-project", "zones": "[us-east5-b]", "accelerator_type": "v6e-16"}


@pytest.fixture(autouse=True)
def no_targets(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"project": "My Project"}, "is no id of a project"),
        ({"zones": "[us-east5]"}, "which is no zone; write it like [us-east5-b, us-east1-d]"),
        ({"zones": "[us-east5-b, '']"}, "has '', which is no zone"),
        ({"zones": "[us-east5-b, us-east5-b]"}, "has us-east5-b twice"),
        ({"labels": "[team=nlp, '']"}, "has ''; write labels in small letters"),
        ({"accelerator_type": "v4-8"}, "write it like v6e-16"),
        ({"accelerator_type": "2x v6e-16"}, "is not one slice of TPUs"),
        ({"accelerator_type": "8xH100-80GB"}, "is not one slice of TPUs"),
        ({"accelerator_type": "tpu7x-8"}, "cannot be requested as a TPU VM"),
        ({"runtime_version": "tpu-ubuntu2204-base"}, "has no driver for v6e-16; leave it out for v2-alpha-tpuv6e"),
        ({"runtime_version": "v2-alpha-tpuv5"}, "has no driver for v6e-16"),
        ({"runtime_version": "My Image"}, "is no name of an image"),
        ({"patience": "6"}, "is no duration; write it like 6h, 90m or 1d12h"),
        (
            {"patience": "2h", "zone_patience": "3h"},
            "zone_patience=3h is longer than patience=2h, after which a run ends",
        ),
        ({"max_life": "5m"}, "is not from 10m to 365d"),
        ({"labels": "[Team=NLP]"}, "write labels in small letters"),
        ({"labels": "[podwright-run=x]"}, "labels that begin with podwright- are set for each slice"),
        ({"storage": "/shared/runs"}, "TPU VMs share no folder; write a bucket like gs://BUCKET/runs"),
        ({"provisioning": "flex-start", "queued": "false"}, "flex-start exists for queued resources only"),
        ({"provisioning": "flex-start", "max_life": "8d"}, "flex-start allows 7 days"),
        ({"node": "My_Node"}, "is no name of a TPU VM"),
        ({"env": "[HF_TOKEN=hf_abc]"}, "has 'HF_TOKEN': it takes names of variables"),
        ({"price": "-1"}, "price"),
        ({"provisioning": "cheap"}, "provisioning"),
        ({"bucket": "gs://b"}, "has no key 'bucket'"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_created(given: dict[str, str], refusal: str) -> None:
    with pytest.raises(UserError) as refused:
        entries.add("t", [f"{key}={value}" for key, value in (GIVEN | given).items()])
    assert refusal in f"{refused.value.what}; {refused.value.fix}" and "hf_abc" not in str(refused.value)


@pytest.mark.parametrize(
    ("accelerator_type", "gcloud", "runtime", "hosts", "chips_per_host"),
    [
        ("v6e-16", "v6e-16", "v2-alpha-tpuv6e", 4, 4),
        ("v6e-4x4", "v6e-16", "v2-alpha-tpuv6e", 4, 4),
        ("v6e-8", "v6e-8", "v2-alpha-tpuv6e", 1, 8),
        ("v5e-16", "v5litepod-16", "v2-alpha-tpuv5-lite", 4, 4),
        ("v5p-16", "v5p-16", "v2-alpha-tpuv5", 2, 4),
    ],
)
def test_a_slice_has_gclouds_name_and_the_image_of_its_generation(
    accelerator_type: str, gcloud: str, runtime: str, hosts: int, chips_per_host: int
) -> None:
    own = settings(accelerator_type=accelerator_type)
    assert (own.accelerator_type, own.runtime) == (gcloud, runtime)
    assert (own.devices().num_hosts, own.devices().chips_per_host) == (hosts, chips_per_host)


def test_durations() -> None:
    assert [tpu_vm.seconds(text) for text in ("6h", "90m", "1d12h", "30s")] == [21600, 5400, 129600, 30]
    for text in ("", "6", "h6", "6h30"):
        with pytest.raises(ValueError):
            tpu_vm.seconds(text)


def test_spot_machines_alone_are_expected_to_be_taken_away() -> None:
    expected = {
        way: settings(provisioning=way).traits().preemptions_per_day
        for way in ("spot", "on-demand", "reserved", "flex-start")
    }
    assert expected.pop("spot") > 0 and set(expected.values()) == {0.0}
    assert settings(provisioning="spot", preemptions_per_day=0.0).traits().preemptions_per_day == 0.0
    assert settings(provisioning="on-demand", preemptions_per_day=2.5).traits().preemptions_per_day == 2.5


def test_waiting_and_life_have_defaults_by_zones_and_provisioning() -> None:
    assert settings().wait_s == 6 * 3600 and settings(zones=["us-east5-b", "us-east1-d"]).wait_s == 1800
    assert settings().life_s == 6 * 3600 and settings(provisioning="flex-start").life_s == 24 * 3600
    assert settings(node="mine", zones=["us-east5-b", "us-east1-d"]).traits().zones == ("us-east5-b",)
    assert settings().traits().patience_s == 6 * 3600

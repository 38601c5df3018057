"""What a creation that was refused lets one conclude: nothing exists only where the call itself was refused."""

from pathlib import Path

import pytest

from podwright.shell import Shell
from podwright.targets import alive
from podwright.targets.machines import Allocation, AllocationState, Request
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import ssh_key
from podwright.targets.tpu_vm.provisioner import SliceProvisioner
from podwright.targets.tpu_vm.replies import classify

ZONE = "us-east9-z"
NO_ZONE = (
    f"ERROR: (gcloud.compute.tpus) PERMISSION_DENIED: Permission denied on 'locations/{ZONE}' (or it may not exist)."
)
API_OFF = "ERROR: (gcloud.compute.tpus) Cloud TPU API has not been used in project 123 before or it is disabled."
NO_ACCOUNT = "ERROR: (gcloud.compute.tpus) You do not currently have an active account selected."
NO_LOGIN = "ERROR: (gcloud.compute.tpus) Reauthentication failed. cannot prompt during non-interactive execution."
LOST = "ERROR: gcloud crashed (SSLError): Max retries exceeded with url: /token"
NO_CAPACITY = "ERROR: There is no more capacity in the zone"
ISSUED = "Create request issued for: [n]\n"


class Answering(Shell):
    """Every call of gcloud fails with `text`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def ask(self, argv, *_, **__):  # type: ignore[no-untyped-def]
        return (1, "", self.text) if argv[0] == "gcloud" else super().ask(argv)


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podwright.targets.google.gcloud.LOGIN_PAUSE_S", 0.0)
    monkeypatch.setattr(ssh_key, "folder", lambda: tmp_path)


def provisioner(text: str, *, queued: bool = True) -> tuple[SliceProvisioner, Request]:
    settings = {
        "kind": "tpu-vm",
        "project": "my-project",
        "zones": [ZONE],
        "accelerator_type": "v6e-16",
        "queued": queued,
    }
    own = SliceProvisioner(Answering(text), TpuVmSettings.model_validate(settings), "vm")
    return own, own.describe_request(Path("/runs/r"), 1.0, 1, ())


@pytest.mark.parametrize("text", [NO_ZONE, API_OFF, NO_LOGIN, NO_ACCOUNT])
def test_a_queued_request_that_is_refused_for_good_has_created_nothing(text: str) -> None:
    own, request = provisioner(text)
    answer = own.create(request)
    assert answer.state is AllocationState.REFUSED and answer.uncreated and not answer.scope
    assert own.describe(request).state is AllocationState.UNKNOWN, "no log: the creation was not refused here"


@pytest.mark.parametrize("text", [LOST, "", "something new"])
def test_a_creation_without_a_clear_reply_may_have_created_it(text: str) -> None:
    own, request = provisioner(text)
    assert own.create(request).state is AllocationState.UNKNOWN


def after_log(printed: str, described: str) -> Allocation:
    own, request = provisioner(described, queued=False)
    ssh_key.creation_log(request.name).write_text(printed)
    return own.describe(request)


@pytest.mark.parametrize("text", [NO_ZONE, API_OFF, NO_LOGIN, NO_ACCOUNT])
def test_a_node_whose_creation_was_refused_for_good_does_not_exist_though_it_cannot_be_described(text: str) -> None:
    answer = after_log(text, text)
    assert answer.state is AllocationState.REFUSED and answer.uncreated


@pytest.mark.parametrize("printed", [ISSUED + NO_LOGIN, LOST, NO_CAPACITY, ISSUED, ""])
def test_a_node_that_may_have_been_requested_is_not_known_while_it_cannot_be_described(printed: str) -> None:
    assert after_log(printed, NO_LOGIN).state is AllocationState.UNKNOWN


def test_a_login_that_failed_once_refuses_nothing() -> None:
    assert after_log(NO_ACCOUNT, LOST).state is AllocationState.UNKNOWN
    assert after_log(NO_ACCOUNT, "ERROR: NOT_FOUND").state is AllocationState.GONE


def test_a_node_that_a_living_gcloud_requests_is_not_refused() -> None:
    own, request = provisioner(NO_ZONE, queued=False)
    ssh_key.creation_log(request.name).write_text(NO_ZONE)
    with alive.held(ssh_key.creating(request.name)):
        assert own.describe(request).state is AllocationState.UNKNOWN


def test_a_zone_that_may_not_exist_is_named_with_what_lists_zones() -> None:
    reply = classify(NO_ZONE, "my-project", ZONE)
    assert ZONE in reply.reason and "(or it may not exist)" in reply.reason
    assert "gcloud compute tpus locations list --project=my-project" in reply.fix

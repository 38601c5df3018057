"""What is made of a slice that the cloud calls ready: whether it is the wanted one, and for how long its workers are waited for."""

import json
import time
from pathlib import Path

import pytest

from podwright.shell import Shell
from podwright.targets.machines import AllocationState
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import ssh_key, workers
from podwright.targets.tpu_vm.provisioner import SliceProvisioner

SETTINGS = {
    "kind": "tpu-vm",
    "project": "my-project",
    "zones": ["us-east9-z"],
    "accelerator_type": "v6e-16",
    "queued": False,
}

KIND = {"acceleratorType": "projects/p/locations/z/acceleratorTypes/v6e-16", "runtimeVersion": "v2-alpha-tpuv6e"}


class Silent(Shell):
    """A slice that is ready, none of whose workers has told its host key."""

    labels: dict[str, str]

    def ask(self, argv, *_, **__):  # type: ignore[no-untyped-def]
        if argv[0] != "gcloud":
            return super().ask(argv)
        points = [{"ipAddress": f"10.0.0.{n}"} for n in range(4)]
        node = {"state": "READY", "health": "HEALTHY", "networkEndpoints": points, "labels": self.labels} | KIND
        return 0, json.dumps([] if "get-guest-attributes" in argv else node), ""


@pytest.mark.parametrize(
    ("ready_since", "state"),
    [(None, AllocationState.LOST), (1.0, AllocationState.WAITING)],
    ids=["that no run has used", "on which a run may be at work"],
)
def test_a_slice_is_given_up_by_any_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready_since: float | None, state: AllocationState
) -> None:
    """Also by one that began when the slice was ready already."""
    monkeypatch.setattr(ssh_key, "folder", lambda: tmp_path)
    shell = Silent()
    own = SliceProvisioner(shell, TpuVmSettings.model_validate(SETTINGS), "vm")
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    shell.labels = dict(request.labels)
    first = own.describe(request, ready_since)
    assert (first.state, first.reason) == (AllocationState.WAITING, "Starting: worker 0 has no host key yet")
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + workers.BOOT_LIMIT_S + 1)
    answer = own.describe(request, ready_since)
    assert answer.state is state
    if state is AllocationState.LOST:
        assert answer.reason.startswith("NotStarted: worker 0 has no host key yet, 20 min after the cloud"), answer


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({}, "Starting: worker 0 has no host key yet"),
        ({"runtime_version": "v2-alpha-tpuv6e"}, "Starting: worker 0 has no host key yet"),
        (
            {"runtime_version": "my-image"},
            "OtherImage: node mine has the image v2-alpha-tpuv6e, and my-image is needed; set runtime_version=v2-alpha-tpuv6e",
        ),
        (
            {"accelerator_type": "v6e-8"},
            "OtherSlice: node mine is a v6e-16, not accelerator_type=v6e-8; set accelerator_type=v6e-16",
        ),
    ],
)
def test_a_slice_that_exists_is_used_if_it_is_the_one_that_the_target_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, str], reason: str
) -> None:
    monkeypatch.setattr(ssh_key, "folder", lambda: tmp_path)
    shell = Silent()
    shell.labels = {}
    own = SliceProvisioner(shell, TpuVmSettings.model_validate(SETTINGS | {"node": "mine"} | wanted), "vm")
    assert own.describe(own.describe_request(Path("/runs/r"), 1.0, 1, ())).reason == reason


class Refusing(Silent):
    """A slice whose workers take the keys of its metadata alone."""

    denied = False
    updates: list[str]

    def stream(self, argv, *_, **__):  # type: ignore[no-untyped-def]
        assert argv[0] == "ssh"
        return 255, "podwright@10.0.0.1: Permission denied (publickey)."

    def ask(self, argv, *_, **__):  # type: ignore[no-untyped-def]
        if "update" in argv:
            self.updates += [word for word in argv if "ssh-keys" in word]
            refusal = "ERROR: (gcloud.compute.tpus.tpu-vm.update) PERMISSION_DENIED: Permission 'tpu.nodes.update' denied on 'x'"
            return (1, "", refusal) if self.denied else (0, "", "")
        code, answer, stderr = super().ask(argv)
        if "get-guest-attributes" in argv:
            row = {"namespace": "hostkeys", "key": "ssh-ed25519", "value": "AAAA"}
            return 0, json.dumps([{"worker_id": n, **row} for n in range(4)]), ""
        if argv[0] == "gcloud":
            keys = self.updates[-1].partition("=")[2] if self.updates and not self.denied else "podwright:of another"
            answer = json.dumps(json.loads(answer) | {"metadata": {"ssh-keys": keys}})
        return code, answer, stderr


@pytest.mark.parametrize("denied", [False, True])
def test_a_machine_that_did_not_request_a_slice_adds_its_key_to_those_that_are_there_or_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: bool
) -> None:
    monkeypatch.setattr(ssh_key, "folder", lambda: tmp_path)
    shell = Refusing()
    shell.denied, shell.updates = denied, []
    own = SliceProvisioner(shell, TpuVmSettings.model_validate(SETTINGS), "vm")
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    shell.labels = dict(request.labels)
    reasons = [own.describe(request, 1.0).reason for _ in range(2)]
    key = ssh_key.public_key(Shell())
    assert shell.updates[0].endswith(f"=podwright:of another\npodwright:{key}")
    if denied:
        assert "does not accept the key" in reasons[0] and "cannot be added (NoPermission" in reasons[0]
        assert "type podwright watch with the run on the machine that started it" in reasons[0]
    else:
        assert "was given the key of this machine" in reasons[0] and len(shell.updates) == 1, "it is there then"
        assert reasons[1].startswith("Starting: ") and "does not accept the key" in reasons[1]

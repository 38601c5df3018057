"""How a worker is reached, and what ssh's refusals mean for a slice."""

import pytest

from podwright.rundir import Ending
from podwright.targets.tpu_vm import worker
from podwright.targets.tpu_vm.worker import Worker

NAME = "pw-r-0a1b2c3d-1-w-2"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))


def test_a_worker_is_reached_by_the_slices_own_key_and_host_keys(tmp_path) -> None:
    argv = Worker(NAME, "10.0.0.3", "34.1.1.1", "my-project").argv("true")
    assert f"-i{tmp_path}/tpu-vm/id_ed25519" in argv and "-oIdentitiesOnly=yes" in argv
    assert f"-oUserKnownHostsFile={tmp_path}/tpu-vm/known_hosts-pw-r-0a1b2c3d-1" in argv
    assert "-oHostKeyAlias=tpu.pw-r-0a1b2c3d-1-2" in argv and "-oStrictHostKeyChecking=yes" in argv
    assert argv[-2:] == ["podwright@34.1.1.1", "sh -c true"]


def test_a_worker_without_an_external_address_is_reached_through_iap() -> None:
    own = Worker(NAME, "10.0.0.3", worker.through_iap("us-east5-b", "t1v-n-1234abcd-w-2"), "my-project")
    argv = own.argv("true")
    tunnel = (
        "gcloud compute start-iap-tunnel t1v-n-1234abcd-w-2 22 --listen-on-stdin --project=my-project --zone=us-east5-b"
    )
    assert f"-oProxyCommand={tunnel}" in argv and argv[-2] == "podwright@t1v-n-1234abcd-w-2"
    assert worker.connect(own.record) == own and own.address == "10.0.0.3"


@pytest.mark.parametrize(
    ("stderr", "what"),
    [
        ("podwright@34.1.1.1: Permission denied (publickey).", f"{NAME} does not accept the key"),
        ("Host key verification failed.", f"{NAME} answers with another host key than the cloud names for it"),
        (
            "ERROR: (gcloud.compute.start-iap-tunnel) Error while connecting [4003: 'failed to connect to backend'].",
            f"no IAP tunnel to {NAME}: ERROR",
        ),
        ("ssh: connect to host 34.1.1.1 port 22: Connection timed out", f"host {NAME} does not answer on port 22"),
    ],
)
def test_what_ssh_says_is_told_of_the_worker_and_is_no_fault_of_the_settings(stderr: str, what: str) -> None:
    trouble = Worker(NAME, "10.0.0.3", "34.1.1.1", "my-project").explain(stderr)
    assert trouble and trouble.what.startswith(what) and trouble.ending is Ending.NO_CAPACITY
    assert "34.1.1.1" not in trouble.what


def test_a_command_that_fails_on_the_worker_is_not_a_matter_of_ssh() -> None:
    assert Worker(NAME, "10.0.0.3", "34.1.1.1", "p").explain("bash: nosuch: command not found") is None

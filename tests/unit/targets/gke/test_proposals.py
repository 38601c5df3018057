"""What `target add NAME kind=gke` takes from the contexts of kubectl, by the real kubectl."""

import json
import shutil
from pathlib import Path

import pytest

from podwright.cli.app import main
from podwright.shell import Shell
from podwright.targets import entries
from podwright.targets.gke import configuration

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
A, B = "gke_my-project_us-central1_a", "gke_my-project_us-east5-b_b"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clusters of GKE, of which the first is the current one, another cluster, and a gcloud whose zone is us-central1-c."""
    names = (A, B, "kind-local")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
        "current-context": A,
    }
    (tmp_path / "config").write_text(json.dumps(config))
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(
        '#!/bin/sh\ncase "$*" in *"clusters describe"*) cat ${0%/*}/cluster.json || { echo "ERROR: (gcloud) You do not '
        'currently have an active account selected." >&2; exit 1; }; exit;; esac\n'
        'echo \'{"core": {"project": "other-project"}, "compute": {"zone": "us-central1-c"}}\'\n'
    )
    gcloud.chmod(0o755)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_the_current_context_is_proposed_with_a_zone_of_its_region() -> None:
    own = {"project": "my-project", "cluster": "a", "zones": "[us-central1-c]"}
    assert configuration.proposed(Shell(), {"kind": "gke"}) == own
    assert entries.proposals(["kind=gke"]) == own
    assert entries.proposals(["kind=gke", "zones=[us-central1-a]"]) == {"project": "my-project", "cluster": "a"}


def test_a_cluster_of_one_zone_is_proposed_with_it() -> None:
    own = {"project": "my-project", "zones": "[us-east5-b]", "region": "us-east5-b"}
    assert entries.proposals(["kind=gke", "cluster=b"]) == own


def test_what_agrees_with_no_context_gets_what_gcloud_knows() -> None:
    assert entries.proposals(["kind=gke", "cluster=c"]) == {"project": "other-project", "zones": "[us-central1-c]"}


def test_without_contexts_and_where_nothing_is_missing_nothing_is_proposed(machine: Path) -> None:
    (machine / "config").unlink()
    assert "cluster" not in entries.proposals(["kind=gke"])
    assert entries.proposals(["kind=gke", "project=p", "cluster=c", "zones=[us-central1-a]"]) == {}


def test_a_key_that_no_configuration_knows_is_named(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (machine / "config").unlink()
    assert main(["target", "add", "pod", "kind=gke", "zones=[us-central1-a]"]) == 2
    assert "cluster is missing; add cluster=... to the command" in capsys.readouterr().err

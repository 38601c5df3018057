"""The verbs about machines on the simulated cloud: what exists, whose it is, what is removed, and commands on the workers."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from podwright.targets.base import AllocationState
from tests.e2e.test_tpu_vm import A, TpuBench, gcloud, lab, provisioner, until  # noqa: F401  fixtures
from tests.lab import cloud
from tests.lab.gcloud.control import Gcloud

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
ELSEWHERE = ("unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh")


def names(gcloud: Gcloud) -> list[str]:  # noqa: F811
    return sorted({row["name"] for row in gcloud.resources()})


def request(run_dir: Path, by: str = "", number: int = 1) -> str:
    """The name of a slice that is requested now for a run in `run_dir`."""
    own = provisioner()
    described = own.describe_request(run_dir, 1.0, number, ())
    if by:
        described = replace(described, labels={**described.labels, "podwright-by": by})
    assert own.create(described).state is AllocationState.WAITING
    return described.name


def test_clean_removes_what_no_run_needs_and_nothing_of_others(gcloud: Gcloud, tmp_path: Path) -> None:  # noqa: F811
    gcloud.capacity(A, 0)  # so that no hosts are started
    bench = TpuBench(tmp_path)
    lost = request(tmp_path / "runs" / "lost")
    others = request(Path("/users/other/runs/r"), by="00000000")
    gcloud.capacity("us-east1-d", 0)
    foreign = gcloud.call(
        *("compute", "tpus", "queued-resources", "create", "foreign", "--node-id=foreign", "--zone=us-east1-d"),
        *(
            "--accelerator-type=v6e-4",
            "--runtime-version=v2-alpha-tpuv6e",
            "--project=my-project",
            "--async",
            "--quiet",
        ),
    )
    assert foreign.returncode == 0, foreign.stderr
    assert names(gcloud) == sorted([lost, others, "foreign"])

    code, out, err = bench.call("clean", "--json")
    assert code == 1, err
    rows = {row["name"]: row for row in json.loads(out)["machines"]}
    assert {name: row["need"] for name, row in rows.items()} == {lost: "gone", others: "others"}
    assert rows[lost]["run_dir"] == str(tmp_path / "runs" / "lost") and rows[others]["run_dir"] == "/users/other/runs/r"
    assert len(names(gcloud)) == 3, "without --yes nothing is removed"

    code, out, _ = bench.call("clean")
    assert code == 1 and "1 slice to remove: type podwright clean --yes" in out and "another user or machine" in out

    gcloud.fault("queued-resources delete", status=503)
    code, out, err = bench.call("clean", "tpu", "--yes")
    assert (code, names(gcloud)) == (0, sorted([others, "foreign"])), (out, err)
    assert f"removed {lost}" in out and "waiting until the cloud no longer lists" in err

    code, _, err = bench.call("clean", "tpu", "foreign", "--yes")
    assert code == 2 and "the cloud lists no foreign that podwright created" in err
    code, _, err = bench.call("clean", "other", "--yes")
    assert code == 2 and "there is no target 'other'" in err
    assert bench.call("clean", "tpu", others, "--yes")[0] == 0
    assert names(gcloud) == ["foreign"]
    code, out, _ = bench.call("clean")
    assert code == 0 and "no machines of podwright's" in out


def test_clean_from_another_machine_shows_what_this_one_has_and_keeps_it(gcloud: Gcloud, tmp_path: Path) -> None:  # noqa: F811
    gcloud.capacity(A, 0)
    bench = TpuBench(tmp_path)
    name = request(tmp_path / "runs" / "lost")
    argv = [*ELSEWHERE, sys.executable, str(bench.launch), "clean", "--yes", "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["machines"]
    assert (row["name"], row["need"], row["mine"], row["removable"]) == (name, "others", False, False)
    assert names(gcloud) == [name]
    done = subprocess.run([*argv[:-3], "clean", "tpu", name, "--yes"], cwd=tmp_path, check=False)
    assert done.returncode == 0 and names(gcloud) == []

"""The verbs about machines on the simulated cloud: what exists, whose it is, what is removed, and commands on the workers."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from lab import cloud, sshd
from lab.gcloud.control import Gcloud
from podwright.targets.machines import AllocationState
from tests.e2e.conftest import LAUNCH, wait_for
from tests.e2e.test_tpu_vm import A, TpuBench, endings, gcloud, lab, provisioner, stood_in  # noqa: F401  fixtures

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
ELSEWHERE = ("unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh")


def names(gcloud: Gcloud) -> list[str]:  # noqa: F811
    return sorted({row["name"] for row in gcloud.resources()})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def request(run_dir: Path, by: str = "", number: int = 1) -> str:
    """The name of a slice that is requested now for a run in `run_dir`."""
    own = provisioner()
    described = own.describe_request(run_dir, 1.0, number, ())
    if by:
        described = replace(described, labels={**described.labels, "podwright-by": by})
    assert own.create(described).state is AllocationState.WAITING
    return described.name


@pytest.mark.long
def test_clean_removes_what_no_run_needs_and_nothing_of_others(gcloud: Gcloud, tmp_path: Path) -> None:  # noqa: F811
    gcloud.capacity(A, 0)  # so that no hosts are started
    bench = TpuBench(tmp_path)
    (tmp_path / "runs" / "another").mkdir(parents=True)
    lost = request(tmp_path / "runs" / "lost")
    others = request(Path("/elsewhere/runs/r"), by="00000000")
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
    assert rows[lost]["run_dir"] == str(tmp_path / "runs" / "lost") and rows[others]["run_dir"] == "/elsewhere/runs/r"
    assert len(names(gcloud)) == 3, "without --yes nothing is removed"

    code, out, _ = bench.call("clean")
    assert code == 1 and "1 item to remove: type podwright clean --yes" in out and "another user or machine" in out

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
    assert code == 0 and "nothing of podwright's" in out


@pytest.mark.long
@pytest.mark.parametrize("failing", ["login", "cut"])
def test_clean_says_nothing_of_a_cloud_that_it_could_not_list(gcloud: Gcloud, tmp_path: Path, failing: str) -> None:  # noqa: F811
    bench = TpuBench(tmp_path)
    if failing == "login":
        gcloud.set(account="")
    else:
        gcloud.fault("queued-resources list", kind="cut", keep=1, calls=None)
    reason = "gcloud has no account" if failing == "login" else "the cloud does not list what it has"
    for words in (["clean"], ["clean", "--yes"]):
        code, out, err = bench.call(*words)
        assert out == "" and err.startswith("error: target tpu: ") and reason in err
        assert code == bench.call(*words, "tpu")[0] == 2
    code, out, err = bench.call("clean", "--json")
    assert code == 2 and reason in json.loads(out)["faults"][0]


def test_clean_does_not_take_a_disk_that_is_not_mounted_for_runs_that_are_gone(gcloud: Gcloud, tmp_path: Path) -> None:  # noqa: F811
    gcloud.capacity(A, 0)
    bench = TpuBench(tmp_path)
    runs = tmp_path / "disk" / "runs"
    name = request(runs / "r")
    for _ in range(2):
        code, out, err = bench.call("clean", "--yes")
        assert code == 0 and names(gcloud) == [name], (out, err)
        assert f"{runs}, the folder of its run, is empty or not there: mount its disk" in out
        runs.mkdir(parents=True, exist_ok=True)  # as a mount point is
    (runs / "another").mkdir()
    code, out, err = bench.call("clean", "--yes")
    assert code == 0 and names(gcloud) == [], (out, err)


@pytest.mark.long
@pytest.mark.parametrize("event", ["ready", "requested"])
def test_clean_tells_the_journal_of_the_run_what_it_has_removed(gcloud: Gcloud, stood_in: TpuBench, event: str) -> None:  # noqa: F811
    gcloud.fault("tpu-vm describe", delay_s=1.5, calls=None)  # so that no attempt is submitted meanwhile
    launcher = stood_in.start_run(5, "mesh.fsdp=16", "--on", "tpu")
    wait_for(lambda: f"allocation {event}" in stood_in.events() and gcloud.resources())
    launcher.kill()
    launcher.communicate()
    gcloud.set(faults=[])
    begun = stood_in.events()
    assert begun[-1] == f"allocation {event}"
    wait_for(lambda: gcloud.chip_hours() > 0)
    usage = stood_in.standing()["usage"]
    assert usage["open"] and usage["chip_hours"] > 0, "also where no launcher has seen that the slice is ready"
    code, out, err = stood_in.call("clean", "--yes")
    assert code == 0 and gcloud.resources() == [], (out, err)
    seen = "lost" if event == "ready" else "charged"
    written = list(dict.fromkeys(stood_in.events()[len(begun) :]))
    assert written == [f"allocation {seen}", "allocation deleting", "allocation gone"]
    usage = stood_in.standing()["usage"]
    charged = gcloud.chip_hours()
    assert not usage["open"] and charged <= usage["chip_hours"] <= charged + 16 * 10 / 3600
    code, out, err = stood_in.call("resume", "r")
    assert code == 0, (out, err)
    assert endings(stood_in)[-1][0] == "FINISHED" and stood_in.steps() == [1, 2, 3, 4, 5]
    assert gcloud.resources() == [] and len(gcloud.ledger()) == 2


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


@pytest.mark.long
def test_clean_names_a_run_whose_project_is_in_no_entry(gcloud: Gcloud, tmp_path: Path) -> None:  # noqa: F811
    gcloud.capacity(A, 0)
    bench = TpuBench(tmp_path, zones=[A])
    launcher = bench.start_run(40, "mesh.fsdp=16", "--on", "tpu")
    try:
        wait_for(lambda: bool(gcloud.resources()))
        launcher.kill()
        launcher.communicate()
        (tmp_path / "targets.yaml").unlink()
        for words in (["clean"], ["clean", "--yes"]):
            code, out, err = bench.call(*words)
            assert (code, out, err.count("\n")) == (2, "", 1) and f"in {A} (target tpu) were not listed" in err, (
                out + err
            )
        assert bench.call("stop", "r")[0] == 0
        assert gcloud.resources() == [] and bench.standing()["ending"] == "STOPPED"
        assert bench.call("clean")[:2] == (0, "nothing of podwright's in the cloud\n")
    finally:
        bench.close()


@pytest.mark.long
def test_machines_of_a_living_run_are_shown_used_and_kept(gcloud: Gcloud, lab: cloud.Lab, tmp_path: Path) -> None:  # noqa: F811
    python = sshd.stand_in(lab.root / "python", LAUNCH.with_name("standin.py"))
    bench = TpuBench(tmp_path, python=str(python), price=2.0)
    launcher = bench.start_run(2000, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.25")
    try:
        wait_for(lambda: len(bench.steps()) > 2)
        (node,) = [row["name"] for row in gcloud.resources() if row["kind"] == "node"]

        code, out, err = bench.call("clean", "--yes")
        assert code == 0 and "keep: run r is followed by a launcher" in out, (out, err)
        code, _, err = bench.call("clean", "tpu", node, "--yes")
        assert code == 2 and "run r is followed by a launcher; type podwright stop r" in err

        head, row = bench.call("list")[1].splitlines()
        assert head.split() == ["NAME", "TARGET", "STATUS", "STEP", "MACHINES", "COST"]
        assert f"ready in {A}" in row and row.endswith(" chip-hours)") and " USD (" in row

        code, out, _ = bench.call("target", "show", "tpu", "--live", "--json")
        (row,) = json.loads(out)["machines"]
        assert (code, row["name"], row["zone"], row["cloud_state"], row["run"]) == (0, node, A, "ACTIVE", "r")
        assert row["cost"] == pytest.approx(2.0 * 16 * row["age_s"] / 3600, rel=0.2) and row["expires"] > 0
        code, out, _ = bench.call("target", "show", "tpu", "--live")
        assert code == 0 and out.splitlines()[0].split()[:5] == ["NAME", "ZONE", "STATE", "AGE", "EXPIRES"]

        code, out, err = bench.call("target", "exec", "tpu", "--", "echo $((6 * 7)); pwd")
        workers = [f"{node}-w-{k}" for k in range(4)]
        lines = [line.split(" | ") for line in out.splitlines()]
        assert code == 0 and [host for host, _ in lines] == [w for w in workers for _ in range(2)], (out, err)
        assert {text for _, text in lines[::2]} == {"42"}
        code, out, err = bench.call(
            "target", "exec", "tpu", "--run", "r", "--host", "2", "--", "sh", "-c", "echo no >&2; exit 3"
        )
        assert (code, out, err) == (3, "", f"{workers[2]} | no\n")
        code, _, err = bench.call("target", "exec", "tpu", "--host", "4", "--", "true")
        assert code == 2 and "type a number from 0 to 3" in err

        port = free_port()
        serve = f"setsid python3 -m http.server {port} --bind 127.0.0.1 > /dev/null 2>&1 < /dev/null &"
        assert bench.call("target", "exec", "tpu", "--host", "0", "--", serve)[0] == 0
        page = bench.start("ui", "r", f"--forward={port}")
        wait_for(lambda: answers(port))
        assert page.stderr
        address = next(line for line in page.stderr if line.startswith("TensorBoard") and "http://" in line)
        assert urllib.request.urlopen(re.findall(r"http://\S+", address)[0], timeout=30).status == 200
        page.send_signal(signal.SIGINT)
        out, err = page.communicate(timeout=900)
        assert page.returncode == 130 and f"localhost:{port} is forwarded" in out, (out, err)
        assert not answers(port)
        code, out, _ = bench.call("ui", "r", "--forward", "--json")
        assert code == 0 and "127.0.0.1:9999:127.0.0.1:9999" in json.loads(out)["forward"]

        launcher.kill()
        launcher.communicate()
        code, out, err = bench.call("clean", "--yes")
        assert code == 0 and "keep: run r trains without a launcher" in out, (out, err)
        assert node in names(gcloud)
        assert bench.call("stop", "r")[0] == 0
    finally:
        bench.close()
    assert gcloud.resources() == []
    code, _, err = bench.call("target", "exec", "tpu", "--", "true")
    assert code == 2 and "no machines of target tpu for a run in runs now" in err


@pytest.mark.long
def test_what_a_killed_launcher_has_requested_is_removed_and_the_run_goes_on(gcloud: Gcloud, tmp_path: Path) -> None:  # noqa: F811
    gcloud.capacity(A, 0)
    bench = TpuBench(tmp_path, zones=[A])
    launcher = bench.start_run(40, "mesh.fsdp=16", "--on", "tpu")
    try:
        wait_for(lambda: bool(gcloud.resources()))
        assert "followed by a launcher" in bench.call("clean", "--yes")[1]
        launcher.kill()
        launcher.communicate()
        code, out, err = bench.call("clean", "--yes")
        assert code == 0 and "remove: run r does not train, and no launcher follows it" in out, (out, err)
        assert gcloud.resources() == []
        assert bench.call("stop", "r")[0] == 0
    finally:
        bench.close()
    assert gcloud.resources() == [] and bench.standing()["ending"] == "STOPPED"

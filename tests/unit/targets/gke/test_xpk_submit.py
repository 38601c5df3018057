"""A workload is submitted once, and what the API server has of it is believed. In place of xpk scripts that call the real kubectl."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kube import samples
from lab.kube.control import Kube
from podwright.errors import UserError
from podwright.shell import Shell
from podwright.targets import alive
from podwright.targets.gke import submit
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.xpk_submit import Workload
from podwright.targets.google.replies import Consequence
from tests.unit.targets.gke.entry import gke

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
NAME = "pw-r-12345678-a1"
OWN = gke(submit="xpk", xpk="1.16.0")
CREATES = 'kubectl --kubeconfig="$LAB" create --filename=jobset.json'


class Bench:
    """An attempt in a folder, and a script in place of xpk."""

    def __init__(self, folder: Path, kube: Kube) -> None:
        self.folder, self.kube = folder, kube
        (folder / "bin").mkdir()
        (folder / "jobset.json").write_text(json.dumps(samples.jobset(NAME)))
        self.order = {"xpk": ["xpk", "workload", "create", f"--workload={NAME}"], "jobset": NAME, "cwd": str(folder)}

    def xpk(self, text: str) -> None:
        path = self.folder / "bin" / "xpk"
        path.write_text(f'#!/bin/sh\necho "started with $KUBECONFIG"\n{text}\n')
        path.chmod(0o755)

    @property
    def said(self) -> str:
        path = self.folder / "xpk.txt"
        return path.read_text() if path.exists() else ""

    def workload(self) -> Workload:
        with (self.folder / "lock").open("w") as lock:
            return Workload(self.order, self.folder, Kubectl(Shell(), OWN), Shell(), OWN, os.dup(lock.fileno()))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with Kube(tmp_path, project="my-project", cluster="my-cluster") as kube:
        bench = Bench(tmp_path, kube)
        own = kube.environment | {"HOME": str(tmp_path), "LAB": kube.environment["KUBECONFIG"]}
        own["PATH"] = f"{tmp_path / 'bin'}:{own.get('PATH') or os.environ['PATH']}"
        for name, value in own.items():
            monkeypatch.setenv(name, value)
        yield bench


def test_a_workload_that_exists_is_adopted_without_a_call(bench: Bench) -> None:
    bench.xpk(f"{CREATES}; exit 1")
    assert bench.workload().create(lambda: False) is None, "it exists, whatever xpk says of what it did later"
    assert bench.workload().create(lambda: False) is None
    assert bench.said.count("started with ") == 1
    kubeconfig = Path(bench.said.split()[2])
    assert kubeconfig != Path(bench.kube.environment["KUBECONFIG"]) and not kubeconfig.parent.exists()


def test_what_xpk_says_counts_where_no_workload_exists(bench: Bench) -> None:
    bench.xpk("echo '[XPK] Exiting XPK cleanly'")
    reply = bench.workload().create(lambda: False)
    assert reply and reply.consequence is Consequence.UNKNOWN
    bench.xpk("echo 'xpk: error: unrecognized arguments: --foo' >&2; exit 2")
    reply = bench.workload().create(lambda: False)
    assert reply and reply.consequence is Consequence.FINAL and "--foo" in reply.reason
    (bench.folder / "bin" / "xpk").unlink()
    with pytest.raises(UserError, match="no longer in PATH"):
        bench.workload().create(lambda: False)


def test_an_unreachable_cluster_is_asked_again_and_xpk_is_not_called(bench: Bench) -> None:
    bench.xpk(CREATES)
    bench.kube.unreachable(30)
    reply = bench.workload().create(lambda: False)
    assert reply and reply.consequence is Consequence.UNKNOWN and not bench.said


def test_a_login_that_ends_while_xpk_is_at_work_leaves_open_what_it_created(bench: Bench) -> None:
    bench.xpk(f"{CREATES}; echo '[]' > {bench.kube.environment['KUBECONFIG']}")
    reply = bench.workload().create(lambda: False)
    assert reply and reply.consequence is Consequence.UNKNOWN, "so that the attempt is released"
    again = bench.workload().create(lambda: False)
    assert again and bench.said.count("started with ") == 1


def test_a_stop_ends_xpk_with_what_it_has_started(bench: Bench) -> None:
    bench.xpk(f"sleep 60; {CREATES}")
    wanted = threading.Event()
    threading.Timer(0.5, wanted.set).start()
    started = time.monotonic()
    assert bench.workload().create(wanted.is_set) is not None and time.monotonic() - started < 20
    assert not bench.kube.objects("jobsets")


def test_xpk_that_outlives_the_process_that_submits_is_known_to_be_at_work(bench: Bench) -> None:
    bench.xpk(f"sleep 2; {CREATES}")
    order = bench.order | {"settings": OWN.model_dump(mode="json"), "variables": [], "dependents": [], "labels": {}}
    (bench.folder / submit.ORDER).write_text(json.dumps(order))
    (bench.folder / submit.OBJECTS).write_text("[]")
    lock = bench.folder / "lock"
    with alive.held(lock) as held:
        argv = [sys.executable, "-m", submit.__name__, str(bench.folder), str(held)]
        process = subprocess.Popen(argv, pass_fds=(held,), start_new_session=True)
    while "started with" not in bench.said:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert alive.is_held(lock) and not bench.kube.objects("jobsets")
    while alive.is_held(lock):
        time.sleep(0.05)
    assert [each["metadata"]["name"] for each in bench.kube.objects("jobsets")] == [NAME]
    with alive.held(lock) as held:  # the next one finds it
        argv[-1] = str(held)
        subprocess.run(argv, pass_fds=(held,), check=True)
    assert (
        json.loads((bench.folder / submit.RESULT).read_text()) == {"sent": True}
        and bench.said.count("started with ") == 1
    )

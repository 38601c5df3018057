"""A runs directory with `podwright` over the stand-in trainer in it; and one beside a real SLURM."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import slurm
from tests.e2e import fork_server
from tests.e2e.fork_server import ForkedProcess

if TYPE_CHECKING:
    from lab.kube.control import Kube
    from tests.e2e.gke_cluster import Cluster, Pools

LAUNCH = Path(__file__).parents[1] / "launch.py"
RECIPE = ("qwen3-tiny-arithmetic-grpo", "data.num_train=64", "model.name=qwen3-micro")
# Takes the place of Python on the nodes: of several processes only the first is the stand-in.
PYTHON = f"""#!/bin/sh
[ "$SLURM_PROCID" = 0 ] || {{ env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER|JAX_|CUDA_VIS)' | sort; exit 0; }}
shift 2
exec {sys.executable} {LAUNCH.with_name("standin.py")} "$@"
"""


class Bench:
    """Starts `podwright` processes in a folder of their own and reads what they leave there.

    They are forked from a process that has imported `podwright`; tests/e2e/test_cli_run.py starts the product from nothing.
    """

    launch = LAUNCH

    def __init__(self, folder: Path):
        self.folder = folder
        self.started: list[ForkedProcess] = []

    def start(self, *argv: str, **env: str) -> ForkedProcess:
        environment = {**os.environ, "PYTHONPATH": str(LAUNCH.parents[1]), **env}
        process = fork_server.shared().start_piped(self.launch, argv, self.folder, environment)
        self.started.append(process)
        return process

    def call(self, *argv: str, **env: str) -> tuple[int, str, str]:
        process = self.start(*argv, **env)
        out, err = process.communicate(timeout=int(os.environ.get("CALL_S", 900)))
        return process.returncode, out, err

    def run(self, steps: int, *argv: str, **env: str) -> tuple[int, str, str]:
        return self.call("run", *RECIPE, f"training.max_steps={steps}", "--name", "r", "--force", *argv, **env)

    def start_run(self, steps: int, *argv: str, **env: str) -> ForkedProcess:
        return self.start("run", *RECIPE, f"training.max_steps={steps}", "--name", "r", "--force", *argv, **env)

    def path(self, name: str = "") -> Path:
        return self.folder / "runs" / "r" / name

    def records(self, name: str) -> list[dict[str, Any]]:
        path = self.path(name)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def steps(self) -> list[int]:
        return [r["step"] for r in self.records("metrics.jsonl")]

    def standing(self) -> dict[str, Any]:
        code, out, err = self.call("list", "--json")
        assert code == 0, err
        (row,) = json.loads(out)
        return row

    def close(self) -> None:
        if self.path("journal.jsonl").exists():
            self.call("stop", "r")
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


class Farm(Bench):
    """A bench whose target `lab` is a real SLURM."""

    def __init__(self, folder: Path, lab: slurm.Cluster):
        super().__init__(folder)
        self.lab = lab
        python = folder / "python"
        python.write_text(PYTHON)
        python.chmod(0o755)
        self.target(python=python, nodes=2)

    def target(self, name: str = "lab", **settings: object) -> None:
        lines = [
            f"  {key}: {json.dumps(str(value) if not isinstance(value, list) else value)}"
            for key, value in settings.items()
        ]
        with (self.folder / "targets.yaml").open("a") as f:
            f.write("\n".join([f"{name}:", "  kind: slurm", *lines, ""]))

    def start(self, *argv: str, **env: str):
        return super().start(*argv, PODWRIGHT_TARGETS=str(self.folder / "targets.yaml"), **self.lab.env, **env)

    def job(self, attempt: int = 1) -> str:
        """The number of the job of an attempt."""
        path = self.path(f"attempts/{attempt}/sbatch.txt")
        wait_for(lambda: path.exists() and path.read_text().strip().isdigit())
        return path.read_text().strip()

    def process(self, rank: int) -> int:
        """The trainer of that rank, as numbered on this machine: not the shell around it."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environment, command = (path / "environ").read_bytes(), (path / "cmdline").read_bytes()
            except OSError:
                continue
            ours = f"\0RANK={rank}\0".encode() in b"\0" + environment and str(self.folder).encode() in environment
            if ours and not command.startswith((b"bash", b"/bin/bash")):
                return int(path.name)
        raise AssertionError(f"no process has rank {rank}")

    def submitted(self) -> int:
        """How many jobs there have been in the folder of the runs."""
        return self.lab.call("squeue", "-h", "-t", "all", "-o", "%Z").splitlines().count(str(self.folder))

    def last_words(self, start: int, attempt: int = 1) -> dict[str, Any]:
        return json.loads(self.path(f"attempts/{attempt}/starts/{start}/ended.json").read_text())

    def wait_for_step(self, number: int) -> None:
        wait_for(lambda: number in self.steps())

    def ended(self) -> list[str]:
        return [r["ending"] for r in self.records("journal.jsonl") if r["event"] == "ended"]


def wait_for(true: Callable[[], bool], seconds: float = 900) -> None:
    """`seconds`: at most; a busy machine needs many times as long as an idle one."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def slurm_lab() -> Iterator[slurm.Cluster]:
    with slurm.Cluster() as made:
        yield made


@pytest.fixture
def farm(tmp_path: Path, slurm_lab: slurm.Cluster) -> Iterator[Farm]:
    made = Farm(tmp_path, slurm_lab)
    yield made
    made.close()


@pytest.fixture
def kube(tmp_path: Path) -> "Iterator[Kube]":
    from tests.e2e.gke_cluster import simulated

    with simulated(tmp_path) as made:
        yield made


@pytest.fixture(name="cluster")
def gke_cluster(tmp_path: Path, kube: "Kube") -> "Iterator[Cluster]":
    from tests.e2e.gke_cluster import Cluster

    made = Cluster(tmp_path, kube)
    yield made
    made.close()


@pytest.fixture
def pools(tmp_path: Path) -> "Iterator[Pools]":
    """A cluster with two zones and without TPUs, and a target whose runs create node pools."""
    from lab.kube import samples
    from tests.e2e.gke_cluster import A, B, Pools, simulated_cloud

    with simulated_cloud(tmp_path, A, B) as (kube, gcloud):
        for each in samples.priority_classes():
            kube.create(each)
        made = Pools(tmp_path, kube, gcloud)
        yield made
        made.close()

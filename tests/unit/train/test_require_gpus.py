"""GPUs of a target or of this machine that jax or PyTorch does not see are refused, with the reason and what to type."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import torch

from podwright.errors import UserError
from podwright.train import devices, mesh
from podwright.train.multimodal.processes import world

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch sees a GPU here")


@pytest.mark.parametrize(
    ("environment", "num_here", "to_cpus"),
    [
        ({"PODWRIGHT_GPUS_PER_NODE": "2"}, 0, "set gpus_per_node of the target to 0"),
        ({"PODWRIGHT_GPUS_PER_NODE": "2", "JAX_PLATFORMS": "cuda,cpu"}, 8, "set gpus_per_node of the target to 0"),
        ({}, 2, "type --on cpu-1"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 2, "type --on cpu-1"),
    ],
)
def test_gpus_that_are_there_and_not_seen_are_refused(environment: dict[str, str], num_here: int, to_cpus: str) -> None:
    with pytest.raises(UserError) as refused:
        devices.require_gpus("jax 1", 0, environment, num_here, "install it")
    assert refused.value.what.endswith(" has 2 GPU(s), and jax 1 sees 0")
    assert refused.value.fix == f"install it, and look at nvidia-smi; to train on CPUs, {to_cpus}"


@pytest.mark.parametrize(
    ("environment", "num_here"),
    [
        ({}, 0),
        ({"JAX_PLATFORMS": "cpu"}, 8),
        ({"CUDA_VISIBLE_DEVICES": ""}, 8),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 8),
        ({"PODWRIGHT_GPUS_PER_NODE": "0"}, 0),
    ],
)
def test_cpus_that_are_asked_for_are_taken(environment: dict[str, str], num_here: int) -> None:
    devices.require_gpus("jax 1", 0, environment, num_here, "")
    assert world.join(environment).device == torch.device("cpu")


def test_more_processes_than_gpus_are_refused() -> None:
    two = {"PODWRIGHT_GPUS_PER_NODE": "2"}
    devices.require_gpus("PyTorch 2", 1, two, 0, "", 0)
    with pytest.raises(UserError, match=r"sees 1, too few for process 1 of this host; lower tasks_per_node"):
        devices.require_gpus("PyTorch 2", 1, two, 0, "", 1)
    devices.require_gpus("jax 1", 1, two | {"LOCAL_RANK": "1"}, 0, "")  # a process of jax has a GPU of its own


def test_jax_is_asked_for_the_gpus_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    mesh.require_gpus()
    monkeypatch.setenv("PODWRIGHT_GPUS_PER_NODE", "2")
    with pytest.raises(UserError, match=rf"has 2 GPU\(s\), and jax {re.escape(jax.__version__)} sees 0"):
        mesh.require_gpus()


def test_gpus_of_a_machine_are_counted(tmp_path: Path) -> None:
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / bus).mkdir()
    assert devices.num_nvidia_gpus(tmp_path) == 2 and devices.num_nvidia_gpus(tmp_path / "none") == 0


def test_processes_of_pytorch_that_see_no_gpu_are_refused() -> None:
    with pytest.raises(
        UserError, match=f"PyTorch {re.escape(torch.__version__)} sees 0; install a build of torch for CUDA"
    ):
        world.join({"PODWRIGHT_GPUS_PER_NODE": "2"})


ALLOCATOR = """
import os, sys
from pathlib import Path
from podwright.rundir import RunDir
from podwright.train.multimodal.entry import MULTIMODAL

class Finder:
    def find_spec(self, name, *_):
        if name == "torch":
            print({k: v for k, v in os.environ.items() if "ALLOC_CONF" in k})
            os._exit(0)

sys.meta_path.insert(0, Finder())
MULTIMODAL.num_processes(os.environ) if len(sys.argv) < 2 else MULTIMODAL.train(RunDir(Path("r")), None, None)
"""


@pytest.mark.parametrize("arguments", [[], ["train"]])
@pytest.mark.parametrize("name", ["", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_the_allocator_may_grow_its_segments_before_torch_is_imported(
    monkeypatch: pytest.MonkeyPatch, name: str, arguments: list[str]
) -> None:
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(variable, raising=False)
    if name:
        monkeypatch.setenv(name, "max_split_size_mb:64")
    argv = [sys.executable, "-c", ALLOCATOR, *arguments]
    out = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout
    assert out.strip() == str(
        {name: "max_split_size_mb:64"} if name else {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    )

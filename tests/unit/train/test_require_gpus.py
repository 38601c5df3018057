"""GPUs of a target or of this machine that jax or PyTorch does not see are refused, with the reason and what to type."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from podwright.errors import UserError
from podwright.train import devices, mesh
from podwright.train.multimodal.processes import world

CPU_BUILD = torch.version.cuda is None
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
        world.require_gpus(environment, num_here)
    assert f" has 2 GPU(s), and PyTorch {torch.__version__} sees 0: " in refused.value.what
    assert refused.value.fix.endswith(f"; to train on CPUs, {to_cpus}")
    if CPU_BUILD:
        assert refused.value.what.endswith("it is built for CPUs alone") and "pip install" in refused.value.fix


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
    world.require_gpus(environment, num_here)
    assert world.join(environment).device == torch.device("cpu")


def test_hidden_gpus_name_the_variable_that_hides_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(UserError, match=r"CUDA_VISIBLE_DEVICES=''; unset it there"):
        world.require_gpus({"PODWRIGHT_GPUS_PER_NODE": "2", "CUDA_VISIBLE_DEVICES": ""}, 0)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    world.require_gpus({"PODWRIGHT_GPUS_PER_NODE": "2", "LOCAL_RANK": "0"}, 0)
    with pytest.raises(UserError, match=r"sees 1, too few for process 1 of this host; lower tasks_per_node"):
        world.require_gpus({"PODWRIGHT_GPUS_PER_NODE": "2", "LOCAL_RANK": "1"}, 0)


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("PODWRIGHT_GPUS_PER_NODE", "JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_machine_with_gpus_that_jax_does_not_see_is_refused(variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / bus).mkdir()
    assert devices.num_nvidia_gpus(tmp_path) == 2 and devices.num_nvidia_gpus(tmp_path / "none") == 0
    with pytest.raises(
        UserError, match=r" has 2 GPU\(s\), and jax \S+ sees none; .*; to train on CPUs, type --on cpu-1"
    ):
        mesh.require_gpus(devices.num_nvidia_gpus(tmp_path))
    variables.setenv("PODWRIGHT_GPUS_PER_NODE", "4")
    with pytest.raises(UserError, match=r" has 4 GPU\(s\).*to train on CPUs, set gpus_per_node of the target to 0"):
        mesh.require_gpus(0)


@pytest.mark.parametrize("name", ["JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"])
def test_jax_trains_on_cpus_that_are_chosen(variables: pytest.MonkeyPatch, name: str) -> None:
    mesh.require_gpus(0)
    variables.setenv(name, "cpu" if name == "JAX_PLATFORMS" else "")
    mesh.require_gpus(2)


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

"""A part of the model on each of two processes against a copy on each, and against one process; and compiled against not."""

import copy
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from podwright.train.multimodal.processes import spread as parts
from podwright.train.multimodal.processes.spread import spread
from podwright.train.multimodal.processes.world import World
from tests.unit.train import two_processes
from tests.unit.train.two_processes import learner, loss, taken

ROOT = Path(__file__).resolve().parents[3]
CLOSE = {
    "adapters": 1e-5,
    "half": 2e-3,
    "whole": 1e-5,
    "compiled": 1e-5,
}  # of a loss of 6; float32 adds up in another order
MOVED = 2e-3  # a weight; AdamW takes a step of the learning rate where rounding decides on the sign of a gradient of nearly 0


Seen = dict[tuple[str, str], dict[str, Any]]


def together(out: Path, *cases: str) -> Seen:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    fixed = {
        "PYTHONPATH": str(ROOT),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    argv = [sys.executable, "-m", two_processes.__name__, str(out), *cases]
    started = [
        subprocess.Popen(
            argv,
            cwd=ROOT,
            env=os.environ | fixed | {"RANK": str(n), "LOCAL_RANK": str(n)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in (0, 1)
    ]
    said = [process.communicate(timeout=600)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)[-4000:]
    found: Seen = torch.load(out, weights_only=True)
    return found


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process alone, in which weights are parts as they are among several."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def in_parts(seed: int) -> tuple[nn.Sequential, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model, mesh = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)), init_device_mesh("cpu", (1,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(3, 4)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def whole_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parts.full_tensor(p.detach()).clone() for name, p in model.named_parameters()}


def test_an_optimizer_of_weights_in_parts_is_saved_whole_and_goes_on_where_it_was(alone: None) -> None:
    model, optimizer = in_parts(0)
    for _ in range(3):
        step(model, optimizer)
    saved, weights = copy.deepcopy(parts.optimizer_state(optimizer)), whole_weights(model)
    moments = [value for entry in saved["state"].values() for value in entry.values()]
    assert len(moments) == 12 and not any(isinstance(value, DTensor) for value in moments)
    step(model, optimizer)
    resumed, optimizer = in_parts(1)
    with torch.no_grad():
        for name, parameter in resumed.named_parameters():
            parameter.copy_(parts.like(parameter, weights[name]))
    parts.load_optimizer(optimizer, saved)
    moved = [entry["exp_avg"] for entry in optimizer.state_dict()["state"].values()]
    assert all(isinstance(value, DTensor) for value in moved), "each process has its part again"
    step(resumed, optimizer)
    after, expected = whole_weights(resumed), whole_weights(model)
    assert all(torch.equal(after[name], expected[name]) for name in expected)
    assert not any(torch.equal(after[name], weights[name]) for name in weights)


def test_weights_are_whole_only_while_answers_are_written(alone: None) -> None:
    model, _ = in_parts(0)
    with pytest.raises(ZeroDivisionError), parts.gathered(model):
        assert not any(isinstance(p, DTensor) for p in model.parameters()), "a process without answers makes no pass"
        model(torch.ones(3, 4))
        assert not any(isinstance(p, DTensor) for p in model.parameters()), "also after a forward pass"
        raise ZeroDivisionError
    assert all(isinstance(p, DTensor) for p in model.parameters())
    model(torch.ones(3, 4))
    assert all(isinstance(p, DTensor) for layer in model for p in layer.parameters())


def close(one: dict[str, Any], other: dict[str, Any], within: float) -> None:
    for a, b in zip(one["figures"], other["figures"], strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=within) and a["grad_norm"] == pytest.approx(
            b["grad_norm"], rel=10 * within
        )
        assert a.get("skipped") == b.get("skipped") and a["learning_rate"] == b["learning_rate"]
    assert one["end"].keys() == other["end"].keys()
    assert all(torch.allclose(x, other["end"][name], atol=MOVED) for name, x in one["end"].items())


def same(seen: Seen, case: str) -> None:
    """Between steps, answers of any number."""
    copies, parts = seen[case, "ddp"], seen[case, "fsdp"]
    close(copies, parts, CLOSE[case])
    assert parts["loss"] == pytest.approx(copies["loss"], rel=CLOSE[case])
    assert parts["own"] < 0.6 * copies["own"]
    for kind in ("fsdp from ddp", "ddp from fsdp"):
        rest = seen[case, kind]
        close({"figures": copies["figures"][2:], "end": copies["end"]}, rest, CLOSE[case])
    assert shape(copies["state"]) == shape(parts["state"])
    moments = [x["state"]["optimizer"]["state"] for x in (copies, parts)]
    assert all(torch.allclose(x["exp_avg"], moments[1][n]["exp_avg"], atol=1e-4) for n, x in moments[0].items())


def shape(state: Any) -> Any:
    """Names, shapes and dtypes of everything in a state."""
    if isinstance(state, torch.Tensor):
        return tuple(state.shape), state.dtype
    if isinstance(state, dict):
        return {key: shape(value) for key, value in state.items()}
    return [shape(x) for x in state] if isinstance(state, list) else state


def as_one_process(seen: Seen, case: str) -> None:
    one = learner(case, World(), "training.fsdp=true")
    alone = {"figures": taken(one, range(2))}
    assert loss(one, 4) == pytest.approx(seen[case, "fsdp"]["loss"], rel=CLOSE[case])
    alone = {"figures": alone["figures"] + taken(one, range(2, 3)), "end": one.trained()}
    close(alone, seen[case, "fsdp"], CLOSE[case])
    one.load(seen[case, "fsdp"]["state"])
    rest = {"figures": seen[case, "fsdp"]["figures"][2:], "end": seen[case, "fsdp"]["end"]}
    close(rest, {"figures": taken(one, range(2, 3)), "end": one.trained()}, CLOSE[case])


@pytest.mark.long
def test_parts_come_to_what_copies_come_to_and_so_does_one_process(tmp_path: Path) -> None:
    """Adapters beside frozen weights; a checkpoint of either is one of the other. tests/e2e has a whole run in parts."""
    seen = together(tmp_path / "seen.pt", "adapters")
    same(seen, "adapters")
    as_one_process(seen, "adapters")


@pytest.mark.long
def test_so_do_all_parameters_half_precision_and_compiled_layers(tmp_path: Path) -> None:
    """With layers computed again; a step that overflows is skipped on every process."""
    seen = together(tmp_path / "seen.pt", "whole", "half", "compiled")
    for case in ("whole", "half", "compiled"):
        same(seen, case)
    as_one_process(seen, "whole")
    found = seen["half", "overflow"]
    assert found["figures"][0]["skipped"] and not seen["half", "fsdp"]["figures"][0]["skipped"]
    assert all(torch.equal(x, found["end"][name]) for name, x in found["before"].items())


@pytest.mark.long
@pytest.mark.parametrize("extra", [(), ("model.gradient_checkpointing=true",)])
def test_compiled_layers_compute_the_same(extra: tuple[str, ...]) -> None:
    """One graph for all layers and lengths; answers between steps are not compiled."""
    counted = torch._dynamo.utils.counters
    plain, compiled = (learner("adapters", World(), *more, *extra) for more in ((), ("training.compile=true",)))
    counted.clear()
    for steps in (range(1), range(1, 3)):
        for one, other in zip(taken(plain, steps), taken(compiled, steps), strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-5) and one["grad_norm"] == pytest.approx(
                other["grad_norm"], rel=1e-4
            )
        with torch.compiler.set_stance("force_eager"):
            assert loss(compiled, 2) == pytest.approx(loss(plain, 2), rel=1e-5)
    assert counted["frames"]["ok"] == 1 and not counted["graph_break"], counted
    assert all(torch.allclose(x, compiled.trained()[name], atol=MOVED) for name, x in plain.trained().items())


def test_a_copy_of_the_model_on_each_process_is_made_without_a_warning(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            spread(torch.nn.Linear(2, 2), torch.nn.ModuleList(), World(size=2), fsdp=False)
    finally:
        torch.distributed.destroy_process_group()

"""Training on a real SLURM of two nodes, in a process on each: warned, kept in a bucket, robbed of nodes; the weights in the end."""

import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lab import slurm
from lab.bucket import EmulatedBucket
from podwright.counted_steps import read_steps
from podwright.rundir import RunDir
from tests.e2e import short_patience
from tests.e2e.conftest import Farm, wait_for
from tests.e2e.test_multimodal_run import SMALL
from tests.e2e.trainer import DEMO, TINY, figures, state

pytestmark = pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "there is one")

CATS = ("phase2-tiny", *SMALL, "training.max_steps=12")
TRAINED = (
    *(
        "almodel-tiny",
        "model.name=qwen3-micro",
        "optimizer.name=adamw",
        "mesh.fsdp=2",
        "data.num_documents=400",
        "batch_size=8",
    ),
    *(
        "sequence_length=64",
        "training.max_steps=12",
        "evaluation.every_n_steps=0",
        "evaluation.num_batches=1",
        "checkpoint.every_n_steps=4",
    ),
)

ENDLESS = ("training.max_steps=100000", "data.num_epochs=0", "checkpoint.every_n_steps=100000")


def trained(farm: Farm, what: tuple[str, ...], *argv: str) -> tuple[int, str, str]:
    farm.target("real", python=sys.executable, nodes=2)
    return farm.call("run", *what, "--name", "r", "--on", "real", *argv)


def uninterrupted(slurm_lab: slurm.Cluster, folder: Path, what: tuple[str, ...]) -> RunDir:
    """A process on each node."""
    farm = Farm(folder, slurm_lab)
    code, out, err = trained(farm, what)
    assert code == 0, (out, err)
    assert "process 1 of 2 on n2" in farm.path("attempts/1/log-1.txt").read_text()
    return RunDir(farm.path())


@pytest.fixture(scope="module")
def whole(slurm_lab: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return uninterrupted(slurm_lab, tmp_path_factory.mktemp("whole"), TRAINED)


@pytest.fixture(scope="module")
def cats(slurm_lab: slurm.Cluster, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return uninterrupted(slurm_lab, tmp_path_factory.mktemp("cats"), CATS)


def differences(run: RunDir, other: RunDir) -> list[str]:
    """Between two multimodal runs, bit for bit: what was trained, and what every step came to."""
    one, two = (torch.load(r.path / "model.pt", weights_only=True)["model_state_dict"] for r in (run, other))
    weights = [
        name
        for name in one.keys() | two.keys()
        if name not in one or name not in two or not torch.equal(one[name], two[name])
    ]
    first, second = (
        [[r[k] for k in ("step", "loss", "grad_norm")] for r in read_steps(r, "multimodal")] for r in (run, other)
    )
    steps = [f"{a} {b}" for a, b in itertools.zip_longest(first, second) if a != b]
    return [*sorted(weights)[:3], *steps]


def warned_once(farm: Farm, what: tuple[str, ...]) -> None:
    """A run that SLURM warns after its third step, and that finishes in the same job."""
    code, out, err = trained(farm, what, "--detach")
    assert code == 0, (out, err)
    farm.wait_for_step(3)
    farm.lab.call("scancel", "--signal=USR1", farm.job())
    farm.lab.hurry(farm.job())
    assert farm.call("watch", "r")[0] == 0
    assert farm.ended() == ["FINISHED"] and farm.submitted() == 1


@pytest.mark.long
def test_warned_multimodal_training_on_two_nodes_ends_with_the_weights_of_an_uninterrupted_one(
    farm: Farm, cats: RunDir
) -> None:
    warned_once(farm, CATS)
    (seen, *_) = [e for e in farm.records("events.jsonl") if e["event"] == "environment"]
    assert (
        seen["processes"] == 2 and next(e["step"] for e in farm.records("events.jsonl") if e["event"] == "resumed") >= 3
    )
    assert differences(RunDir(farm.path()), cats) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "says"), [(CATS, "has 1 GPU(s), and PyTorch "), (TRAINED, "has 1 GPU(s), and jax ")], ids=["torch", "jax"]
)
def test_gpus_of_the_target_that_nobody_sees_are_refused(farm: Farm, what: tuple[str, ...], says: str) -> None:
    farm.target("gpus", python=sys.executable, gpus_per_node=1)
    code, out, _ = farm.call(
        "run", *what, "mesh.fsdp=1" if what is TRAINED else "seed=1", "--name", "r", "--on", "gpus", "--force"
    )  # the plan refuses jax without its plugin
    assert code == 1 and farm.ended() == ["BAD_INPUT"] and says in out, out
    assert "to train on CPUs, set gpus_per_node of the target to 0" in out and not farm.records("metrics.jsonl")


@pytest.mark.long
def test_multimodal_training_that_loses_a_node_ends_with_the_weights_of_an_uninterrupted_one(
    farm: Farm, cats: RunDir
) -> None:
    assert trained(farm, CATS, "--detach")[0] == 0
    farm.wait_for_step(4)
    farm.lab.call("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    farm.lab.wait(lambda: farm.lab.state(farm.job()) == "PENDING")
    farm.lab.call("scontrol", "update", "NodeName=n2", "State=RESUME", check=False)
    farm.lab.hurry(farm.job())
    assert farm.call("watch", "r")[0] == 0
    assert farm.ended() == ["FINISHED"] and differences(RunDir(farm.path()), cats) == []


@pytest.mark.long
def test_a_warned_training_on_two_nodes_ends_with_the_weights_of_an_uninterrupted_one(
    farm: Farm, whole: RunDir
) -> None:
    warned_once(farm, TRAINED)
    (begun,) = [e["step"] for e in farm.records("events.jsonl") if e["event"] == "resumed"]
    assert 3 <= begun < 12 and json.loads(farm.path("attempts/1/starts/1/exit.json").read_text())["step"] == begun
    run = RunDir(farm.path())
    assert figures(run) == figures(whole) and state(run, 12) == state(whole, 12)


@pytest.mark.long
def test_a_training_that_loses_a_node_ends_with_the_weights_of_an_uninterrupted_one(farm: Farm, whole: RunDir) -> None:
    assert trained(farm, TRAINED, "--detach")[0] == 0
    farm.lab.wait((farm.path("checkpoints") / "4").is_dir)
    farm.lab.call("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    farm.lab.wait(lambda: farm.lab.state(farm.job()) == "PENDING")
    farm.lab.call("scontrol", "update", "NodeName=n2", "State=RESUME", check=False)
    farm.lab.hurry(farm.job())
    assert farm.call("watch", "r")[0] == 0
    assert farm.ended() == ["FINISHED"] and farm.submitted() == 1
    run = RunDir(farm.path())
    assert figures(run) == figures(whole) and state(run, 12) == state(whole, 12)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedBucket]:
    """For whatever is started here, and on the nodes."""
    with EmulatedBucket() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.mark.long
def test_a_training_kept_in_a_bucket_goes_on_from_there_as_often_as_it_is_warned(
    bucket: EmulatedBucket, farm: Farm
) -> None:
    farm.target("kept", python=sys.executable, nodes=2, storage=f"{bucket.url}/runs")
    asked = (*TRAINED, *ENDLESS, "--name", "r", "--on", "kept", "--detach")
    code, out, err = farm.call("run", *asked)
    assert code == 0, (out, err)
    url = json.loads(farm.path("storage.json").read_text())["url"]
    assert url.startswith(f"{bucket.url}/runs/r-")
    saved = []
    for start in (1, 2, 3):  # three starts without a new checkpoint would be the end
        farm.wait_for_step(saved[-1] + 3 if saved else 3)
        farm.lab.call("scancel", "--signal=USR1", farm.job())
        farm.lab.wait(lambda: farm.lab.state(farm.job()) == "PENDING", 120)
        assert farm.last_words(start)["why"] == "requeued"
        saved.append(json.loads(farm.path("attempts/1/exit.json").read_text())["step"])
        farm.lab.hurry(farm.job())
    elsewhere = ("--runs", str(farm.folder / "elsewhere"))
    watching = farm.start("watch", url, *elsewhere)
    farm.wait_for_step(saved[-1] + 3)
    assert farm.call("stop", "r")[0] == 0
    seen, err = watching.communicate(timeout=900)
    resumed = [e["step"] for e in farm.records("events.jsonl") if e["event"] == "resumed"]
    assert resumed == saved and farm.submitted() == 1 and farm.ended() == ["STOPPED"]
    last = farm.steps()[-1]
    assert farm.steps() == list(range(1, last + 1)), "no step is lost, and none is trained twice"
    # the states are in the bucket, a part of each host's own, and nowhere else
    assert not farm.path("checkpoints").exists()
    objects = bucket.names(f"{url.removeprefix(bucket.url)[1:]}/checkpoints/")
    committed = {int(found[1]) for name in objects if (found := re.search(r"/(\d+)/commit_success\.txt$", name))}
    assert committed == {saved[-1], last}
    parts = {found[1] for name in objects if (found := re.search(rf"/{last}/.*ocdbt\.process_(\d)/", name))}
    assert parts == {"0", "1"}
    # whoever has the URL sees the run, live and after
    assert "r: pretrain\n" in seen and f"r STOPPED at step {last}/" in seen, (seen, err)
    code, out, err = farm.call("report", url, *elsewhere, "--json")
    assert code == 0 and json.loads(out)["steps"] == last, (out, err)
    there = RunDir(farm.folder / "elsewhere" / "r")
    assert figures(there) == figures(RunDir(farm.path()))


@pytest.mark.long
def test_a_stopped_process_ends_a_jax_run_as_stalled_with_the_stacks_of_both(farm: Farm) -> None:
    farm.target("patient", python=short_patience.interpreter(farm.folder / "patient"), nodes=2)
    code, out, err = farm.call("run", *TRAINED, *ENDLESS, "--name", "r", "--on", "patient", "--detach")
    assert code == 0, (out, err)
    farm.wait_for_step(9)
    os.kill(short_patience.process(farm.path(), 1), signal.SIGSTOP)
    wait_for(farm.path("attempts/1/exit.json").exists, short_patience.LONGEST_S)
    farm.call("watch", "r")
    assert farm.ended() == ["STALLED"], farm.records("journal.jsonl")
    assert "rank 1 " in next(r for r in farm.records("journal.jsonl") if r["event"] == "ended")["detail"]
    short_patience.assert_stacks_of_both(RunDir(farm.path()), 1, "train/pretrain/loop.py")


@pytest.mark.long
def test_grpo_on_two_nodes_goes_on_after_a_warning(farm: Farm) -> None:
    farm.target("real", python=sys.executable, nodes=2)
    code, out, err = farm.call(
        "run", DEMO, *TINY, "mesh.fsdp=2", "training.max_steps=8", "--name", "r", "--on", "real", "--detach"
    )
    assert code == 0, (out, err)
    farm.lab.wait(lambda: any(r["stage"] == "grpo" and r["step"] == 2 for r in farm.records("metrics.jsonl")), 300)
    farm.lab.call("scancel", "--signal=USR1", farm.job())
    farm.lab.hurry(farm.job())
    farm.lab.wait(lambda: farm.lab.state(farm.job()) == "COMPLETED", 300)
    assert farm.call("resume", "r")[0] == 0
    assert farm.ended() == ["FINISHED"] and farm.submitted() == 1
    assert [e["step"] for e in farm.records("events.jsonl") if e["event"] == "resumed"][-1] >= 2

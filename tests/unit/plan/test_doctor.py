"""What a doctor says of machines, from what they told; and what this machine tells."""

import copy
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podwright.accelerators import GIB
from podwright.plan import kinds
from podwright.plan.checks.machines import absent, findings
from podwright.recipe.kinds import Recipe
from podwright.recipe.load import load
from podwright.train import facts

NODE: dict[str, Any] = {
    "host": "n1",
    "time": 0.0,
    "python": "3.11.7",
    "versions": {
        "jax": "0.10.2",
        "jax-cuda12-plugin": "0.10.2",
        "torch": "2.13.0",
        "transformers": "5.23.0",
        "peft": "0.21.2",
        "av": "17.1.0",
        "pillow": "12.3.0",
    },
    "cores": 64,
    "memory_bytes": 512 * GIB,
    "shm_bytes": 200 * GIB,
    "open_files": 65536,
    "driver": "570.86",
    "gpus": [{"name": "NVIDIA A100-SXM4-40GB", "memory_bytes": 40 * GIB, "used_bytes": 0}] * 4,
    "gpus_fault": "",
    "folders": {"/shared/runs": {"there": "/shared/runs", "fault": "", "free_bytes": 900 * GIB}},
    "peers": {"n1": "10.0.0.1", "n2": "10.0.0.2"},
    "files": {"/shared/data/train.jsonl": True},
    "storage": None,
}


def packages(recipe: Recipe) -> tuple[str, ...]:
    return kinds.of(recipe).needed(recipe)


def files(recipe: Recipe) -> list[str]:
    return kinds.of(recipe).files(recipe)


NEEDED = packages(load("phase2-tiny"))


def nodes(number: int = 3, **second: Any) -> list[dict[str, Any]]:
    """Machines alike but for what is said of the second."""
    made = [copy.deepcopy(NODE) | {"host": f"n{i + 1}"} for i in range(number)]
    made[1] |= second
    return made


def told(some: list[dict[str, Any]], **more: Any) -> list[str]:
    return [f"{f.level} {f.check}: {f.message}; {f.fix}" for f in findings(some, **more) if f.level != "info"]


def test_good_machines_are_only_introduced() -> None:
    assert told(nodes(), needed=NEEDED, gpus_wanted=4) == []
    (one, _, _) = findings(nodes())
    assert one.message == "n1: 64 cores, 512 GiB, 4 x NVIDIA A100-SXM4-40GB (driver 570.86), Python 3.11.7"


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"python": "3.12.1"}, "warning python: Python: 2 of 3 have 3.11.7, n2 has 3.12.1; use one environment"),
        (
            {"versions": NODE["versions"] | {"torch": "2.12.0"}},
            "error packages: torch: 2 of 3 have 2.13.0, n2 has 2.12.0",
        ),
        (
            {"versions": {"torch": "2.13.0"}},
            "error packages: n2 lacks transformers, av, pillow, peft; type there: pip install -e '.[torch]' in podwright's clone",
        ),
        ({"gpus": NODE["gpus"][:3]}, "error gpus: n2 has 3 GPUs, and 4 are wanted; lower gpus_per_node"),
        ({"driver": "535.1"}, "error gpus: the NVIDIA driver: 2 of 3 have 570.86, n2 has 535.1"),
        (
            {"gpus": [], "gpus_fault": "the package nvidia-ml-py is not installed"},
            "warning gpus: n2: its GPUs cannot be looked at (the package nvidia-ml-py is not installed); type there: pip install",
        ),
        (
            {"gpus": [*NODE["gpus"][:3], NODE["gpus"][0] | {"used_bytes": 20 * GIB}]},
            "warning gpus: n2: others hold up to 20.0 GiB of GPU 3; nvidia-smi there names them",
        ),
        (
            {"folders": {"/shared/runs": {"there": "/shared", "fault": "Read-only file system", "free_bytes": GIB}}},
            "error disk: n2: /shared/runs cannot be written (Read-only file system); make /shared writable there",
        ),
        (
            {"folders": {"/shared/runs": {"there": "/shared/runs", "fault": "", "free_bytes": GIB}}},
            "warning disk: n2: 1.0 GiB are free for /shared/runs; free some",
        ),
        (
            {"storage": {"url": "gs://b/runs", "fault": "there is no bucket b", "fix": "type this"}},
            "error storage: n2: there is no bucket b; type this",
        ),
        ({"shm_bytes": 64 << 20}, "warning memory: n2: /dev/shm has 0.06 GiB"),
        ({"open_files": 1024}, "warning limits: n2: a process may open 1024 files; raise the hard limit there"),
        (
            {"peers": {"n1": None, "n3": "10.0.0.3"}},
            "error names: n2 finds no address of n1; fix DNS or /etc/hosts there",
        ),
        (
            {"files": {"/shared/data/train.jsonl": False}},
            "error files: n2 does not see /shared/data/train.jsonl; put it on a file system",
        ),
        ({"time": -40.0}, "warning clock: the clock of n2 is 40 s off; have it follow an NTP server there"),
    ],
)
def test_the_machine_that_is_not_as_it_should_be_is_named(second: dict[str, Any], says: str) -> None:
    found = told(nodes(**second), needed=NEEDED, gpus_wanted=4)
    assert any(line.startswith(says) for line in found), found
    assert not any("n3" in line.partition(";")[0] for line in found)


def test_a_recipe_needs_its_packages_and_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = load("phase2-qwen2.5-0.5b-cluster")
    (line,) = told(nodes()[:1], needed=packages(cluster))
    assert line == "error packages: n1 lacks timm; type there: pip install -e '.[torch]' in podwright's clone"
    assert (
        told(nodes(), needed=packages(load("phase1-tiny")))
        == told(nodes(), needed=packages(load("qwen3-tiny-gsm8k-grpo")))
        == []
    )
    without = NODE["versions"] | {"jax-cuda12-plugin": ""}
    del without["jax-cuda12-plugin"]
    lines = told(nodes(1 + 1, versions=without), needed=packages(load("qwen3-tiny-gsm8k-grpo")), gpus_wanted=4)
    assert (
        "error packages: n2 has no jax for NVIDIA GPUs; type pip install -e '.[cuda12]' in podwright's clone there, or"
        in lines[0]
    )
    assert not told([nodes(2, versions=without)[1]], needed=packages(load("phase1-tiny")), gpus_wanted=4)
    monkeypatch.chdir(tmp_path)
    named = ["data/phase2", "checkpoints/alignment/aligner.pt", "models/Cnn14_16k_mAP=0.438.pth"]
    on_hub = load("phase2-qwen2.5-0.5b-cluster", ["model.source=Qwen/Qwen2.5-0.5B-Instruct"])
    assert files(on_hub) == named, "what may be a hub id is taken for one"
    (tmp_path / "models" / "Qwen2.5-0.5B-Instruct").mkdir(parents=True)
    (tmp_path / "data" / "phase2").mkdir(parents=True)
    assert files(cluster) == ["models/Qwen2.5-0.5B-Instruct", *named]
    assert [f.message for f in absent(files(cluster))] == [f"{name} is not there" for name in named[1:]]
    assert files(load("phase1-aligner"))[0] == "data/phase1" and "models/MiniLM-L6-H384-uncased" in files(
        load("phase1-aligner")
    )
    for name in ("phase2-tiny", "qwen3-1.7b-gsm8k-grpo", "qwen3-0.6b-pretrain", "almodel-tiny"):
        assert files(load(name)) == []


def linked(*slow: str, fault: str = "") -> list[dict[str, Any]]:
    """Five machines in a ring; those in `slow` have a bad link to either side."""
    made = [copy.deepcopy(NODE) | {"host": f"n{i}"} for i in range(5)]
    for i, node in enumerate(made):
        beside = {j: 1e9 if {node["host"], made[j]["host"]} & set(slow) else 10e9 for j in ((i - 1) % 5, (i + 1) % 5)}
        node["network"] = {"backend": "nccl", "met_s": 1.5, "all_reduce_bytes_per_s": 9e9, "neighbours": beside}
    if fault:
        made[2]["network"] = {"fault": fault}
    return made


def test_the_network_is_told_and_the_slow_machine_named() -> None:
    (info,) = [f.message for f in findings(linked()) if f.check == "network"]
    assert info == "5 machines met within 1.5 s and all-reduce at 9.00 GB/s each, by nccl"
    assert told(linked()) == []
    (line,) = told(linked("n3"))
    assert line.startswith(
        "warning network: n3 reaches 1.00 GB/s with its neighbours, where 10.00 GB/s are usual; leave it out"
    )
    nodes = linked(fault="The client socket has timed out")
    (line,) = told([node | {"meet": "10.0.0.9"} for node in nodes])
    assert "do not come together at 10.0.0.9: The client socket has timed out (n2); set address of the target" in line


def test_machines_that_meet_and_exchange_nothing_are_told_by_their_networks() -> None:
    silent = {"met": True, "interface": "eth1", "fault": "nothing is heard of the others within 25 s"}
    made = [copy.deepcopy(NODE) | {"host": f"n{i}", "meet": "n0", "network": dict(silent)} for i in range(2)]
    made[1]["network"]["interface"] = ""
    (line,) = told(made)
    assert line.startswith(
        "error network: the machines meet at n0 and exchange nothing (n0 by eth1, n1 by its own name): "
        "nothing is heard of the others within 25 s (n0, n1); open"
    )
    assert "open ports between them, or name their network in setup" in line
    made[1]["network"]["met"] = False
    assert "do not come together at n0" in told(made)[0]


def test_a_machine_that_cannot_try_the_network_is_no_fault_of_the_network() -> None:
    waits = {"met": False, "fault": "nothing is heard of the others within 25 s"}
    made = nodes(2, versions={"jax": "0.10.2"})
    made[0]["network"] = waits
    (finding,) = [f for f in findings(made) if f.check == "network"]
    assert finding.level == "inconclusive" and finding.message.endswith("PyTorch, by which it is tried, is not on n2")


def meeting(ports: list[int], patience_s: int) -> list[dict[str, Any]]:
    """What processes tell that are to meet at 127.0.0.1, each at its port."""
    peers = [word for i in range(len(ports)) for word in ("--peer", "localhost")]
    argv = [sys.executable, "-m", "podwright.train", "facts", *peers, "--patience", str(patience_s)]
    started = [
        subprocess.Popen([*argv, "--rank", str(rank), "--meet", f"127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True)
        for rank, port in enumerate(ports)
    ]
    return [json.loads(process.communicate()[0])["network"] for process in started]


@pytest.mark.long
def test_machines_that_meet_measure_their_links_and_others_say_why_not() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    one, *others = meeting([port] * 3, 60)
    assert one["backend"] == "gloo" and one["all_reduce_bytes_per_s"] > 1e6 and len(others) == 2
    assert set(one["neighbours"]) == {"1", "2"} and all(rate > 1e6 for rate in one["neighbours"].values())
    assert all("fault" in network for network in meeting([port, port + 1], 2))


def test_what_this_machine_tells(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir()
    found = facts.gather(
        [str(tmp_path / "runs" / "deep"), "/proc"], ["localhost", "no-such-node.invalid"], [str(tmp_path), "/no/such"]
    )
    assert found["host"] == socket.gethostname() and found["versions"]["jax"] and found["memory_bytes"] > GIB
    assert {"localhost": "127.0.0.1", "no-such-node.invalid": None}.items() <= found["peers"].items()
    assert set(found["peers"]) == {"localhost", "no-such-node.invalid", socket.gethostname()}, (
        "by its own name the others find it"
    )
    assert found["files"] == {str(tmp_path): True, "/no/such": False}
    deep = found["folders"][str(tmp_path / "runs" / "deep")]
    assert deep["there"] == str(tmp_path) and not deep["fault"] and deep["free_bytes"] > 0
    assert found["folders"]["/proc"]["fault"]


def test_a_machine_tells_whether_it_can_use_the_storage(tmp_path: Path) -> None:
    url = str(tmp_path)
    found = [facts.gather([], [], [], storage) for storage in (url, f"{url}/none", "")]
    assert [f["storage"] and (f["storage"]["fault"], f["storage"]["fix"][:8]) for f in found] == [
        ("", ""),
        (f"there is no folder {url}/none", "type mkd"),
        None,
    ]
    (said,) = [
        f.message for f in findings([found[0] | {"host": host} for host in ("n1", "n2")]) if f.check == "storage"
    ]
    assert said == f"2 machine(s) can write, read, list and delete in storage={url}"


def test_telling_loads_no_framework() -> None:
    code = "import sys; from podwright.train import facts; facts.gather([], [], []); print([m for m in ('jax', 'torch') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True
    )
    assert done.stdout.strip() == "[]"

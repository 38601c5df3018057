"""Two hosts whose own names stand for the loopback, as Debian and Ubuntu install them: `doctor` and both trainers, over a real sshd each."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import sshd
from tests.e2e.conftest import Bench
from tests.e2e.test_multimodal_run import SMALL
from tests.e2e.test_slurm_training import TRAINED
from tests.unit.train.test_interface import can_have_networks

LACKING = sshd.missing() or ("" if can_have_networks() else "no network of its own can be made here")
pytestmark = [pytest.mark.skipif(bool(LACKING), reason=LACKING or "there are some"), pytest.mark.long]
CATS = ("phase2-tiny", *SMALL, "training.max_steps=6")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.SeparateHosts]:
    with sshd.SeparateHosts(tmp_path_factory.getbasetemp()) as made:
        yield made


class Pair(Bench):
    """A bench whose target `lab` is the two hosts."""

    def __init__(self, folder: Path, lab: sshd.SeparateHosts, **settings: object) -> None:
        super().__init__(folder)
        given = {"kind": "ssh", "hosts": list(lab.addresses), "python": sys.executable, "folder": f"{lab.root}/disk"}
        given |= {"ssh": ["-F", f"{lab.root}/config"]} | settings
        (folder / "targets.yaml").write_text(yaml.safe_dump({"lab": given}))

    def start(self, *argv: str, **env: str):
        return super().start(*argv, PODWRIGHT_TARGETS=str(self.folder / "targets.yaml"), **env)


@pytest.fixture
def bench(tmp_path: Path, lab: sshd.SeparateHosts) -> Iterator[Pair]:
    made = Pair(tmp_path, lab)
    yield made
    made.close()


@pytest.mark.parametrize("recipe", [CATS, TRAINED], ids=["torch", "jax"])
def test_both_trainers_train_on_them(bench: Pair, recipe: tuple[str, ...]) -> None:
    code, out, err = bench.call("run", *recipe, "--name", "r", "--on", "lab", "--force")
    assert code == 0, (out, err, bench.path("attempts/1/log.txt").read_text()[-3000:])
    assert "process 1 of 2 on h2" in bench.path("attempts/1/log-1.txt").read_text()


def test_doctor_finds_that_they_meet(bench: Pair) -> None:
    _, out, err = bench.call("doctor", "--on", "lab", "--json")
    findings = [row for row in json.loads(out)["findings"] if row["check"] == "network"]
    assert [row["level"] for row in findings] == ["info"] and "2 machines met within" in findings[0]["message"], (out, err)  # fmt: skip


def test_doctor_says_within_half_a_minute_why_they_exchange_nothing(tmp_path: Path, lab: sshd.SeparateHosts) -> None:
    """With a network named that no other host is on."""
    bench = Pair(tmp_path, lab, setup=["export GLOO_SOCKET_IFNAME=lo"])
    begin = time.monotonic()
    code, out, err = bench.call("doctor", "--on", "lab", "--json")
    took, document = time.monotonic() - begin, json.loads(out)
    machines = document["machines"]
    (finding,) = [row for row in document["findings"] if row["check"] == "network"]
    assert code == 3 and document["verdict"] == "refused" and finding["level"] == "error", (out, err)
    assert "exchange nothing (h1 by lo, h2 by lo)" in finding["message"] and "GLOO_SOCKET_IFNAME" in finding["fix"]
    assert "can start a run" not in out and took < 120 and len(machines) == 2
    bench.close()

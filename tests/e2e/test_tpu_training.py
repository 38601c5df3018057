"""Real training on the simulated v6e-16: no capacity in one zone, granted in the next, taken away in the middle, and in the end the same weights."""

import json
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import _QUICK
from lab import cloud
from lab.bucket import EmulatedBucket
from lab.gcloud.control import Gcloud
from podwright.run import cost
from podwright.rundir import RunDir, read_jsonl
from tests.e2e.conftest import wait_for
from tests.e2e.test_tpu_vm import A, B, C, TpuBench, gcloud, lab  # noqa: F401
from tests.e2e.trainer import DEMO, TINY, figures, weights

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
POLL_S, LAG_S, CALL_S = 2.0, 6.0, 3.0
"""between two looks at the cloud; until an absence is believed; two calls of gcloud beside four trainers on two cores"""
CHIPS = 16
PATIENCE = {"POLL_S": str(POLL_S), "LAG_S": str(LAG_S), "CHECK_LIMIT_S": "180", "REST_S": "600"}
STEPS = 6
TRAINED = (
    DEMO,
    *TINY,
    "mesh.fsdp=16",
    "batch_size=16",
    "warm_start.batch_size=16",
    "evaluation.batch_size=16",
    "data.num_test=16",
    "rollout.total_generation_steps=24",
)
STOCKOUT = 'There is no more capacity in the zone "{zone}"; you can try in another zone'


class TrainingBench(TpuBench):
    """Runs of the tiny GRPO recipe as four processes of four devices each, on workers that share nothing but an emulated bucket."""

    def __init__(self, folder: Path, bucket: EmulatedBucket):
        flags = (
            f"export JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 XLA_FLAGS='--xla_force_host_platform_device_count=4 {_QUICK}'"
            " JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"
        )
        env = ["JAX_COMPILATION_CACHE_DIR", *bucket.environment, "HF_TOKEN"]
        super().__init__(folder, storage=f"{bucket.url}/runs", env=env, setup=[flags], python=sys.executable)
        self.bucket = bucket
        self.canary = f"canary-{secrets.token_hex(8)}"

    def train(self, name: str) -> "subprocess.Popen[str]":
        steps = f"training.max_steps={STEPS}"
        words = ("run", *TRAINED, steps, "--on", "tpu", "--name", name, "--force")
        return self.start(*words, **PATIENCE, HF_TOKEN=self.canary)

    def directory(self, name: str) -> RunDir:
        return RunDir(self.folder / "runs" / name)

    def committed(self, name: str, tree: str) -> bool:
        url = self.directory(name).storage_url
        place = url.removeprefix(f"{self.bucket.url}/")
        return bool(url and self.bucket.names(f"{place}/{tree}/commit_success.txt"))


def finished(launcher: "subprocess.Popen[str]") -> None:
    out, err = launcher.communicate(timeout=1500)
    assert launcher.returncode == 0, (out[-3000:], err[-3000:])


@pytest.mark.long
@pytest.mark.crowded
def test_a_run_from_no_capacity_over_a_preemption_ends_bit_for_bit_like_an_undisturbed_one(
    gcloud: Gcloud,  # noqa: F811
    lab: cloud.Lab,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with EmulatedBucket(host=lab.gateway) as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        bench = TrainingBench(tmp_path, bucket)
        began = time.monotonic()
        try:
            finished(bench.train("calm"))
            print(f"undisturbed: {time.monotonic() - began:.0f} s")
            paid = len(gcloud.ledger())
            began = time.monotonic()
            gcloud.fail_provisioning(STOCKOUT.format(zone=A), code=8)
            launcher = bench.train("robbed")
            wait_for(lambda: bench.committed("robbed", "checkpoints/2"), 1200)
            (first,) = (row for row in gcloud.resources() if row["kind"] == "node")
            assert first["zone"] == B
            gcloud.fail_provisioning(STOCKOUT.format(zone=A), code=8)
            gcloud.preempt(first["name"])
            finished(launcher)
            print(f"robbed: {time.monotonic() - began:.0f} s")
        finally:
            for name in ("calm", "robbed"):
                if bench.directory(name).journal.exists():
                    bench.call("stop", name)
            bench.close()
        assert gcloud.resources() == []
        ledger = gcloud.ledger()[paid:]
        assert [row["zone"] for row in ledger] == [B, C]
        robbed, calm = bench.directory("robbed"), bench.directory("calm")
        events = read_jsonl(robbed.journal)
        assert [r["ending"] for r in events if r["event"] == "ended"] == ["PREEMPTED", "FINISHED"]
        resumed = [r["step"] for r in read_jsonl(robbed.events) if r["event"] == "resumed"]
        assert resumed[0] in (2, 4) and len(resumed) == 1
        assert figures(robbed) == figures(calm) and len(figures(robbed)["grpo"]) == 6
        assert weights(robbed) == weights(calm)
        assert_cost(robbed, ledger)
        objects = {name: bucket.content(name) or b"" for name in bucket.names()}
        assert [name for name, content in objects.items() if bench.canary.encode() in content] == []
        assert any("/checkpoints/" in name for name in objects) and any("/records/" in name for name in objects)


def assert_cost(run: RunDir, ledger: list[dict[str, float]]) -> None:
    """Never less than the cloud charges, and more by what polling allows: of each slice one poll before it is ready, and one after it is
    gone, each with its calls of gcloud."""
    usage = cost.usage(read_jsonl(run.journal), time.time())
    assert usage and not usage.open
    charged = sum(row["chips"] * (row["gone_at"] - row["ready_at"]) for row in ledger) / 3600
    allowed = len(ledger) * CHIPS * 2 * (POLL_S + CALL_S) / 3600
    print(
        f"chip-hours: {usage.chip_hours:.4f} by the journal, {charged:.4f} by the cloud, {allowed:.4f} allowed between them"
    )
    assert charged - len(ledger) * CHIPS / 3600 <= usage.chip_hours <= charged + allowed
    reported = json.loads((run.path / "report" / "result.json").read_text())[
        "usage"
    ]  # written while the slice is being deleted
    assert charged - allowed <= reported["chip_hours"] <= usage.chip_hours

"""Values of variables that a target of kind gke passes on reach the trainer, by one Secret of the attempt, and nothing else: no file, no command
line of any process, no object of the cluster, no bucket, no log; also in a run that goes on after a loss of nodes."""

import json
import secrets
from dataclasses import asdict

import pytest

from lab.kube import controllers
from tests.canary import Watch
from tests.e2e.conftest import wait_for
from tests.e2e.test_gke_dry_run import OWN, Calls, bench  # noqa: F401

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")


class Secrecy:
    """Variables of the user that have the same canary in them, of which the target passes two on."""

    def __init__(self, bench: Calls) -> None:  # noqa: F811
        self.bench = bench
        self.canary = f"canary-{secrets.token_hex(8)}"
        passed = {"HF_TOKEN": f"{self.canary}-hub", "MY_KEY": f"{self.canary}-key"}
        bench.own |= passed
        bench.target()
        bench.record(bodies=False)
        (bench.folder / "tmp").mkdir()
        bench.more |= {"WANDB_API_KEY": f"{self.canary}-other", "TMPDIR": str(bench.folder / "tmp")}
        self.watch = Watch(self.canary, bench.folder, bucket=bench.emulated, kube=bench.kube)

    def a_life(self, words: tuple[str, ...], steps: int) -> None:
        """A dry run, a run that loses its nodes after `steps` steps and goes on, and verbs that show it."""
        own = self.bench
        with self.watch:
            printed = [*own.call(*words, "--dry-run", "--json")[1:]]
            launcher = own.start(*words)
            wait_for(lambda: launcher.poll() is not None or len(own.steps()) > steps)
            assert launcher.poll() is None, launcher.communicate()
            (pool,) = [row["name"] for row in own.gcloud.pools() if not row["foreign"]]
            own.gcloud.lose_node(pool, None)
            printed += launcher.communicate(timeout=900)
            for verb in (("list", "--json"), ("logs", "r"), ("report", "r"), ("target", "check", "pod")):
                printed += own.call(*verb)[1:]
        assert launcher.returncode == 0, printed
        endings = [record["ending"] for record in own.records("journal.jsonl") if record["event"] == "ended"]
        assert endings == ["NODE_LOST", "FINISHED"], endings
        assert self.watch.hits == set()
        requests = [own.calls.made(), own.kube.requests(), [asdict(request) for request in own.emulated.log]]
        assert self.canary not in "".join(printed) + json.dumps([requests, own.gcloud.calls()])
        assert {"kubectl", "gcloud"} <= self.watch.commands and {"journal.jsonl", "recipe.json"} <= self.watch.files


@pytest.mark.long
def test_a_secret_is_in_one_object_of_the_cluster_and_in_the_environment_of_processes_alone(bench: Calls) -> None:  # noqa: F811
    secrecy = Secrecy(bench)
    bench.own["CHAOS_STEP_S"] = "0.3"
    secrecy.a_life((*OWN, "mesh.fsdp=16", "training.max_steps=40"), 2)
    watch = secrecy.watch
    trainers = [command for command in watch.environments if "chaos_trainer.py" in command]
    assert trainers, "the trainer has it"
    assert len(watch.secrets) == 2 and all(name.startswith("pw-r-") for name in watch.secrets), "of each attempt"
    assert {"ConfigMap", "JobSet", "Job", "Pod", "Workload"} <= watch.kinds
    stored = {name.rpartition("/")[2] for name in watch.objects}
    assert {"journal.jsonl", "recipe.json"} <= stored, stored

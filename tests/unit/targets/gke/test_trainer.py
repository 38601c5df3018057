"""Recipes that podwright trains itself, as a JobSet: their code is in a ConfigMap, and each pod's script starts its process."""

import base64
import io
import json
import signal
import subprocess
import sys
import tarfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright import slices
from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.kinds import Recipe
from podwright.targets.base import Job
from podwright.targets.gke import rendering, trainer
from tests.unit.targets.gke.entry import gke
from tests.unit.targets.gke.rendered import Scripts

DEMO = "qwen3-tiny-arithmetic-grpo"
SUBMIT = f"submit_{DEMO.replace('-', '_')}.sh"


def demo(*overrides: str) -> Recipe:
    return load.load(DEMO, list(overrides))


def documents(recipe: Recipe, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """ConfigMap and JobSet."""
    files = rendering.render(recipe, gke(**{"topology": "v6e-16", "machine_type": "ct6e-standard-4t", **settings}), "pod", {}).files  # fmt: skip
    return yaml.safe_load(files["configmap.yaml"]), yaml.safe_load(files["jobset.yaml"])


def test_the_code_in_the_config_map_is_what_trains(tmp_path: Path) -> None:
    """The trainers are imported from it alone, which the JAX of this machine is enough for."""
    code, _ = documents(demo())
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(code["binaryData"]["code.tar.gz"]))) as tar:
        tar.extractall(tmp_path, filter="data")
        assert {member.mtime for member in tar.getmembers()} == {0} and len(tar.getmembers()) > 100
    lines = "import podwright.train.grpo.loop, podwright.train.pretrain.loop, podwright.train.attempt\n"
    lines += "from podwright.failures.match import match\nassert match('CUDA out of memory', 'trainer')\nprint(podwright.__file__)"
    env = {"PYTHONPATH": str(tmp_path / "code"), "PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-P", "-c", lines], env=env, capture_output=True, text=True, check=True, cwd=tmp_path)  # fmt: skip
    assert done.stdout.strip() == str(tmp_path / "code/podwright/__init__.py")
    assert not (tmp_path / "code/podwright/cli").exists()


def test_a_config_map_has_the_hash_of_its_contents_in_its_name() -> None:
    code, jobset = documents(demo())
    assert code == documents(demo())[0] and code["immutable"] is True
    assert 0.5e6 < len(json.dumps(code)) < 0.7e6, "docs/gke.md says its size"
    name = code["metadata"]["name"]
    assert name != documents(demo("training.max_steps=7"))[0]["metadata"]["name"]
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert {"name": "code", "configMap": {"name": name, "defaultMode": 0o755}} in pod["spec"]["volumes"]
    assert jobset["metadata"]["labels"]["podwright-code"] == name.removeprefix("podwright-")
    assert load.parse(json.loads(code["data"]["recipe.json"])) == demo()


def test_a_config_map_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "LARGEST_BYTES", 100_000)
    with pytest.raises(UserError, match="bytes as a ConfigMap, which holds 100,000"):
        documents(demo())


def test_the_lock_has_every_package_of_a_tpu_vm_and_hashes() -> None:
    def pins(text: str) -> set[str]:
        return {line.split()[0] for line in text.splitlines() if line and not line.startswith("#")}

    lock = trainer.requirements()
    assert pins(lock) == pins((resources.files("podwright.targets.tpu_vm") / "requirements.txt").read_text())
    rows = [line for line in lock.splitlines() if not line.startswith("#")]
    assert len(rows) > 90 and all(" --hash=sha256:" in row for row in rows)


def test_a_pod_takes_a_public_image_and_no_secret_is_written() -> None:
    _, jobset = documents(demo(), python_image="python:3.12@sha256:" + "a" * 64, queue="mine", priority="low")
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "python:3.12@sha256:" + "a" * 64 and pod["priorityClassName"] == "low"
    assert container["envFrom"] == [{"secretRef": {"name": "podwright-env", "optional": True}}]
    assert container["resources"] == {"limits": {"google.com/tpu": 4}}
    assert container["command"][-2:] == ["--storage", "gs://my-bucket/runs/${WORKLOAD_NAME}"]
    assert (job["parallelism"], job["completions"], job["backoffLimit"]) == (4, 4, 0)
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "mine"
    assert "@sha256:" in gke().python_image


@pytest.mark.parametrize(
    ("recipe", "settings", "refusal"),
    [
        (demo(), {"topology": ""}, "has no topology, and the recipe names none; set topology"),
        (demo("model.source=/usr"), {}, "model.source=/usr is on this machine, and pods do not have it"),
        (load.load("phase1-tiny"), {}, "a recipe of kind contrastive cannot be rendered for GKE"),
    ],
)  # fmt: skip
def test_what_cannot_run_in_pods_is_refused(recipe: Recipe, settings: dict[str, Any], refusal: str) -> None:
    with pytest.raises(UserError) as refused:
        documents(recipe, **settings)
    assert refusal in str(refused.value)


PYTHON = """#!/bin/bash
[ "$1" = -m ] || exit 1  # no metadata server
echo "$JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID"; echo "$PWD $@"
"""


class Pod:
    """The files of a ConfigMap, and stand-ins for python and pip."""

    def __init__(self, folder: Path, python: str = PYTHON, pip: str = 'echo "pip $*"', **settings: Any) -> None:
        config, manifest = documents(demo(), **settings)
        self.folder, (self.tmp, there) = folder, (folder / "tmp", folder / "bin")
        for path in (self.tmp, there):
            path.mkdir()
        for name, text in config["data"].items():
            (folder / name).write_text(text)
        (folder / "code.tar.gz").write_bytes(base64.b64decode(config["binaryData"]["code.tar.gz"]))
        for name, text in {"python": python, "pip": f"#!/bin/bash\n{pip}\n"}.items():
            (there / name).write_text(text)
            (there / name).chmod(0o755)
        (container,) = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
        self.argv = [
            str(folder / "start.sh") if word == "/podwright/start.sh" else word for word in container["command"]
        ]

    def start(self, **given: str) -> "subprocess.Popen[str]":
        env = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "TMPDIR": str(self.tmp), **given}
        return subprocess.Popen(
            [word.replace("${WORKLOAD_NAME}", "r") for word in self.argv],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, **given: str) -> tuple[int, str]:
        process = self.start(**given)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out

    def written(self, pattern: str) -> str:
        (path,) = self.tmp.glob(f"podwright.*/{pattern}")
        return path.read_text()


def hosts(number: int) -> str:
    return ",".join(f"h{k}" for k in range(number))


@pytest.mark.parametrize(
    ("topology", "given", "code", "lines"),
    [
        (
            "v6e-16",
            {"TPU_WORKER_HOSTNAMES": hosts(4), "TPU_WORKER_ID": "2"},
            0,
            ["h0:8476 4 2", "-m podwright.train runs/r --attempt 1 --storage gs://my-bucket/runs/r\n"],
        ),
        ("v6e-4", {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"}, 0, ["\n  \n", "--attempt 1"]),
        ("v6e-4", {}, 0, ["process 0 of 1"]),
        (
            "v6e-16",
            {"TPU_WORKER_HOSTNAMES": hosts(2), "TPU_WORKER_ID": "1"},
            1,
            ["the slice has 4 hosts, and TPU_WORKER_HOSTNAMES names 2: h0,h1"],
        ),
    ],
)
def test_a_pod_starts_its_process(
    tmp_path: Path, topology: str, given: dict[str, str], code: int, lines: list[str]
) -> None:
    pod = Pod(tmp_path, topology=topology)
    status, out = pod.run(**given)
    assert status == code and all(line in out for line in lines), out
    if code == 0:
        log = "log-2.txt" if given.get("TPU_WORKER_ID") == "2" else "log.txt"
        assert "--require-hashes" in out and pod.written(f"runs/r/attempts/1/{log}") == out
        assert json.loads(pod.written("runs/r/recipe.json"))["kind"] == "grpo"
        assert pod.written("code/podwright/train/attempt.py")


def test_processes_of_several_slices_meet_at_the_first_host_of_the_first_slice() -> None:
    job = Job(Path("r"), 1, Path())
    script = trainer.start_script(job, slices.parse("2x v6e-16"), 8476)
    assert "rank=$((MEGASCALE_SLICE_ID * 4 + rank))" in script and "JAX_NUM_PROCESSES=8 " in script


SLOW = """#!/bin/bash
[ "$1" = -m ] || exit 1
trap 'echo saving; sleep 0.3; echo saved; exit 3' TERM
echo training; for _ in {1..600}; do sleep 0.1; done
"""


@pytest.mark.parametrize(
    ("pip", "python", "waited", "code", "last"),
    [
        ("true", SLOW, "training\n", 3, "saving\nsaved\n"),
        ("echo installing; exec sleep 60", SLOW, "installing\n", 143, "installing\n"),
    ],
)
def test_a_signal_reaches_the_process_and_its_exit_code_is_that_of_the_container(
    tmp_path: Path, pip: str, python: str, waited: str, code: int, last: str
) -> None:
    process = Pod(tmp_path, python, pip, topology="v6e-4").start()
    assert process.stdout
    lines = []
    while not lines or lines[-1] != waited:
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    lines += process.stdout.readlines()
    assert process.wait(30) == code and time.monotonic() - began < 30
    assert "".join(lines).endswith(last), lines


def test_a_signal_that_comes_before_all_else_is_not_lost(tmp_path: Path) -> None:
    pod = Pod(tmp_path, SLOW, "exec sleep 60", topology="v6e-4")
    first = tmp_path / "bin" / "mktemp"
    first.write_text('#!/bin/bash\nkill -TERM $PPID\nexec /usr/bin/mktemp "$@"\n')
    first.chmod(0o755)
    code, out = pod.run()
    assert code == 143 and "training" not in out, out


AT_ONCE = """#!/bin/bash
[ "$1" = -m ] || exit 1
trap 'echo saving; left=3' TERM
kill -TERM $PPID
left=30; while [ $((left -= 1)) -ge 0 ]; do sleep 0.1; done
exit 3
"""


def test_a_signal_that_comes_while_the_process_is_being_started_reaches_it_once(tmp_path: Path) -> None:
    pod = Pod(tmp_path, AT_ONCE, "true", topology="v6e-4")
    script = tmp_path / "start.sh"
    script.write_text(script.read_text().replace("  child=$!\n", "  sleep 0.5; child=$!\n"))  # a slow machine
    code, out = pod.run()
    assert code == 3 and out.count("saving\n") == 1, out


def test_a_process_that_is_killed_is_seen_in_the_exit_code_of_the_container(tmp_path: Path) -> None:
    pod = Pod(tmp_path, "#!/bin/bash\necho training; kill -KILL $$", topology="v6e-4")
    code, out = pod.run()
    assert code == 137 and "\ntraining\n" in out and pod.written("runs/r/attempts/1/log.txt") == out


def test_the_code_is_created_once_and_goes_with_the_last_run(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, demo(), topology="v6e-16", machine_type="ct6e-standard-4t")
    assert scripts.run(SUBMIT)[0] == 0
    verbs = [argv[3:] for argv in scripts.calls("kubectl")]
    assert [words[:2] for words in verbs] == [
        ["get", "jobset"],
        ["get", "configmap"],
        ["create", "-f"],
        ["create", "-f"],
    ]
    assert verbs[2][2].endswith("/configmap.yaml") and scripts.run(SUBMIT, "xpk")[0] == 1
    assert scripts.run(SUBMIT, answers={"*get configmap*": "configmap/x"})[0] == 0
    assert [argv[3] for argv in scripts.calls("kubectl")].count("create") == 1
    for others, deleted in (("", True), ("jobset/other", False)):
        assert scripts.run("cleanup.sh", "r", answers={"*get jobset --selector=*": others})[0] == 0
        assert (["delete", "configmap"] in [argv[3:5] for argv in scripts.calls("kubectl")]) == deleted

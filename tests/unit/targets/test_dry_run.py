"""What a dry run prints on each target: the commands and files of a run, with names in capitals for what is known when the run is created."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from podwright.cli.dry_run import LATER
from podwright.recipe import load
from podwright.shell import Shell
from podwright.storage import url_of_run
from podwright.targets.base import Job, Target
from podwright.targets.gke.target import Gke
from podwright.targets.machines import HostAddress
from podwright.targets.settings.slurm import SlurmSettings
from podwright.targets.settings.ssh import SshSettings
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.slurm import Slurm
from podwright.targets.ssh import Ssh
from podwright.targets.tpu_vm import ssh_key
from podwright.targets.tpu_vm.target import TpuVm
from tests.unit.targets.gke.entry import gke

RUN, CREATED, BASE = Path("/runs/r"), 1_790_000_000.25, "gs://my-bucket/runs"
SPOT = {"provisioning": "spot", "topology": "v6e-16"}
VM = {"kind": "tpu-vm", "project": "my-project", "zones": ["us-east5-b"], "accelerator_type": "v6e-16", "storage": BASE}
TARGETS = {
    "gke with pools": Gke(Shell(), "pod", gke(**SPOT)),
    "gke": Gke(Shell(), "pod", gke(topology="v6e-16")),
    "tpu-vm": TpuVm(Shell(), "vm", TpuVmSettings.model_validate(VM)),
    "ssh": Ssh(Shell(), "boxes", SshSettings(kind="ssh", hosts=("a", "b"))),
    "slurm": Slurm(Shell(), "lab", SlurmSettings(kind="slurm", python="/usr/bin/python3")),
}


def words(target: Target, created: float | None) -> list[str]:
    """Of what a dry run prints, or, of a run that was `created` then, of what is submitted."""
    request = target.provisioner.describe_request(RUN, created, 1, ()) if target.provisioner else None
    recipe = load.load("qwen3-tiny-arithmetic-grpo", []).model_dump(mode="json")
    storage = url_of_run(BASE, RUN.name, created) if target.traits.storage else ""
    command = ("{python}", "-m", "podwright.train", "{run_dir}", *(("--storage", "{storage}") if storage else ()))
    name = request.name if request else ""
    job = Job(RUN, 1, Path("/"), created, command, storage=storage, allocation=name, recipe=recipe)
    hosts = tuple(HostAddress(f"h-{n}", f"10.0.0.{n}") for n in range(4)) if request else None
    rendered = target.render(job, hosts)
    files = {str(path): text for path, text in rendered.files.items()}
    printed = json.dumps([asdict(request) if request else None, rendered.argv, rendered.env, files])
    key = ssh_key.private_key().with_suffix(".pub")
    if key.exists():
        printed = printed.replace(key.read_text().strip(), "PUBLIC_KEY")
    return re.findall(r"\w+", printed)


@pytest.mark.parametrize("name", TARGETS)
def test_what_depends_on_the_time_is_a_name_in_capitals(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_key, "folder", lambda: tmp_path)
    dry = words(TARGETS[name], None)
    created_by_dry_run = list(tmp_path.iterdir())
    first, second = (words(TARGETS[name], created) for created in (CREATED, CREATED + 1000.0))
    assert not created_by_dry_run, "a dry run creates nothing"
    assert len(dry) == len(first) == len(second)
    names = {shown for shown, one, other in zip(dry, first, second, strict=True) if one != other}
    assert names & {"TAG", "PORT"} and all(map(LATER.fullmatch, names))
    assert all(shown == one for shown, one in zip(dry, first, strict=True) if shown not in names)

"""The simulated gcloud accepts and refuses the command lines that the real one accepts and refuses, where that is installed."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.gcloud import surface, surface_gke

REAL = shutil.which("gcloud")
PLACE = ["--project=p", "--zone=z", "--format=json", "--quiet"]
SAMPLE = {"node-count": "2", "reservation-host-project": "h", "queue-count": "2", "format": "json", "limit": "3"}
SAMPLE |= {
    "page-size": "5",
    "metadata": "a=b",
    "labels": "a=b",
    "metadata-from-file": "a=/etc/hostname",
    "data-disk": "source=d",
}
SAMPLE |= {
    "update-labels": "a=b",
    "update-metadata": "a=b",
    "attach-disk": "source=d",
    "valid-until-time": "2030-01-01T00:00:00Z",
}
SAMPLE |= {
    "valid-after-time": "2030-01-01T00:00:00Z",
    "boot-disk": "kms-key=k",
    "network-config": "network=n",
    "verbosity": "info",
}
SAMPLE |= {
    "local-host-port": "localhost:80",
    "min-duration": "3600s",
    "accelerator-type": "v6e-16",
    "type": "v2",
    "topology": "4x4",
}
SAMPLE |= dict.fromkeys(("valid-until-duration", "valid-after-duration", "max-run-duration"), "6h")
SAMPLE |= {"lifetime": "3600", "workload-type": "availability-optimized"}
GKE_SAMPLE = {
    "type": "HIGH_THROUGHPUT",
    "max-topology-distance": "BLOCK",
    "max-pods-per-node": "15",
    "disk-size": "50GB",
}
GKE_SAMPLE |= {"num-nodes": "4", "min-nodes": "0", "max-nodes": "4", "total-min-nodes": "0", "total-max-nodes": "4"}
GKE_SAMPLE |= {"placement-type": "COMPACT", "location-policy": "ANY", "reservation-affinity": "specific"}
GKE_SAMPLE |= {"workload-metadata": "GKE_METADATA", "disk-type": "pd-ssd", "node-taints": "a=b:NoSchedule"}
GKE_SAMPLE |= {"node-labels": "a=b", "accelerator": "type=nvidia-l4,count=1", "timeout": "60", "tpu-topology": "4x4"}
GKE_SAMPLE |= {
    "additional-node-network": "network=n,subnetwork=s",
    "additional-pod-network": "subnetwork=s,pod-ipv4-range=r",
}
GKE_SAMPLE |= {"create-pod-ipv4-range": "name=r,range=/21", "data-cache-count": "1", "local-ssd-count": "1"}
GKE_SAMPLE |= {
    "max-surge-upgrade": "1",
    "max-unavailable-upgrade": "1",
    "min-provision-nodes": "1",
    "sandbox": "type=gvisor",
}
GKE_SAMPLE |= {
    "node-pool-soak-duration": "60s",
    "opportunistic-maintenance": "node-idle-time=600s,window=600s,min-nodes=1",
}
GKE_SAMPLE |= {"resource-manager-tags": "a/b=c", "secondary-boot-disk": "disk-image=d", "threads-per-core": "1"}
GKE_SAMPLE |= {"host-maintenance-interval": "PERIODIC"}
GKE_SAMPLE |= {"system-config-from-file": "/etc/hostname"}
NOT_TOGETHER = [
    {"node-id", "node-count"},
    {"node-id", "node-prefix"},
    {"node-id", "workload-type"},
    {"accelerator-type", "type"},
    {"accelerator-type", "topology"},
    {"clear-labels", "remove-labels"},
    {"clear-tags", "remove-tags"},
    {"clear-metadata", "remove-metadata"},
    {"metadata-from-file", "update-metadata"},
    {"metadata-from-file", "clear-metadata"},
    {"metadata-from-file", "remove-metadata"},
    {"attach-disk", "detach-disk"},
    {"network-config", "network"},
    {"network-config", "subnetwork"},
    {"network-config", "internal-ips"},
    {"reservation", "reservation-host-project"},
    {"reservation", "reservation-host-folder"},
    {"reservation", "reservation-host-organization"},
    {"local-host-port", "listen-on-stdin"},
    {"enabled", "available"},
    {"location", "region"},
    {"location", "zone"},
    {"region", "zone"},
    {"dns-endpoint", "internal-ip"},
    {"accelerator-topology", "max-topology-distance"},
    {"labels", "node-labels"},
    {"labels", "node-taints"},
    {"node-labels", "node-taints"},
    {"create-pod-ipv4-range", "pod-ipv4-range"},
]


def lines(command: tuple[str, ...], track: str) -> Iterator[list[str]]:
    """Command lines that together have every flag of a command once."""
    spec = surface.COMMANDS[command]
    flags = [*spec.flags, *(spec.alpha if track == "alpha" else ()), *(spec.beta if track else ())]
    flags = [flag for flag in [*flags, *surface.EVERYWHERE] if flag not in surface_gke.NEWER]
    needed = [name for name in spec.required]
    if command == (*surface.QUEUED, "create"):
        needed += ["node-id", "accelerator-type"]
    elif command == (*surface.VM, "create"):
        needed += ["accelerator-type"]
    if spec.exactly_one:
        needed.append(spec.exactly_one[0])
    left = [flag for flag in flags if flag not in needed]
    while left:
        chosen: list[str] = []
        for flag in left:
            if not any(pair <= {*chosen, flag} for pair in NOT_TOGETHER):
                chosen.append(flag)
        left = [flag for flag in left if flag not in chosen]
        base = [n for n in needed if not any({n, flag} in NOT_TOGETHER for flag in chosen)]
        if "node-prefix" in chosen and "node-count" not in chosen:
            base.append("node-count")
        if "topology" in chosen or "type" in chosen:
            base += [name for name in ("type", "topology") if name not in chosen]
        words = [f"--{flag}={sample(command, flag)}" if takes(spec, flag) else f"--{flag}" for flag in [*base, *chosen]]
        yield [*filter(None, (track,)), *command, *names(command), *words]


def sample(command: tuple[str, ...], flag: str) -> str:
    own = GKE_SAMPLE if command in surface_gke.COMMANDS else {}
    return own.get(flag) or SAMPLE.get(flag, "a")


def takes(spec: surface.Command, flag: str) -> int:
    return (surface.EVERYWHERE | spec.flags | spec.alpha | spec.beta)[flag]


def names(command: tuple[str, ...]) -> list[str]:
    if command == ("compute", "start-iap-tunnel"):
        return ["i", "22"]
    if command[:2] == ("config", "list") or not surface.COMMANDS[command].positional:
        return []
    return ["gs://b" if command[0] == "storage" else "n"]


REFUSED = [
    "compute tpus queued-resources create q --node-id=n --accelerator-type=v6e-16 --runtime-version=r --max-run-duration=6h",
    "compute tpus queued-resources create q --node-id=n --accelerator-type=v6e-16 --runtime-version=r --provisioning-model=spot",
    "compute tpus queued-resources create q --node-id=n --accelerator-type=v6e-16 --spot",
    "compute tpus queued-resources create q --accelerator-type=v6e-16 --runtime-version=r",
    "compute tpus queued-resources create q --node-id=n --node-count=2 --accelerator-type=v6e-16 --runtime-version=r",
    "compute tpus queued-resources create q --node-id=n --runtime-version=r",
    "compute tpus queued-resources create --node-id=n --accelerator-type=v6e-16 --runtime-version=r",
    "compute tpus queued-resources describe",
    "compute tpus queued-resources describe q r",
    "compute tpus queued-resources list q",
    "compute tpus queued-resources list --labels=a=b",
    "compute tpus queued-resources delete q --preserve",
    "compute tpus queued-resources update q --update-labels=a=b",
    "beta compute tpus queued-resources list",
    "beta compute tpus tpu-vm list",
    "alpha version",
    "compute tpus tpu-vm create n --accelerator-type=v6e-16 --version=r --max-run-duration=6h",
    "alpha compute tpus tpu-vm create n --accelerator-type=v6e-16 --version=r --max-run-duration=6h",
    "compute tpus tpu-vm create n --accelerator-type=v6e-16",
    "compute tpus tpu-vm create n --accelerator-type=v6e-16 --version=r --node-id=n",
    "compute tpus tpu-vm delete n --force",
    "compute tpus tpu-vm update n --labels=a=b",
    "compute tpus operations list",
    "compute tpus",
    "frob list",
    "container node-pools create n --cluster=c --location=l --acceleratorTopology=4x4",
    "container node-pools create n --cluster=c --location=l --zone=z",
    "container node-pools create n --cluster=c --location=l --num-nodes=several",
    "container node-pools create n --cluster=c --location=l --reservation-affinity=some",
    "container node-pools create n --cluster=c --location=l --placement-type=compact",
    "container node-pools create n --cluster=c --location=l --accelerator-topology=4x4",
    "container node-pools create n --cluster=c --location=l --location-policy=any",
    "container node-pools create n --cluster=c --location=l --reservation-affinity=SPECIFIC",
    "container node-pools update n --cluster=c --location=l",
    "container node-pools update n --cluster=c --location=l --labels=a=b --node-labels=a=b",
    "container node-pools create n --cluster=c --location=l --enable-gvnic --force",
    "container node-pools create --cluster=c --location=l",
    "container node-pools create n --cluster=c --location=l --accelerator-network-profile=auto",
    "container node-pools create n --cluster=c --location=l --host-maintenance-interval=PERIODIC",
    "container node-pools delete n --cluster=c --location=l --force",
    "container node-pools list n --cluster=c --location=l",
    "container node-pools cancel n --cluster=c --location=l",
    "container clusters describe --location=l",
    "container clusters get-credentials c --location=l --cluster=c",
    "container operations describe --location=l",
    "container operations list --cluster=c --location=l",
    "compute resource-policies create workload-policy w --region=r --accelerator-topology=4x4x8",
    "compute resource-policies create workload-policy w --region=r --type=HIGH_THROUGHPUT --accelerator-topology-mode=m",
    "compute resource-policies create workload-policy w --region=r --type=THROUGHPUT",
    "compute resource-policies create workload-policy w --region=r --type=HIGH_THROUGHPUT --async",
    "compute resource-policies delete w --region=r --async",
    "compute reservations describe r --location=z",
    "alpha compute workload-policies create w --region=r",
]


def accepted_lines() -> list[list[str]]:
    return [
        line
        for command, spec in surface.COMMANDS.items()
        for track in spec.tracks[:2]
        for line in lines(command, track)
    ]


def refused_lines() -> list[list[str]]:
    return [[*line.split(), *(PLACE if "tpus" in line and "list" not in line.split()[:4] else [])] for line in REFUSED]


def is_accepted(argv: list[str]) -> bool:
    try:
        surface.parse(argv)
    except surface.Refusal:
        return False
    return True


def test_the_simulated_gcloud_accepts_every_flag_of_its_tables_and_nothing_else() -> None:
    assert [argv for argv in accepted_lines() if not is_accepted(argv)] == []
    assert [argv for argv in refused_lines() if is_accepted(argv)] == []


@pytest.mark.long
@pytest.mark.skipif(not REAL, reason="gcloud is not installed")
def test_the_simulated_gcloud_accepts_what_the_real_one_accepts(tmp_path: Path) -> None:
    argvs = accepted_lines() + refused_lines()
    rows = [{"command_string": " ".join(["gcloud", *argv])} for argv in argvs]
    (tmp_path / "commands.json").write_text(json.dumps(rows))
    argv = ["gcloud", "meta", "lint-gcloud-commands", f"--commands-file={tmp_path}/commands.json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    verdicts = {row["command_string"]: row for row in json.loads(done.stdout)}
    assert len(verdicts) == len(argvs)
    wrong = []
    for row, verdict in zip(argvs, verdicts.values(), strict=True):
        accepted = is_accepted(row)
        if accepted != verdict["success"]:
            wrong.append((" ".join(row), accepted, verdict["error_message"]))
    assert not wrong, "\n".join(map(str, wrong))

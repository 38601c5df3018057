"""Problems of a target as its machines are now: findings from the facts that each of them told (train/facts.py). Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from podwright import extras
from podwright.accelerators import GIB
from podwright.errors import counted, listed
from podwright.plan.findings import MISSING_PACKAGE, Finding, Level
from podwright.rundir import Record

Facts = Record

_SKEW_S = 10.0  # checkpoints and logs of several machines are ordered by their clocks
_LEAST_FREE = 10 * GIB
_LEAST_SHM = 1 * GIB
_LEAST_FILES = 4096
_SLOW = 0.5  # of the usual rate
_USED = 1 * GIB  # of a GPU's memory that others may hold


def absent(some: Sequence[str]) -> list[Finding]:
    """Of files that a target is given from here."""
    missing = [file for file in some if not Path(file).exists()]
    return [Finding("files", "error", f"{file} is not there", "check the path", "no-such-file") for file in missing]


def findings(nodes: Sequence[Facts], needed: Sequence[str] = (), gpus_wanted: int = 0) -> list[Finding]:
    """`nodes`: a machine each. `needed`: packages of the recipe that is to run there; `gpus_wanted`: on each node."""
    results = [Finding("machines", "info", _description(node)) for node in nodes]
    for node in nodes:
        results += _packages(node, needed, gpus_wanted)
        results += [*_gpus(node, gpus_wanted), *_folders(node), *_limits(node), *_peers_and_files(node)]
    results += _storage(nodes)
    if len(nodes) > 1:
        results += _alike(nodes, "python", "warning", "Python", lambda node: node["python"])
        for name in sorted({name for node in nodes for name in node["versions"]}):
            results += _alike(nodes, "packages", "error", name, lambda node, name=name: node["versions"].get(name, "none"))  # type: ignore[misc]  # fmt: skip
        results += _alike(nodes, "gpus", "error", "the GPUs", lambda node: _kinds(node) or "none")
        results += _alike(nodes, "gpus", "error", "the NVIDIA driver", lambda node: node["driver"] or "none")
        results += [*_clock(nodes), *_network(nodes)]
    return results


def _description(node: Facts) -> str:
    gpus = f", {_kinds(node)} (driver {node['driver']})" if node["gpus"] else ""
    return f"{node['host']}: {node['cores']} cores, {node['memory_bytes'] / GIB:.0f} GiB{gpus}, Python {node['python']}"


def _kinds(node: Facts) -> str:
    kinds = Counter(gpu["name"] for gpu in node["gpus"])
    return ", ".join(f"{number} x {name}" for name, number in kinds.items())


def _packages(node: Facts, needed: Sequence[str], gpus_wanted: int) -> Iterator[Finding]:
    missing = [name for name in needed if name not in node["versions"]]
    installed = {name.replace("-", "_") for name in node["versions"]}
    if missing:
        extra = "torch" if "torch" in needed else "jax"
        fix = f"type there: {extras.pip(extra)}"
        yield Finding("packages", "error", f"{node['host']} lacks {', '.join(missing)}", fix, MISSING_PACKAGE)
    elif "jax" in needed and (gpus_wanted or node["gpus"]) and installed.isdisjoint(extras.GPU_PLUGINS):
        yield Finding(
            "packages", "error", f"{node['host']} has no jax for NVIDIA GPUs", extras.gpu_fix(" there"), MISSING_PACKAGE
        )


def _gpus(node: Facts, wanted: int) -> Iterator[Finding]:
    host, gpus, fault = node["host"], node["gpus"], node["gpus_fault"]
    if fault:
        what = f"{host}: its GPUs cannot be looked at ({fault})"
        yield Finding(
            "gpus", "warning", what, "type there: pip install nvidia-ml-py, then nvidia-smi", "gpus-unreadable"
        )
    elif len(gpus) < wanted:
        what = f"{host} has {counted(len(gpus), 'GPU')}, and {wanted} are wanted"
        fix = "lower gpus_per_node of the target, or look at nvidia-smi and CUDA_VISIBLE_DEVICES there"
        yield Finding("gpus", "error", what, fix, "too-few-gpus")
    busy = [str(i) for i, gpu in enumerate(gpus) if gpu["used_bytes"] > _USED]
    if busy:
        held = max(gpu["used_bytes"] for gpu in gpus) / GIB
        what = f"{host}: others hold up to {held:.1f} GiB of GPU {', '.join(busy)}"
        yield Finding("gpus", "warning", what, "nvidia-smi there names them; ask for whole nodes, or wait", "gpus-busy")


def _folders(node: Facts) -> Iterator[Finding]:
    host = node["host"]
    for folder, facts in node["folders"].items():
        if facts["fault"]:
            what = f"{host}: {folder} cannot be written ({facts['fault']})"
            yield Finding("disk", "error", what, f"make {facts['there']} writable there", "not-writable")
        elif facts["free_bytes"] is not None and facts["free_bytes"] < _LEAST_FREE:
            what = f"{host}: {facts['free_bytes'] / GIB:.1f} GiB are free for {folder}"
            fix = "free some: a checkpoint holds weights and optimizer, and there are three while one is saved"
            yield Finding("disk", "warning", what, fix, "disk-full")


def _limits(node: Facts) -> Iterator[Finding]:
    host, shm_bytes = node["host"], node["shm_bytes"]
    if node["gpus"] and shm_bytes is not None and shm_bytes < _LEAST_SHM:
        what = f"{host}: /dev/shm has {shm_bytes / GIB:.2f} GiB, through which processes of one machine exchange data"
        yield Finding("memory", "warning", what, "in a container: --shm-size=8g", "small-shared-memory")
    if node["open_files"] < _LEAST_FILES:
        what = f"{host}: a process may open {node['open_files']} files"
        fix = "raise the hard limit there: `ulimit -Hn` prints it (in SLURM: LimitNOFILE of slurmd)"
        yield Finding("limits", "warning", what, fix, "few-open-files")


def _peers_and_files(node: Facts) -> Iterator[Finding]:
    host = node["host"]
    lost = [peer for peer, address in node["peers"].items() if address is None]
    if lost:
        fix = "fix DNS or /etc/hosts there, or give addresses instead of names"
        yield Finding("names", "error", f"{host} finds no address of {', '.join(lost)}", fix, "unknown-host")
    for file, is_there in node["files"].items():
        if not is_there:
            fix = "put it on a file system that all nodes share, or copy it there"
            yield Finding("files", "error", f"{host} does not see {file}", fix, "no-such-file")


def _storage(nodes: Sequence[Facts]) -> Iterator[Finding]:
    trials = [node["storage"] | {"host": node["host"]} for node in nodes if node.get("storage")]
    faults = [trial for trial in trials if trial["fault"]]
    for trial in faults:
        yield Finding("storage", "error", f"{trial['host']}: {trial['fault']}", trial["fix"], "storage-fault")
    if trials and not faults:
        what = f"{len(trials)} machine(s) can write, read, list and delete in storage={trials[0]['url']}"
        yield Finding("storage", "info", what)


def _alike(
    nodes: Sequence[Facts], check: str, level: Level, what: str, value_of: Callable[[Facts], str]
) -> Iterator[Finding]:
    """Names the machines that are not as most are."""
    values = {node["host"]: value_of(node) for node in nodes}
    usual, number = Counter(values.values()).most_common(1)[0]
    odd = [f"{host} has {value}" for host, value in values.items() if value != usual]
    if odd:
        message = f"{what}: {number} of {len(nodes)} have {usual}, {', '.join(odd)}"
        fix = "use one environment that the nodes share, or leave those nodes out"
        yield Finding(check, level, message, fix, "machines-differ")


def _network(nodes: Sequence[Facts]) -> Iterator[Finding]:
    """All together, and which machine is slow with both of its neighbours; nodes stand in the order of their ranks."""
    lacking = ", ".join(node["host"] for node in nodes if "torch" not in node["versions"])
    if lacking:
        what = f"the network between the machines was not tried: PyTorch, by which it is tried, is not on {lacking}"
        fix = f"type there: {extras.pip('torch')}"
        yield Finding("network", "inconclusive", what, fix, MISSING_PACKAGE)
        return
    answers = {node["host"]: node["network"] for node in nodes if "network" in node}
    faults: dict[str, list[str]] = {}
    for host, network in answers.items():
        if "fault" in network:
            faults.setdefault(network["fault"], []).append(host)
    if faults:
        meeting = nodes[0].get("meet", "") or "the first host"
        what, fix = f"the machines do not come together at {meeting}", "set address of the target, or "
        if all(network.get("met") for network in answers.values()):
            ways = listed(f"{host} by {answer['interface'] or 'its own name'}" for host, answer in answers.items())
            what, fix = f"the machines meet at {meeting} and exchange nothing ({ways})", ""
        fix += "open ports between them, or name their network in setup (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)"
        why = "; ".join(f"{fault} ({listed(hosts)})" for fault, hosts in faults.items())
        yield Finding("network", "error", f"{what}: {why}", fix, "no-connection")
        return
    if not answers:
        return
    first = next(iter(answers.values()))
    rate = first["all_reduce_bytes_per_s"]
    met_s = max(network["met_s"] for network in answers.values())
    what = f"{len(answers)} machines met within {met_s:.1f} s and all-reduce at {rate / 1e9:.2f} GB/s each, by {first['backend']}"
    yield Finding("network", "info", what)
    links = [rate for network in answers.values() for rate in network["neighbours"].values()]
    if not links:  # of two machines, of which neither is the slow one
        return
    usual = statistics.median(links)
    for host, network in answers.items():
        best = max(network["neighbours"].values())
        if best < _SLOW * usual:
            what = f"{host} reaches {best / 1e9:.2f} GB/s with its neighbours, where {usual / 1e9:.2f} GB/s are usual"
            fix = "leave it out (sbatch: [--exclude=...] of the target), or have its network looked at"
            yield Finding("network", "warning", what, fix, "slow-network")


def _clock(nodes: Sequence[Facts]) -> Iterator[Finding]:
    """They are asked together, so that what tells them apart is their clocks, but for seconds of starting."""
    usual = statistics.median_low([node["time"] for node in nodes])
    for node in nodes:
        skew = abs(node["time"] - usual)
        if skew > _SKEW_S:
            what = f"the clock of {node['host']} is {skew:.0f} s off"
            yield Finding("clock", "warning", what, "have it follow an NTP server there", "clock-skew")

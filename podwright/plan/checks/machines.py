"""Problems of a target as its machines are now: findings from the facts that each of them told (train/facts.py). Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from podwright.accelerators import GIB
from podwright.errors import counted
from podwright.plan.findings import Finding
from podwright.recipe.extras import GPU_FIX, GPU_PLUGINS
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
    return [
        Finding("files", "error", f"{file} is not there", "check the path") for file in some if not Path(file).exists()
    ]


def findings(nodes: Sequence[Facts], needed: Sequence[str] = (), gpus_wanted: int = 0) -> list[Finding]:
    """`nodes`: a machine each. `needed`: packages of the recipe that is to run there; `gpus_wanted`: on each node."""
    results = [Finding("machines", "info", _description(node)) for node in nodes]
    for node in nodes:
        results += [
            *_packages(node, needed, gpus_wanted),
            *_gpus(node, gpus_wanted),
            *_room(node),
            *_names(node),
            *_files(node),
        ]
    results += _storage(nodes)
    if len(nodes) > 1:
        results += _alike(nodes, "python", "Python", lambda node: node["python"])
        for name in sorted({name for node in nodes for name in node["versions"]}):
            results += _alike(nodes, "packages", name, lambda node, name=name: node["versions"].get(name, "none"))  # type: ignore[misc]
        results += _alike(nodes, "gpus", "the GPUs", lambda node: _kinds(node) or "none")
        results += _alike(nodes, "gpus", "the NVIDIA driver", lambda node: node["driver"] or "none")
        results += [*_clock(nodes), *_network(nodes)]
    return results


def _description(node: Facts) -> str:
    gpus = f", {_kinds(node)} (driver {node['driver']})" if node["gpus"] else ""
    return f"{node['host']}: {node['cores']} cores, {node['memory_bytes'] / GIB:.0f} GiB{gpus}, Python {node['python']}"


def _kinds(node: Facts) -> str:
    return ", ".join(f"{number} x {name}" for name, number in Counter(gpu["name"] for gpu in node["gpus"]).items())


def _packages(node: Facts, needed: Sequence[str], wanted: int) -> list[Finding]:
    """`wanted`: GPUs."""
    missing = [name for name in needed if name not in node["versions"]]
    here = {name.replace("-", "_") for name in node["versions"]}
    if not missing and "jax" in needed and (wanted or node["gpus"]) and here.isdisjoint(GPU_PLUGINS):
        return [Finding("packages", "error", f"{node['host']} has no jax for NVIDIA GPUs", GPU_FIX)]
    if not missing:
        return []
    extra = "torch" if "torch" in needed else "jax"
    return [
        Finding(
            "packages",
            "error",
            f"{node['host']} lacks {', '.join(missing)}",
            f"type there: pip install -e '.[{extra}]' in podwright's clone",
        )
    ]


def _gpus(node: Facts, wanted: int) -> list[Finding]:
    results, there = [], len(node["gpus"])
    if node["gpus_fault"]:
        fix = (
            "type there: pip install nvidia-ml-py"
            if "nvidia-ml-py" in node["gpus_fault"]
            else "look at nvidia-smi there"
        )
        results.append(
            Finding("gpus", "warning", f"{node['host']}: its GPUs cannot be looked at ({node['gpus_fault']})", fix)
        )
    elif there < wanted:
        message = f"{node['host']} has {counted(there, 'GPU')}, and {wanted} are wanted"
        results.append(
            Finding(
                "gpus",
                "error",
                message,
                "lower gpus_per_node of the target, or look at nvidia-smi and CUDA_VISIBLE_DEVICES there",
            )
        )
    busy = [str(i) for i, gpu in enumerate(node["gpus"]) if gpu["used_bytes"] > _USED]
    if busy:
        held = max(gpu["used_bytes"] for gpu in node["gpus"]) / GIB
        message = f"{node['host']}: others hold up to {held:.1f} GiB of GPU {', '.join(busy)}"
        results.append(Finding("gpus", "warning", message, "nvidia-smi there names them; ask for whole nodes, or wait"))
    return results


def _room(node: Facts) -> list[Finding]:
    results, host = [], node["host"]
    for folder, facts in node["folders"].items():
        if facts["fault"]:
            results.append(
                Finding(
                    "disk",
                    "error",
                    f"{host}: {folder} cannot be written ({facts['fault']})",
                    f"make {facts['there']} writable there",
                )
            )
        elif facts["free_bytes"] is not None and facts["free_bytes"] < _LEAST_FREE:
            free = f"{host}: {facts['free_bytes'] / GIB:.1f} GiB are free for {folder}"
            results.append(
                Finding(
                    "disk", "warning", free, "free some: a checkpoint holds weights and optimizer, and three are kept"
                )
            )
    if node["gpus"] and node["shm_bytes"] is not None and node["shm_bytes"] < _LEAST_SHM:
        message = f"{host}: /dev/shm has {node['shm_bytes'] / GIB:.2f} GiB, through which processes of one machine exchange data"
        results.append(Finding("memory", "warning", message, "in a container: --shm-size=8g"))
    if node["open_files"] < _LEAST_FILES:
        message = f"{host}: a process may open {node['open_files']} files"
        results.append(
            Finding(
                "limits", "warning", message, "type `ulimit -n 65536` before it starts (a line of setup in the target)"
            )
        )
    return results


def _names(node: Facts) -> list[Finding]:
    lost = [peer for peer, address in node["peers"].items() if address is None]
    fix = "fix DNS or /etc/hosts there, or give addresses instead of names"
    return [Finding("names", "error", f"{node['host']} finds no address of {', '.join(lost)}", fix)] if lost else []


def _files(node: Facts) -> list[Finding]:
    return [
        Finding(
            "files",
            "error",
            f"{node['host']} does not see {file}",
            "put it on a file system that all nodes share, or copy it there",
        )
        for file, there in node["files"].items()
        if not there
    ]


def _storage(nodes: Sequence[Facts]) -> list[Finding]:
    tried = [(node["host"], node["storage"]) for node in nodes if node.get("storage")]
    faults = [
        Finding("storage", "error", f"{host}: {trial['fault']}", trial["fix"])
        for host, trial in tried
        if trial["fault"]
    ]
    if faults or not tried:
        return faults
    url = tried[0][1]["url"]
    return [Finding("storage", "info", f"{len(tried)} machine(s) can write, read, list and delete in storage={url}")]


def _alike(nodes: Sequence[Facts], check: str, what: str, of: Callable[[Facts], str]) -> list[Finding]:
    """Names the machines that are not as most are."""
    values = {node["host"]: of(node) for node in nodes}
    usual, number = Counter(values.values()).most_common(1)[0]
    odd = [f"{host} has {value}" for host, value in values.items() if value != usual]
    if not odd:
        return []
    fix = "use one environment that the nodes share, or leave those nodes out"
    return [
        Finding(
            check,
            "error" if check != "python" else "warning",
            f"{what}: {number} of {len(nodes)} have {usual}, {', '.join(odd)}",
            fix,
        )
    ]


def _network(nodes: Sequence[Facts]) -> list[Finding]:
    """All together, and which machine is slow with both of its neighbours; nodes stand in the order of their ranks."""
    if lacking := ", ".join(node["host"] for node in nodes if "torch" not in node["versions"]):
        what = f"the network between the machines was not tried: PyTorch, by which it is tried, is not on {lacking}"
        return [Finding("network", "inconclusive", what, "type there: pip install -e '.[torch]' in podwright's clone")]
    answers = [(node["host"], node["network"]) for node in nodes if "network" in node]
    faults = [f"{host} ({_in_words(network['fault'])})" for host, network in answers if "fault" in network]
    if faults:
        meet, network_of = (
            nodes[0].get("meet", ""),
            "network (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME) in setup of the target",
        )
        if all(network.get("met") for _, network in answers):
            ways = [f"{host} by {network['interface'] or 'the address of its own name'}" for host, network in answers]
            what = f"the machines meet at {meet or 'the first one'} and exchange nothing: {', '.join(ways)}; "
            fix = f"open all ports between the machines there, or name another {network_of}"
        else:
            what = f"the machines do not come together{f' at {meet}, the address of the first host' if meet else ''}: "
            address = "set address of the target to an address of the first host that the others reach, or "
            fix = f"{address if meet else ''}open the ports between the nodes, or name the {network_of}"
        return [Finding("network", "error", what + "; ".join(faults), fix)]
    if not answers:
        return []
    _, first = answers[0]
    rate, met_s = first["all_reduce_bytes_per_s"], max(network["met_s"] for _, network in answers)
    message = f"{len(answers)} machines met within {met_s:.1f} s and all-reduce at {rate / 1e9:.2f} GB/s each, by {first['backend']}"
    results = [Finding("network", "info", message)]
    links = [rate for _, network in answers for rate in network["neighbours"].values()]
    for host, network in answers:
        best = max(network["neighbours"].values(), default=0.0)
        if links and best < _SLOW * statistics.median(links):
            message = f"{host} reaches {best / 1e9:.2f} GB/s with its neighbours, where {statistics.median(links) / 1e9:.2f} GB/s are usual"
            results.append(
                Finding(
                    "network",
                    "warning",
                    message,
                    "leave it out (sbatch: [--exclude=...] of the target), or have its network looked at",
                )
            )
    return results


def _in_words(fault: str) -> str:
    """A message of PyTorch's store, where its words do not tell what happened."""
    return "another program answers at that address" if fault.startswith("Ping failed") else fault


def _clock(nodes: Sequence[Facts]) -> list[Finding]:
    """They are asked together, so that what tells them apart is their clocks, but for seconds of starting."""
    usual = statistics.median_low([node["time"] for node in nodes])
    late = [(abs(node["time"] - usual), node["host"]) for node in nodes]
    return [
        Finding("clock", "warning", f"the clock of {host} is {skew:.0f} s off", "have it follow an NTP server there")
        for skew, host in late
        if skew > _SKEW_S
    ]

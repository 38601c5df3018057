"""The JobSet of a MaxText recipe as data: equal, field by field, to what the recipe's version of xpk creates. Pure.

`bench/maxtext_render.py` compares the two for every public recipe, and `tests/unit/targets/gke/test_xpk_equality.py` for dry runs of
four versions and for one xpk that is really started.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import yaml

from podwright import slices
from podwright.errors import UserError
from podwright.recipe import yaml_file
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.recipe.maxtext.schema import command as shell_text
from podwright.slices import Slice
from podwright.targets.gke import machine_types, xpk_shape
from podwright.targets.settings.gke import NAME, GkeSettings

Manifest = dict[str, Any]

API_VERSION = "jobset.x-k8s.io/v1alpha2"
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
"""one slice to a node pool"""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
POLICY_LABEL = "cloud.google.com/placement-policy-name"
"""of a node, the workload policy of its pool"""
WORKLOAD_LABEL = "xpk.google.com/workload"
PRIORITY = "medium"
"""of xpk, where a recipe names none"""
RESTARTABLE = (42, *range(127, 256))
"""exit codes of a pod that do not fail its job at once"""
DEBUG_LOGS = (
    "TPU_STDERR_LOG_LEVEL=0",
    "TPU_MIN_LOG_LEVEL=0",
    "TF_CPP_MIN_LOG_LEVEL=0",
    "TPU_VMODULE=real_program_continuator=1",
)
_CONTAINER_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,38}[a-z0-9])?")
_OBJECT_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._/]{0,251}[A-Za-z0-9])?")
"""of a scheduler or a secret; xpk itself writes None for no secret"""
_OPTIONS = {
    "container": ("docker-name", "jax-tpu"),
    "scheduler": ("scheduler", "default-scheduler"),
    "ttl": ("ttl-seconds-after-finished", "43200"),
    "grace": ("termination-grace-period-seconds", "30"),
    "secret": ("docker-image-pull-secret", "None"),
}
"""of xpk, with what it takes where a recipe has none"""


def slice_of(recipe: MaxTextRecipe) -> Slice:
    times = f"{recipe.num_slices}x " if recipe.num_slices > 1 else ""
    return slices.parse(times + recipe.topology)


def maxtext(recipe: MaxTextRecipe, own: GkeSettings, name: str, command: str) -> Manifest:
    """The JobSet `name` that runs the shell text `command` on every host of the recipe's slices."""
    slice_ = slice_of(recipe)
    shape = xpk_shape.shape_of(recipe.versions.xpk, recipe.xpk, slice_)
    chosen = {key: recipe.xpk.get(option) or default for key, (option, default) in _OPTIONS.items()}
    for key, pattern in (("container", _CONTAINER_NAME), ("scheduler", _OBJECT_NAME), ("secret", _OBJECT_NAME)):
        if not pattern.fullmatch(chosen[key]):
            what = f"xpk.{_OPTIONS[key][0]}={chosen[key]} is no such name"
            raise UserError(what, "write small letters, digits and -", "wrong-name")
    names = [chosen["container"] + (f"-{k + 1}" if shape.containers > 1 else "") for k in range(shape.containers)]
    script = wrapped(with_debug_logs(command) if "enable-debug-logs" in recipe.xpk else command)
    containers = [_container(each, recipe, script, shape) for each in names]
    pod = {
        "schedulerName": chosen["scheduler"],
        "imagePullSecrets": [{"name": chosen["secret"]}],
        "restartPolicy": "Never",
        "nodeSelector": node_selector(slice_),
        "priorityClassName": own.priority or _priority(recipe),
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": whole_number(chosen["grace"], _OPTIONS["grace"][0]),
        "containers": containers,
        "serviceAccountName": None,
        "tolerations": [{"operator": "Exists", "key": "google.com/tpu"}],
        "volumes": [{"emptyDir": {"medium": "Memory"}, "name": "dshm-2"}],
    }
    vms = xpk_shape.vms_per_slice(slice_)
    label = {WORKLOAD_LABEL: name}
    job = {
        "parallelism": vms,
        "completions": vms,
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [_failure_rule(each, _restartable(recipe)) for each in names]},
        "template": {"metadata": {"labels": label, "annotations": None}, "spec": pod},
    }
    restarts = whole_number(recipe.xpk.get("max-restarts") or "0", "max-restarts")
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: own.queue} | label, "annotations": dict(EXCLUSIVE)},
        "spec": {
            "ttlSecondsAfterFinished": whole_number(chosen["ttl"], _OPTIONS["ttl"][0]),
            "failurePolicy": {"rules": [_fail_jobset()], "maxRestarts": restarts},
            "replicatedJobs": [{"name": "slice-job", "replicas": recipe.num_slices, "template": {"spec": job}}],
        },
    }


def _priority(recipe: MaxTextRecipe) -> str:
    """The PriorityClass that the recipe names, by the rule of a target's; UserError for what is no such name."""
    name = recipe.xpk.get("priority") or PRIORITY
    if not NAME.fullmatch(name):
        what = f"xpk.priority={name} is no name of a PriorityClass"
        raise UserError(
            what, "write small letters, digits and -, beginning with a letter, such as xpk.priority=high", "wrong-name"
        )
    return name


def require_machines(own: GkeSettings, slice_: Slice) -> None:
    """UserError where the machine type of the target has not the chips of the slice."""
    if fault := machine_types.fault(own.machine_type, slice_):
        what, _, right = fault.partition("; ")
        raise UserError(what, f"in the target's file leave topology out, and {right}", "wrong-machine-type")


def node_selector(slice_: Slice) -> dict[str, str]:
    """The labels by which GKE knows the nodes of such a slice."""
    assert slice_.accelerator.pod
    labels = {
        "cloud.google.com/gke-tpu-accelerator": slice_.accelerator.pod.gke_accelerator,
        "cloud.google.com/gke-tpu-topology": slice_.topology,
    }
    policy = xpk_shape.placement_policy(slice_)
    return labels | ({POLICY_LABEL: policy} if policy else {})


def with_debug_logs(command: str) -> str:
    return " && ".join([*(f"export {assignment}" for assignment in DEBUG_LOGS), command])


def require_bash_syntax(recipe: MaxTextRecipe, ask: Callable[[Sequence[str]], tuple[int, str, str]]) -> None:
    """UserError where bash cannot parse what a container of `recipe` runs; nothing of it is run. Not checked where there is no bash.

    `ask`: runs a command to its end: exit code, stdout, stderr.
    """
    try:
        code, _, err = ask(["bash", "-n", "-c", wrapped(shell_text(recipe))])
    except FileNotFoundError:
        return
    warnings = [line for line in err.splitlines() if "setlocale" not in line]  # of a here-document without an end
    if code or warnings:
        reason = re.sub(r"^.*?line \d+: ", "", "".join(warnings[:1]))
        fix = "correct launch.setup and launch.after of the recipe, where a #, an open quote or a << takes in what follows"
        raise UserError(f"bash cannot parse the container's command: {reason}", fix, "bash-syntax")


def wrapped(command: str) -> str:
    """`command` as xpk starts it: it ends with the exit code of the command, of which its log has a line."""
    lines = [
        "echo XPK Start: $(date);",
        "_sigterm() (kill -SIGTERM $! 2>/dev/null;);",
        "trap _sigterm SIGTERM;",
        "",
        f"({command}) & PID=$!;",
        "while kill -0 $PID 2>/dev/null;",
        "    do sleep 5;",
        "done;",
        "wait $PID;",
        "EXIT_CODE=$?;",
        "",
        "echo XPK End: $(date);",
        "echo EXIT_CODE=$EXIT_CODE;",
        "",
        "",
        "exit $EXIT_CODE",
    ]
    return "\n".join(lines) + "\n"


def from_secrets(names: Iterable[str]) -> list[Manifest]:
    """`envFrom` of a container that gets the variables of these Secrets, as far as they exist."""
    return [{"secretRef": {"name": name, "optional": True}} for name in names]


def with_secrets(manifest: Manifest, names: Iterable[str]) -> Manifest:
    """`manifest` of `maxtext`, whose containers get the variables of these Secrets too."""
    changed = copy.deepcopy(manifest)
    variables = from_secrets(names)
    for replicated in changed["spec"]["replicatedJobs"]:
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            container["envFrom"] = variables
    return changed


def limit(manifest: Manifest, own: GkeSettings) -> None:
    """Has the cluster end the jobs of `manifest` when the time of an attempt is over."""
    for replicated in manifest["spec"]["replicatedJobs"]:
        replicated["template"]["spec"]["activeDeadlineSeconds"] = round(own.life_s)


def _container(name: str, recipe: MaxTextRecipe, script: str, shape: xpk_shape.XpkShape) -> Manifest:
    variable, equals, value = recipe.xpk.get("env", "").partition("=")
    return {
        "name": name,
        "image": recipe.image,
        **({"ports": [{"containerPort": port} for port in shape.ports]} if shape.ports else {}),
        "env": [{"name": variable, "value": value}] if equals else None,
        "securityContext": {"privileged": True},
        "command": ["bash", "-c", script],
        "resources": {"limits": {"google.com/tpu": shape.chips}},
        "volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm-2"}],
    }


def _fail_jobset() -> Manifest:
    return {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}


def _failure_rule(container: str, restartable: list[int]) -> Manifest:
    codes = {"containerName": container, "operator": "NotIn", "values": list(restartable)}
    return {"action": "FailJob", "onPodConditions": [], "onExitCodes": codes}


def _restartable(recipe: MaxTextRecipe) -> list[int]:
    further = filter(None, re.split(r"[\s,]+", recipe.xpk.get("restart-on-exit-codes", "")))
    return sorted({*RESTARTABLE, *(whole_number(code, "restart-on-exit-codes") for code in further)})


def whole_number(text: str, option: str) -> int:
    """UserError for an option of xpk that is no whole number."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise UserError(
            f"xpk.{option}={text} is no whole number", f"correct {option} below xpk in the recipe", "wrong-value"
        )
    return int(text)


class _Dumper(yaml_file.Dumper):
    """Texts of several lines as blocks, and no references to what stands there twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        numbers = bool(sequence) and all(isinstance(each, int) for each in sequence)
        return super().represent_sequence(tag, sequence, flow_style=numbers or flow_style)


_Dumper.add_representer(str, _Dumper.represent_text)


def text(manifest: Manifest) -> str:
    """As YAML, in the order of the data."""
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)

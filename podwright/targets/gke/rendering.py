"""Everything that `podwright render` writes for a cluster of GKE, as texts by file name. Pure: the same input gives the same files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from podwright.errors import UserError
from podwright.recipe import kinds, load
from podwright.recipe.kinds import Recipe
from podwright.recipe.maxtext import xpk
from podwright.recipe.maxtext.schema import MaxTextRecipe, command, command_lines
from podwright.rundir import STORAGE_OPTION
from podwright.slices import Slice
from podwright.storage import inputs
from podwright.targets import scripts
from podwright.targets.base import Job
from podwright.targets.gke import capacity, jobset, pool_calls, trainer, workload, xpk_shape
from podwright.targets.machines import Request
from podwright.targets.settings.gke import GkeSettings
from podwright.targets.settings.google import region_of

_VARIABLE = re.compile(
    r"(?P<flag>--(?:[a-z]+-)*[a-z]+=)?(?P<variable>\$(?:project|cluster|location|zone|reservation|version|policy|pool|name))"
)
"""a word that is a variable of a script, or a flag whose whole value is one"""
_FOR_PROGRAMS = ("--async", "--format=json")
"""options with which gcloud is called by a run, and not by a person"""
MANIFEST = "jobset.yaml"
CODE = "configmap.yaml"
XPK_QUEUE = ("default", "multislice-queue")
"""namespace and queue that xpk submits to"""
POOL_LABEL = "podwright-pool"
"""of the pools of node_pool.sh, and of their nodes"""


@dataclass(frozen=True)
class RenderedFolder:
    files: dict[str, str]
    """text by name"""
    submit: str
    """name of the script that submits"""
    by_hand: tuple[str, ...] = ()
    """what a user is to fill in or to do by hand"""
    added: dict[str, str] = field(default_factory=dict)
    """arguments of MaxText that the recipe does not have"""
    differences: tuple[str, ...] = ()
    """options of the recipe that the target decides otherwise"""


def filled(recipe: MaxTextRecipe, own: GkeSettings, target: str, typed: Mapping[str, str]) -> MaxTextRecipe:
    """The recipe with the values that target and command line have for its variables. UserError for those that are missing."""
    return workload.resolved(recipe, workload.values(recipe, own, target, typed))


def maxtext(recipe: MaxTextRecipe, own: GkeSettings, target: str, typed: Mapping[str, str]) -> RenderedFolder:
    """Scripts and JobSet of a MaxText recipe. UserError, in one line, for what recipe and target lack."""
    for option in recipe.xpk:
        xpk.require_option(option, recipe.versions.xpk)
    slice_ = jobset.slice_of(recipe)
    jobset.require_machines(own, slice_)
    profiled, added = workload.profiled(recipe)
    ready = filled(profiled, own, target, typed)
    workload.require_own_options(ready)
    lines = command_lines(ready)
    workload.require_one_line(lines)
    manifest = jobset.maxtext(ready, own, f"${{{workload.NAME}}}", command(ready))
    manifest = jobset.with_secrets(manifest, [trainer.SECRET])
    if own.max_life:  # else it is that of xpk, field by field
        jobset.limit(manifest, own)
    only_xpk = ", ".join(xpk_shape.left_to_xpk(ready))
    by_xpk = (own.namespace, own.queue) == XPK_QUEUE
    if only_xpk and not by_xpk:
        what = f"only xpk carries out {only_xpk} of the recipe, and it submits to queue {XPK_QUEUE[1]} of namespace {XPK_QUEUE[0]}"
        raise UserError(
            what, "set namespace and queue of the target to these, or take the option out of the recipe", "only-xpk"
        )
    versions = {key: getattr(own, key) or getattr(recipe.versions, key) for key in ("maxtext", "jax", "libtpu")}
    model = recipe.model_name or recipe.name
    values = _common(recipe.name, model, own, target, slice_, manifest) | {
        **versions,
        "image": ready.image,
        "builds": recipe.image == f"${{{workload.IMAGE}}}",
        "xpk_version": ready.versions.xpk,
        "xpk_call": _xpk_call(ready, own) if by_xpk else "",
        "only_xpk": only_xpk,
        "command_lines": lines,
        "delimiter": _delimiter(lines),
    }
    by_hand = [f"only xpk carries out {only_xpk}: {MANIFEST} is without it"] if only_xpk else []
    if values["builds"] and not versions["maxtext"]:
        by_hand.append("maxtext of the target: the image can be built only if a version of MaxText is known")
    differences = tuple(f"{each.what}; {each.fix}" for each in capacity.differences(ready, own))
    return replace(_folder(values, manifest, tuple(by_hand), added), differences=differences)


def _common(
    recipe: str, model: str, own: GkeSettings, target: str, slice_: Slice, manifest: jobset.Manifest
) -> dict[str, Any]:
    """Values of every template, whatever the kind of recipe is."""
    assert slice_.accelerator.pod
    spec = manifest["spec"]["replicatedJobs"][0]
    pod = spec["template"]["spec"]["template"]["spec"]
    created = own
    if own.capacity == "existing":  # whose runs create none, unlike node_pool.sh
        created = own.model_copy(update={"provisioning": "reserved" if own.reservations else "on-demand"})
    vms = xpk_shape.vms_per_slice(slice_)
    one_slice = f"{slice_.accelerator.name}-{slice_.topology}"
    own_name = one_slice.lower()
    return {
        "recipe": recipe,
        "model": re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "model",
        "target": target,
        "project": own.project,
        "cluster": own.cluster,
        "location": own.location,
        "region": region_of(own.zones[0]),
        "zones": own.zones,
        "namespace": own.namespace,
        "queue": own.queue,
        "bucket": bucket_of(own),
        "reservations": own.reservation_names,
        "places": created.places,
        "provisioning": created.capacity,
        "hours": f"{created.life_s / 3600:g}",
        "pool_calls": _pool_calls(created, slice_, own_name),
        "machine_type": own.machine_type,
        "priority": pod["priorityClassName"],
        "accelerator": slice_.accelerator.pod.gke_accelerator,
        "topology": slice_.topology,
        "policy": xpk_shape.placement_policy(slice_),
        "selector": ",".join(f"{key}={value}" for key, value in jobset.node_selector(slice_).items()),
        "counted": slice_.counted,
        "num_slices": slice_.num_slices,
        "nodes_per_slice": vms,
        "nodes": vms * slice_.num_slices,
        "pools": [f"pw-{own_name}-{k}" for k in range(slice_.num_slices)],
        "label": own_name,
        "container": pod["containers"][0]["name"],
        "xpk_version": "",
        "xpk_call": "",
        "only_xpk": "",
        "code": "",
    }


def _folder(
    values: dict[str, Any],
    manifest: jobset.Manifest,
    by_hand: tuple[str, ...],
    added: dict[str, str],
    further: Mapping[str, str] = MappingProxyType({}),
) -> RenderedFolder:
    submit = f"submit_{values['model'].replace('-', '_')}.sh"
    values = values | {"submit": submit}
    templates = {"setup_training_env.sh": "", "node_pool.sh": "", submit: "submit.sh", "cleanup.sh": ""}
    files = {
        name: scripts.filled(f"gke/{source or name}", values, comment=comment, trim=True)
        for name, source in templates.items()
    }
    files[MANIFEST] = _heading(values) + jobset.text(manifest)
    return RenderedFolder(files | dict(further), submit, by_hand, added)


def _heading(values: dict[str, Any]) -> str:
    version = values["xpk_version"] or xpk.NEWEST
    shape = f" in the shape of xpk {comment(version)}" if "command_lines" in values else ""
    lines = [f"The JobSet of {comment(values['recipe'])}{shape}."]
    lines += [f"{values['submit']} puts a name in place of ${{{workload.NAME}}} and creates it."]
    return "".join(f"# {line}\n" for line in lines)


def _in_script(own: GkeSettings, **changes: object) -> GkeSettings:
    """The settings with variables of a script for what its first lines set."""
    return own.model_copy(update={"project": "$project", "cluster": "$cluster", **changes})


def _words(argv: Sequence[str], indent: str) -> str:
    """A call as lines of shell."""
    flat = []
    for word in (each for each in argv if each not in _FOR_PROGRAMS):
        variable = _VARIABLE.fullmatch(word)
        flat.append(f'{variable["flag"] or ""}"{variable["variable"]}"' if variable else shlex.quote(word))
    first = next(i for i, word in enumerate(flat) if word.startswith("--"))
    return f" \\\n{indent}".join([" ".join(flat[:first]), *flat[first:]])


def _pool_calls(own: GkeSettings, slice_: Slice, label: str) -> dict[str, str]:
    """The calls of gcloud that a run would make, by what they do. With `networks` they are those for a cluster that has several."""
    place = "$zone/$reservation" if own.capacity == "reserved" else "$zone"
    details = {"policy": "$policy" if xpk_shape.placement_policy(slice_) else ""}
    request = Request("", place, labels={POOL_LABEL: label}, details=details)
    shown = _in_script(own, region="$location")
    cluster = {"currentMasterVersion": "$version"}
    with_networks = cluster | {"networkConfig": {"enableMultiNetworking": True}}
    calls = {
        "create": pool_calls.create_pool(request, "$pool", shown, slice_, cluster),
        "networks": pool_calls.create_pool(request, "$pool", shown, slice_, with_networks),
        "policy": pool_calls.create_policy(request, _in_script(own), slice_),
        "delete": pool_calls.delete_pool(shown, "$pool"),
    }
    lines = {name: _words(argv, "    ") for name, argv in calls.items()}
    return lines if pool_calls.takes_networks(slice_) else lines | {"networks": ""}


def _xpk_call(recipe: MaxTextRecipe, own: GkeSettings) -> str:
    """The call that submits the same run; the zone is that of the nodes, and the command stands above it."""
    slice_ = jobset.slice_of(recipe)
    based = "base-docker-image" in recipe.xpk
    options = {} if based else {"docker-image": recipe.image}
    options |= {key: value for key, value in recipe.xpk.items() if not capacity.decided_by_target(key, own)}
    options |= {"priority": own.priority} if own.priority else {}
    zonal = own.location.count("-") == 2  # xpk takes a zone, and looks for the cluster there or in its region
    words = [
        *("xpk", "workload", "create", "--cluster=$cluster", "--project=$project"),
        f"--zone={own.location if zonal else '$zone'}",
        "--workload=$name",
        f"--{'tpu-type' if based else 'device-type'}={slice_.names()['xpk']}",
        f"--num-slices={slice_.num_slices}",
        *(f"--{key}={value}" if value else f"--{key}" for key, value in options.items()),
    ]
    return _words(words, "      ") + ' \\\n      --command="$command"'


def bucket_of(own: GkeSettings) -> str:
    """Without its folders."""
    return "/".join(own.bucket.split("/")[:3])


def comment(text: str) -> str:
    """On one line, for a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _delimiter(lines: list[str]) -> str:
    """A word that no line is."""
    word = "END_OF_COMMAND"
    while word in lines:
        word += "_"
    return word


def trained_here(recipe: Recipe, own: GkeSettings, target: str, typed: Mapping[str, str]) -> RenderedFolder:
    """Scripts, ConfigMap and JobSet of a recipe that podwright itself trains. UserError, in one line, for what cannot run in pods."""
    if typed:
        raise UserError(f"{recipe.name} has no variable {next(iter(typed))}", "leave it out", "unknown-variable")
    slice_ = own.require_devices()
    jobset.require_machines(own, slice_)
    for key, value in inputs.named(recipe.model_dump(mode="json")).items():
        if Path(value).expanduser().exists():
            what = f"{key}={value} is on this machine, and pods do not have it"
            raise UserError(
                what, "copy it to a bucket, and name it there; rewards must be those of podwright", "local-file"
            )
    name = f"${{{workload.NAME}}}"
    raw = recipe.model_dump(mode="json")
    kind = kinds.find(recipe.kind)
    storage = f"{own.bucket}/{name}" if own.bucket else ""
    command = kind.command + (STORAGE_OPTION if storage else ())
    job = Job(Path(name), 1, Path(), command=command, environment=kind.environment, storage=storage, recipe=raw)
    files = trainer.run_files(replace(job, storage=""))  # whose name is known later
    code = trainer.config_map(files, trainer.start_script(job, slice_, trainer.PORT), own)
    manifest = trainer.trainer_jobset(job, own, slice_, name, code)
    jobset.limit(manifest, own)
    values = _common(recipe.name, recipe.name, own, target, slice_, manifest) | {
        "image": own.python_image,
        "builds": False,
        "code": code["metadata"]["name"],
        "code_label": "{}={}".format(*next(iter(code["metadata"]["labels"].items()))),
    }
    by_hand = [f"variables such as HF_TOKEN: kubectl create secret generic {trainer.SECRET} --from-env-file=FILE"]
    if not own.bucket:
        by_hand.append("bucket of the target: without it checkpoints and records end with the pods")
    return _folder(values, manifest, tuple(by_hand), {}, {CODE: jobset.text(code)})


def render(recipe: Recipe, own: GkeSettings, target: str, typed: Mapping[str, str]) -> RenderedFolder:
    """What `podwright render` writes for a recipe of any kind. UserError for a kind that no pods of GKE run."""
    if recipe.kind == "maxtext":
        return maxtext(load.require(recipe, MaxTextRecipe), own, target, typed)
    if "pods" in kinds.find(recipe.kind).starts_on:
        return trained_here(recipe, own, target, typed)
    what = f"a recipe of kind {recipe.kind} cannot be rendered for GKE: it trains on GPUs or CPUs"
    raise UserError(what, "name one of kind maxtext, grpo or pretrain", "kind-not-rendered")

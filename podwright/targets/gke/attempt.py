"""What is created in a cluster for one attempt of a run: a JobSet, and what its pods need besides. The same attempt gives the same objects."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.kinds import PreparedRecipe, Recipe
from podwright.recipe.maxtext.schema import MaxTextRecipe, command, command_lines
from podwright.shell import Shell
from podwright.targets.base import RUN_LABEL, Job
from podwright.targets.gke import jobset, trainer, workload, xpk_shape
from podwright.targets.gke.jobset import Manifest
from podwright.targets.google.labels import BY_LABEL, RUN_DIR_KEY, creator, quoted_run_dir
from podwright.targets.hosts.transport import PORTS
from podwright.targets.settings.gke import GkeSettings

ATTEMPT_LABEL = "podwright-attempt"
TTL_S = 3600
"""for which the cluster keeps a JobSet that has ended, and its logs"""


@dataclass(frozen=True)
class AttemptObjects:
    """The objects of an attempt, in the order in which they are created."""

    jobset: Manifest
    before: tuple[Manifest, ...]
    """what the pods cannot start without"""
    variables: tuple[str, ...] = ()
    """of this environment, those that are set go to the pods as a Secret with the name of the JobSet: `trainer.secret`"""


def prepared(recipe: Recipe, own: GkeSettings, target: str, typed: Mapping[str, str]) -> PreparedRecipe:
    """A MaxText recipe for a run on `target`, with a short trace where it asks for none. UserError, in one line, for whatever an attempt
    of it would lack: before anything is created."""
    if workload.NAME in typed:
        raise UserError(
            f"{workload.NAME} is named after the run",
            f"type --name {typed[workload.NAME]} in its place",
            "name-decided",
        )
    profiled, added = workload.profiled(load.require(recipe, MaxTextRecipe))
    ready = workload.resolved(profiled, workload.values(profiled, own, target, typed))
    require_submittable(ready, own)
    jobset.require_bash_syntax(ready, Shell().ask)
    return PreparedRecipe(workload.resolved(profiled, typed), ready, added)


def attempt_of(job: Job, own: GkeSettings, name: str) -> AttemptObjects:
    """The attempt of `job` as JobSet `name`. UserError for what the target or the recipe lacks."""
    recipe = load.stored(job.recipe)
    if recipe.kind == "maxtext":
        return _maxtext_attempt(load.require(recipe, MaxTextRecipe), job, own, name)
    return _own_attempt(job, own, name)


def _own_attempt(job: Job, own: GkeSettings, name: str) -> AttemptObjects:
    """Of a recipe that podwright itself trains. Records and checkpoints are in the storage of the run."""
    slice_ = own.require_devices()
    if not job.storage:
        what = "the target of the run has no bucket, and the disk of a pod ends with it"
        raise UserError(what, "set bucket=gs://BUCKET/runs in the target's file", "no-bucket")
    dry = job.created is None
    start = trainer.start_script(job, slice_, "PORT" if dry else _port(name))
    code = trainer.config_map(trainer.run_files(job), start, own, name)
    code["metadata"]["labels"] |= {trainer.CODE_LABEL: "DIGEST"} if dry else {}
    code["metadata"] |= {"labels": code["metadata"]["labels"] | labels_of(job), "annotations": annotations_of(job)}
    manifest = trainer.trainer_jobset(job, own, slice_, name, code, (trainer.SECRET, name))
    return AttemptObjects(_of_run(manifest, job, own), (code,), own.env)


def _port(name: str) -> int:
    """Another one for each attempt: one of an earlier attempt may still be open on a node."""
    return PORTS.start + zlib.crc32(name.encode()) % len(PORTS)


def _maxtext_attempt(recipe: MaxTextRecipe, job: Job, own: GkeSettings, name: str) -> AttemptObjects:
    """`WORKLOAD_NAME` in the recipe is the same for all attempts, so that each finds the checkpoints of those before."""
    of_target = workload.values(recipe, own, "of the run", {})
    run_name = name.removesuffix(f"-a{job.attempt}")
    ready = workload.resolved(workload.resolved(recipe, of_target), {workload.NAME: run_name})
    require_submittable(ready, own)
    manifest = jobset.with_secrets(jobset.maxtext(ready, own, name, command(ready)), [trainer.SECRET])
    return AttemptObjects(_of_run(manifest, job, own), ())


def require_submittable(recipe: MaxTextRecipe, own: GkeSettings) -> None:
    """UserError for what stands in the way of a JobSet of a recipe whose variables have values."""
    jobset.require_machines(own, jobset.slice_of(recipe))
    workload.require_own_options(recipe)
    workload.require_one_line(command_lines(recipe))
    if options := ", ".join(xpk_shape.left_to_xpk(recipe)):
        what = f"only xpk carries out {options} of the recipe, and a run submits its own JobSet"
        raise UserError(
            what, "take the option out of the recipe, or type podwright render, whose script calls xpk", "only-xpk"
        )


def queue_of(job: Job, own: GkeSettings) -> str:
    """The LocalQueue in which an attempt waits: that of its own node pools, or of the target."""
    return job.allocation or own.queue


def _of_run(manifest: Manifest, job: Job, own: GkeSettings) -> Manifest:
    """`manifest` with the labels, the queue, the nodes and the limits of an attempt: it is started once, ends when its time is over, and is
    deleted some time later, whether or not anybody looks. Its pods go to the pools that were created for the run, if any, and nowhere else."""
    changed = copy.deepcopy(manifest)
    labels = labels_of(job)
    metadata, spec = changed["metadata"], changed["spec"]
    own_labels = {key: value for key, value in metadata.get("labels", {}).items() if key != jobset.QUEUE_LABEL}
    metadata["namespace"] = own.namespace
    metadata["annotations"] = metadata.get("annotations", {}) | annotations_of(job)
    metadata["labels"] = {jobset.QUEUE_LABEL: queue_of(job, own)} | own_labels | labels
    spec["ttlSecondsAfterFinished"] = TTL_S
    spec["failurePolicy"]["maxRestarts"] = 0
    jobset.limit(changed, own)
    for replicated in spec["replicatedJobs"]:
        of_job = replicated["template"]
        of_job["metadata"] = {"labels": labels}
        pod = of_job["spec"]["template"]
        pod["metadata"]["labels"] = pod["metadata"].get("labels", {}) | labels
        if job.allocation:  # whose workload policy has the name of the request
            selector = {k: v for k, v in pod["spec"]["nodeSelector"].items() if k != jobset.POLICY_LABEL}
            pod["spec"]["nodeSelector"] = selector | {RUN_LABEL: job.run_tag}
    return changed


def labels_of(job: Job) -> dict[str, str]:
    """Of everything that an attempt creates."""
    return {RUN_LABEL: job.run_tag, BY_LABEL: creator(), ATTEMPT_LABEL: str(job.attempt)}


def annotations_of(job: Job) -> dict[str, str]:
    """Of everything that an attempt creates: where its run is, on the machine that started it."""
    return {RUN_DIR_KEY: quoted_run_dir(str(job.run_dir))}

"""What jax and libtpu say on the workers of a TPU slice."""

from __future__ import annotations

from podwright.recipe.advice import DEVICE_MEMORY_FULL
from podwright.rundir import Ending
from podwright.watch.rules.rule import RESUME, Role, rule

RULES = (
    rule(
        "vmem-out-of-memory",
        r"[Rr]an out of memory in memory space (vmem|smem)|[Ss]coped (vmem|allocation) .{0,120}exceed|exceeded scoped vmem limit",
        Ending.OUT_OF_MEMORY,
        "a kernel needs more of the on-chip memory (VMEM, SMEM) than a TPU core has; HBM is not full",
        "podwright plan with --compile names the kernel; type a smaller block size of it, or {device_memory}",
    ),
    rule(
        "hbm-out-of-memory",
        DEVICE_MEMORY_FULL.pattern,
        Ending.OUT_OF_MEMORY,
        "a device's memory does not hold the program",
        "{device_memory}",
        passing=True,
    ),
    rule(
        "tpu-in-use",
        r"TPU is already in use by process with pid (?P<pid>\d+)",
        Ending.CRASHED,
        "process PID of this worker still uses the TPU, most often one left of an earlier run",
        f"on that worker type kill PID (ps -p PID shows what it is), {RESUME}",
    ),
    rule(
        "tpu-busy",
        r"/dev/(vfio|accel)\S*: Device or resource busy|Couldn't open iommu group|TPU is already in use",
        Ending.CRASHED,
        "another process of this worker holds the TPU's device file, or has just ended and the driver has not released it yet",
        f"on that worker end what uses it (sudo lsof -w /dev/vfio/* shows it), {RESUME}",
    ),
    rule(
        "tpu-lockfile",
        r"libtpu_lockfile|libtpu multi-process lockfile",
        Ending.CRASHED,
        "a lock that another user's process left stops libtpu",
        f"on that worker remove the file as the line says, {RESUME}",
    ),
    rule(
        "tpu-topology",
        r"Failed to get global TPU topology",
        Ending.BAD_INPUT,
        "libtpu does not see the slice: the TPU image is of another generation, the worker restarted after maintenance, "
        "or libtpu and jax do not belong together",
        "compare runtimeVersion in gcloud compute tpus tpu-vm describe: v6e needs v2-alpha-tpuv6e; if it is right, delete the slice and "
        "create it again",
    ),
    rule(
        "libtpu-mismatch",
        r"This version of jax requires (jaxlib|libtpu)|jaxlib version \S+ is newer than and incompatible|Unexpected PJRT_\w+ size"
        r"|PJRT_Api (major|minor) version|libtpu.{0,60}(version mismatch|not compatible|incompatible)|libtpu\.so: undefined symbol"
        r"|Mosaic.{0,60}unsupported version",
        Ending.BAD_INPUT,
        "jax, jaxlib and libtpu on this worker are of versions that do not belong together",
        "{libtpu}",
    ),
    rule(
        "tpu-mesh-build",
        r"MESH_BUILD_FAIL|[Mm]esh build fail",
        Ending.NODE_LOST,
        "the chips of the slice could not be connected to a mesh: a link or a chip is broken",
        "delete the slice, then type podwright resume RUN, which creates another",
    ),
    rule(
        "mesh-assignment",
        r"Failed to find assignment for logical_axis_index",
        Ending.BAD_INPUT,
        "the sizes of the mesh cannot be laid on the links between the chips of this slice",
        "type podwright plan with the recipe and --on with the slice, which lists the meshes that can",
    ),
    rule(
        "not-divisible",
        r"should be divisible by|is not divisible by|must be divisible by",
        Ending.BAD_INPUT,
        "a dimension of the model or the batch is not a multiple of the number of devices that it is split over",
        "type podwright plan, which lists the meshes that divide it; take a smaller mesh axis or another batch size",
        passing=True,
    ),
    rule(
        "non-addressable",
        r"spans non-addressable|non-addressable devices",
        Ending.BAD_INPUT,
        "the program reads a value on one host that lies on the devices of several hosts",
        "in the program gather it first (process allgather of jax's multihost utilities), or read only the addressable shards",
    ),
    rule(
        "slice-network",
        r"(?:MEGASCALE|[Mm]ega[Ss]cale).{0,160}(DEADLINE_EXCEEDED|UNAVAILABLE|timed out|[Ff]ailed|unhealthy)",
        Ending.CRASHED,
        "the slices do not reach each other over the data-center network",
        "look whether all slices run, and whether the cluster was created with several networks: that cannot be added later",
        role=Role.SYMPTOM,
        passing=True,
    ),
    rule(
        "tpu-peer",
        r"Failed to connect to (?P<peer>[\w.-]+):84(71|76|82)\b",
        Ending.CRASHED,
        "the worker at PEER does not answer: its process was not started, or has ended; a TPU slice starts on all workers at once",
        f"read the log of that worker; start the program on all workers, {RESUME}",
        role=Role.SYMPTOM,
        passing=True,
    ),
    rule(
        "tpu-initialization",
        r"Failed to initialize TPU system|No accelerator found|TPU initialization failed|RuntimeError: Unable to initialize backend 'tpu'",
        Ending.CRASHED,
        "libtpu could not use the TPU of this worker",
        f"read the other workers' logs first; if this is the first failure, delete the slice, {RESUME}",
        role=Role.SYMPTOM,
    ),
)

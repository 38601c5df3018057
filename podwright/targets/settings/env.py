"""The key `env` of a target: variables of the launcher's shell that processes on other machines get."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from podwright.targets.settings.values import require_distinct

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_CARRIED = re.compile(
    r"PATH|HOME|PWD|OLDPWD|SHELL|USER|LOGNAME|HOSTNAME|TMPDIR|TMP|TEMP|XDG_RUNTIME_DIR"
    r"|LD_\w+|PYTHON\w*|BASH_ENV|BASH_FUNC_\w*|BASHOPTS|SHELLOPTS|ENV|IFS|CDPATH|PS4"
    r"|JAX_(?!COMPILATION_CACHE_DIR$)\w+|TPU_\w+|MEGASCALE_\w+|CLOUD_TPU_\w+|PODWRIGHT_(?!CACHE$)\w+|TORCHELASTIC_\w+"
    r"|SLURM_\w+|KUBERNETES_\w+|JOB_COMPLETION_INDEX|PROCESS_ID|NUM_PROCESSES|COORDINATOR_ADDRESS|RANK|LOCAL_RANK|NODE_RANK"
    r"|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NPROC_PER_NODE|MASTER_ADDR|MASTER_PORT|CUDA_VISIBLE_DEVICES"
)
"""variables of one machine, one shell or one process, which would break the processes on other machines"""


def _are_names(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        name = text.partition("=")[0].partition(":")[0]  # what follows may be a secret
        if not _NAME.fullmatch(text):
            raise ValueError(f"has {name!r}: it takes names of variables, never their values; write it like [HF_TOKEN]")
        if _NOT_CARRIED.fullmatch(text):
            raise ValueError(f"has {name}, which the machines of the target or Podwright set themselves; leave it out")
    require_distinct(value)
    return value


EnvSetting = Annotated[
    tuple[str, ...],
    AfterValidator(_are_names),
    Field(
        description="variables of your shell that the processes get; they are never in a file; those of one machine or one process (PATH, LD_*, JAX_PROCESS_ID) are refused"
    ),
]
DEFAULT_ENV = ("HF_TOKEN",)

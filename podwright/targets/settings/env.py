"""The key `env` of a target: variables of the launcher's shell that processes on other machines get."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from podwright.targets.settings.values import require_distinct

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_CARRIED = (
    (
        r"PATH|HOME|PWD|OLDPWD|SHELL|USER|LOGNAME|HOSTNAME|TMPDIR|TMP|TEMP|XDG_RUNTIME_DIR",
        "names a folder, a program or a user of this machine, and the machines of the target have their own",
    ),
    (
        r"LD_\w+|PYTHON\w*|BASH_ENV|BASH_FUNC_\w*|BASHOPTS|SHELLOPTS|ENV|IFS|CDPATH|PS4",
        "changes how bash, Python or the loader of libraries start on the machines of the target",
    ),
    (
        r"JAX_(?!COMPILATION_CACHE_DIR$)\w+|TPU_\w+|MEGASCALE_\w+|CLOUD_TPU_\w+|PODWRIGHT_(?!CACHE$)\w+|TORCHELASTIC_\w+|SLURM_\w+|KUBERNETES_\w+|JOB_COMPLETION_INDEX|PROCESS_ID"
        r"|NUM_PROCESSES|COORDINATOR_ADDRESS|RANK|LOCAL_RANK|NODE_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NPROC_PER_NODE|MASTER_ADDR"
        r"|MASTER_PORT|CUDA_VISIBLE_DEVICES",
        "is set for each process by Podwright or by the machines of the target, and one value for all would be wrong",
    ),
)
"""names of variables, and why one of this machine would break the processes there"""


def without_value(text: str) -> str:
    """The first name in `text` that has a value, NAME=VALUE or NAME: VALUE, which may be a secret; `text` where none has."""
    match = re.search(r"([\w-]*)['\"]?\s*[=:]", text)
    return match[1] if match else text


def _are_names(value: tuple[str, ...]) -> tuple[str, ...]:
    if wrong := next((v for v in value if not _NAME.fullmatch(v)), None):
        raise ValueError(
            f"has {without_value(wrong)!r}: it takes names of variables, never their values; write it like [HF_TOKEN]"
        )
    for pattern, why in _NOT_CARRIED:
        if wrong := next((v for v in value if re.fullmatch(pattern, v)), None):
            raise ValueError(f"has {wrong}, which {why}; leave it out")
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

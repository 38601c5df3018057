"""The key `storage` of a target: where it keeps checkpoints and records of JAX runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]{2,}(/.*)?")


def _is_for_all_hosts(value: str) -> str:
    if not value or _BUCKET.fullmatch(value) or (Path(value).is_absolute() and ".." not in Path(value).parts):
        return value
    raise ValueError("is neither a bucket nor a folder; write it like gs://my-bucket/runs, or /shared/runs")


StorageSetting = Annotated[
    str,
    AfterValidator(_is_for_all_hosts),
    Field(
        description="keeps checkpoints and records of JAX runs: a bucket such as gs://BUCKET/runs, or a folder that "
        "this machine and all hosts see under one path; default: the directory of a run"
    ),
]

"""The key `gcloud` of a target of kind gke: further options of its node pools."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from podwright.targets.settings.values import decided_options

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=[^\n]*)?")


def _are_options(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        option = _OPTION.fullmatch(text)
        if option is None:
            raise ValueError(f"has {text!r}, which is no option; write it like [--disk-size=200GB]")
        if option[1].removeprefix("no-") in decided_options("node_pool"):
            raise ValueError(
                f"has {text!r}, which is set for each node pool; leave it out, or set the key of the target for it"
            )
    return value


GcloudSetting = Annotated[
    tuple[str, ...],
    AfterValidator(_are_options),
    Field(
        description="further options of `gcloud beta container node-pools create`, such as --disk-size=200GB or --host-maintenance-interval=PERIODIC"
    ),
]

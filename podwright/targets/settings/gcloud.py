"""The key `gcloud` of a target of kind gke: further options of its node pools."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=[^\n]*)?")
_SET = frozenset(
    [
        *("project", "cluster", "location", "region", "zone", "node-locations", "machine-type", "node-version", "accelerator"),
        *("reservation", "reservation-affinity", "spot", "preemptible", "flex-start", "max-run-duration"),
        *("enable-queued-provisioning", "enable-best-effort-provision", "min-provision-nodes", "enable-autoprovisioning"),
        *("num-nodes", "enable-autoscaling", "min-nodes", "max-nodes", "total-min-nodes", "total-max-nodes", "location-policy"),
        *("placement-type", "placement-policy", "tpu-topology", "accelerator-network-profile", "enable-gvnic", "enable-autorepair"),
        *("max-pods-per-node", "scopes", "node-labels", "labels", "metadata", "async", "quiet", "format"),
    ]
)  # fmt: skip
"""options of `gcloud container node-pools create` that the other keys of a target decide: of two with one name gcloud takes the last"""


def _are_options(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        option = _OPTION.fullmatch(text)
        if option is None:
            raise ValueError(f"has {text!r}, which is no option; write it like [--disk-size=200GB]")
        if option[1].removeprefix("no-") in _SET:
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

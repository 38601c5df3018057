"""The key `gcloud` of a target of kind gke: further options of its node pools."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=[^\n]*)?")
_SET = {
    **{"project": "project", "cluster": "cluster", "location": "region", "region": "region", "zone": "zones", "node-locations": "zones"},
    **{"machine-type": "machine_type", "tpu-topology": "topology", "reservation": "reservations", "max-run-duration": "max_life"},
    **dict.fromkeys(("reservation-affinity", "spot", "preemptible", "flex-start"), "provisioning"),
}  # fmt: skip
"""options of `gcloud container node-pools create` that another key of the target decides, by that key"""
_OF_PODWRIGHT = {
    *("num-nodes", "enable-autoscaling", "min-nodes", "max-nodes", "total-min-nodes", "total-max-nodes", "location-policy"),
    *("enable-queued-provisioning", "enable-best-effort-provision", "min-provision-nodes", "enable-autorepair"),
    *("placement-type", "placement-policy", "accelerator-network-profile", "enable-gvnic", "max-pods-per-node"),
    *("node-version", "scopes", "node-labels", "labels", "metadata", "accelerator", "enable-autoprovisioning"),
    *("async", "quiet", "format", "flatten", "help", "flags-file", "account", "configuration", "access-token-file"),
    *("impersonate-service-account", "billing-project", "universe-domain", "user-output-enabled", "verbosity", "log-http"),
}  # fmt: skip


def _are_options(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        option = _OPTION.fullmatch(text)
        if option is None:
            raise ValueError(f"has {text!r}, which is no option; write it like [--disk-size=200GB]")
        name = option[1].removeprefix("no-")
        if key := _SET.get(name):
            raise ValueError(f"has {text!r}, which {key} of the target decides; set that instead")
        if name in _OF_PODWRIGHT:
            raise ValueError(f"has {text!r}, which is set for each node pool; leave it out")
    return value


GcloudSetting = Annotated[
    tuple[str, ...],
    AfterValidator(_are_options),
    Field(
        description="further options of `gcloud beta container node-pools create`, such as --disk-size=200GB or --host-maintenance-interval=PERIODIC"
    ),
]

"""What gcloud's texts lead to; the first table is from research and issue trackers, the second was collected without the classifier."""

import pytest

from podwright.rundir import Ending
from podwright.targets.google.replies import Consequence, Reply, refusal
from podwright.targets.machines import AllocationState, covers
from podwright.targets.tpu_vm import cloud_states
from podwright.targets.tpu_vm.replies import classify, of_project

HTTP = (
    "ERROR: (gcloud.compute.tpus.tpu-vm.create) HttpError accessing <https://tpu.googleapis.com/v2/projects/p/locations/us-east5-b/nodes?"
    'alt=json&nodeId=n>: response: <{\'status\': 429}>, content <{ "error": { "code": 429, "message": "%s", '
    '"status": "RESOURCE_EXHAUSTED" } }>'
)
OPERATION = 'ERROR: (gcloud.compute.tpus.tpu-vm.create) {\n  "code": %d,\n  "message": "%s"\n}'


@pytest.mark.parametrize(
    ("text", "consequence"),
    [
        (
            OPERATION
            % (
                8,
                'There is no more capacity in the zone \\"us-central1-b\\"; you can try in another zone where Cloud TPU Nodes are offered '
                "(see https://cloud.google.com/tpu/docs/regions) [EID: 0x1]",
            ),
            Consequence.ZONE,
        ),
        (
            OPERATION % (9, "Insufficient reserved capacity. Contact customer support to increase your reservation."),
            Consequence.ZONE,
        ),
        (
            OPERATION
            % (3, "Cloud TPU received a bad request. update is not supported while in state PREEMPTED [EID: 0x2]"),
            Consequence.ZONE,
        ),
        (
            HTTP
            % "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in region us-east5.",
            Consequence.REGION,
        ),
        (
            HTTP % "Quota 'TPUV2sPreemptiblePodPerProjectPerZoneForTPUAPI' exhausted. Limit 32 in zone europe-west4-a",
            Consequence.ZONE,
        ),
        (
            HTTP
            % "Quota exceeded for quota metric 'Create node requests' and limit 'Maximum number of CreateNode requests per minute' of service",
            Consequence.REPEAT,
        ),
        (
            'Cloud TPU received a bad request. The requested zone "us-mars1-a" is not supported. [EID: 0x3]',
            Consequence.FINAL,
        ),
        (
            'The requested accelerator configuration for accelerator type, "v6e-4", could not be found in the zonal accelerator '
            'configurations for "us-east5-b".; the accelerator v6e-4 was not found in zone us-east5-b [EID: 0x4]',
            Consequence.FINAL,
        ),
        (
            'CloudTpu received an invalid AcceleratorType, "v3-8" for zone "us-east5-b". Valid values are "v2-8, ".',
            Consequence.FINAL,
        ),
        (
            OPERATION % (3, 'FLEX_START provisioning model is not supported for accelerator type \\"v6e-1\\"'),
            Consequence.ZONE,
        ),
        (
            "PERMISSION_DENIED: Permission denied on 'locations/us-east5-b' (or it may not exist). This command is authenticated as a@b",
            Consequence.FINAL,
        ),
        ("Permission 'tpu.nodes.list' denied on 'projects/p/locations/us-east5-b'", Consequence.FINAL),
        ("Location us-mars1-a is not found or access is unauthorized.", Consequence.FINAL),
        ("This API method requires billing to be enabled. Please enable billing on project #1234", Consequence.FINAL),
        (
            "Cloud TPU API has not been used in project 123 before or it is disabled. Enable it by visiting https://x then retry.",
            Consequence.FINAL,
        ),
        (
            "NOT_FOUND: Resource 'projects/p/locations/us-east5-b/nodes/n' was not found. This command is authenticated as a@b",
            Consequence.ABSENT,
        ),
        ("ERROR: (gcloud.compute.tpus.tpu-vm.create) ALREADY_EXISTS: Resource exists", Consequence.EXISTS),
        ("Internal error. Please try again", Consequence.REPEAT),
        (
            "Operation {projects/p/locations/z/operations/o} has not finished in 1800 seconds. The operations may still be underway remotely",
            Consequence.UNKNOWN,
        ),
        (
            "ERROR: (gcloud.compute.tpus.tpu-vm.describe) You do not currently have an active account selected.",
            Consequence.FINAL,
        ),
        ("Reauthentication failed. cannot prompt during non-interactive execution.", Consequence.FINAL),
        (
            "There was a problem refreshing your current auth tokens: ('invalid_grant: Token has been expired or revoked.', {})",
            Consequence.FINAL,
        ),
        (
            "There was a problem refreshing your current auth tokens: HTTPSConnectionPool(host='oauth2.googleapis.com', port=443): "
            "Max retries exceeded with url: /token\nPlease run:\n\n  $ gcloud auth login\n\nto obtain new credentials.",
            Consequence.UNKNOWN,
        ),
        (
            "Error parsing [tpu]. The [tpu] resource is not properly specified.\nFailed to find attribute [project].",
            Consequence.FINAL,
        ),
        (
            "DeleteQueuedResource is not supported when state is ACTIVE (must be one of [ACCEPTED SUSPENDED FAILED])",
            Consequence.UNKNOWN,
        ),
        (
            "ERROR: gcloud crashed (ConnectionError): ('Connection aborted.', ConnectionResetError(104))",
            Consequence.UNKNOWN,
        ),
        ("", Consequence.UNKNOWN),
        ("RESOURCE_EXHAUSTED", Consequence.UNKNOWN),
        ('{"error": {"code": 429', Consequence.UNKNOWN),
    ],
)
def test_each_text_leads_where_it_should(text: str, consequence: Consequence) -> None:
    assert classify(text, "my-project", "us-east5-b").consequence is consequence


def test_a_refusal_says_what_it_means_and_what_to_type() -> None:
    off = classify(
        "Cloud TPU API has not been used in project 123 before or it is disabled.", "my-project", "us-east5-b"
    )
    assert off.reason == "ApiOff: the Cloud TPU API is off in the project"
    assert "gcloud services enable tpu.googleapis.com --project=my-project" in off.fix
    quota = classify("Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded.", "p", "z")
    assert (
        quota.reason == "Quota: the project has no more of TPUV6EPreemptiblePerProjectPerRegionForTPUAPI in this region"
    )
    assert classify("WARNING: x\nsomething new\n", "p", "z").reason == "Unclear: gcloud says 'something new'"


def test_a_region_covers_its_zones_and_no_others() -> None:
    refused = refusal(Reply(Consequence.REGION, "Quota: none"), "us-east5-a")
    assert refused and covers(refused.scope, "us-east5-b") and not covers(refused.scope, "us-east50-b")


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("FLEX_START provisioning model is not supported for accelerator type", Ending.BAD_INPUT),
        ("There is no more capacity in the zone", Ending.NO_CAPACITY),
    ],
)
def test_a_zone_that_never_sells_a_type_refuses_for_good(text: str, ending: Ending) -> None:
    answer = cloud_states.failed(OPERATION % (3, text), of_project("my-project"), "us-east5-b")
    assert (answer.state, answer.scope, answer.ending) == (AllocationState.REFUSED, "us-east5-b", ending)
    assert ("correct zones or provisioning of the target" in answer.reason) == (ending is Ending.BAD_INPUT)

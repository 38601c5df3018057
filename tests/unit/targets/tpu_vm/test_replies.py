"""What gcloud's texts lead to; the first table is from research and issue trackers, the second was collected without the classifier."""

import pytest

from podwright.targets.tpu_vm.replies import Verdict, classify, region_of

HTTP = (
    "ERROR: (gcloud.compute.tpus.tpu-vm.create) HttpError accessing <https://tpu.googleapis.com/v2/projects/p/locations/us-east5-b/nodes?"
    'alt=json&nodeId=n>: response: <{\'status\': 429}>, content <{ "error": { "code": 429, "message": "%s", '
    '"status": "RESOURCE_EXHAUSTED" } }>'
)
OPERATION = 'ERROR: (gcloud.compute.tpus.tpu-vm.create) {\n  "code": %d,\n  "message": "%s"\n}'


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (
            OPERATION
            % (
                8,
                'There is no more capacity in the zone \\"us-central1-b\\"; you can try in another zone where Cloud TPU Nodes are offered '
                "(see https://cloud.google.com/tpu/docs/regions) [EID: 0x1]",
            ),
            Verdict.ZONE,
        ),
        (
            OPERATION % (9, "Insufficient reserved capacity. Contact customer support to increase your reservation."),
            Verdict.ZONE,
        ),
        (
            OPERATION
            % (3, "Cloud TPU received a bad request. update is not supported while in state PREEMPTED [EID: 0x2]"),
            Verdict.ZONE,
        ),
        (
            HTTP
            % "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in region us-east5.",
            Verdict.REGION,
        ),
        (
            HTTP % "Quota 'TPUV2sPreemptiblePodPerProjectPerZoneForTPUAPI' exhausted. Limit 32 in zone europe-west4-a",
            Verdict.ZONE,
        ),
        (
            HTTP
            % "Quota exceeded for quota metric 'Create node requests' and limit 'Maximum number of CreateNode requests per minute' of service",
            Verdict.AGAIN,
        ),
        (
            'Cloud TPU received a bad request. The requested zone "us-mars1-a" is not supported. [EID: 0x3]',
            Verdict.FINAL,
        ),
        (
            'The requested accelerator configuration for accelerator type, "v6e-4", could not be found in the zonal accelerator '
            'configurations for "us-east5-b".; the accelerator v6e-4 was not found in zone us-east5-b [EID: 0x4]',
            Verdict.FINAL,
        ),
        (
            'CloudTpu received an invalid AcceleratorType, "v3-8" for zone "us-east5-b". Valid values are "v2-8, ".',
            Verdict.FINAL,
        ),
        (
            OPERATION % (3, 'FLEX_START provisioning model is not supported for accelerator type \\"v6e-1\\"'),
            Verdict.ZONE,
        ),
        (
            "PERMISSION_DENIED: Permission denied on 'locations/us-east5-b' (or it may not exist). This command is authenticated as a@b",
            Verdict.FINAL,
        ),
        ("Permission 'tpu.nodes.list' denied on 'projects/p/locations/us-east5-b'", Verdict.FINAL),
        ("Location us-mars1-a is not found or access is unauthorized.", Verdict.FINAL),
        (
            "Cloud TPU API has not been used in project 123 before or it is disabled. Enable it by visiting https://x then retry.",
            Verdict.FINAL,
        ),
        (
            "NOT_FOUND: Resource 'projects/p/locations/us-east5-b/nodes/n' was not found. This command is authenticated as a@b",
            Verdict.ABSENT,
        ),
        ("ERROR: (gcloud.compute.tpus.tpu-vm.create) ALREADY_EXISTS: Resource exists", Verdict.EXISTS),
        ("Internal error. Please try again", Verdict.AGAIN),
        (
            "Operation {projects/p/locations/z/operations/o} has not finished in 1800 seconds. The operations may still be underway remotely",
            Verdict.UNKNOWN,
        ),
        (
            "ERROR: (gcloud.compute.tpus.tpu-vm.describe) You do not currently have an active account selected.",
            Verdict.FINAL,
        ),
        ("Reauthentication failed. cannot prompt during non-interactive execution.", Verdict.FINAL),
        (
            "Error parsing [tpu]. The [tpu] resource is not properly specified.\nFailed to find attribute [project].",
            Verdict.FINAL,
        ),
        (
            "DeleteQueuedResource is not supported when state is ACTIVE (must be one of [ACCEPTED SUSPENDED FAILED])",
            Verdict.UNKNOWN,
        ),
        (
            "ERROR: gcloud crashed (ConnectionError): ('Connection aborted.', ConnectionResetError(104))",
            Verdict.UNKNOWN,
        ),
        ("", Verdict.UNKNOWN),
        ("RESOURCE_EXHAUSTED", Verdict.UNKNOWN),
        ('{"error": {"code": 429', Verdict.UNKNOWN),
    ],
)
def test_each_text_leads_where_it_should(text: str, verdict: Verdict) -> None:
    assert classify(text, "my-project", "us-east5-b").verdict is verdict


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
    assert "us-east5-b".startswith(region_of("us-east5-a")) and not "us-east50-b".startswith(region_of("us-east5-a"))

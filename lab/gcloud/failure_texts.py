"""What real gclouds and the TPU service have printed when a call failed, each with its source. Collected without a look at how the
product tells replies apart, so that tests can hold the one against the other.

Names of projects, zones and accounts are replaced; `{project}`, `{zone}` and `{name}` stand for those of the call.
"""

from dataclasses import dataclass

_SDK = "source of Google Cloud SDK 528, googlecloudsdk/"


@dataclass(frozen=True)
class FailureText:
    name: str
    source: str
    text: str
    """without the leading `ERROR: (gcloud.VERB) `"""
    passes: bool = True
    """whether the same call, or one in another zone, may succeed later; False: only its user can mend it"""


TEXTS = (
    FailureText(
        "reserved-capacity",
        "github.com/skypilot-org/skypilot/issues/4579",
        "RESOURCE_EXHAUSTED: Insufficient reserved capacity. Contact customer support to increase your reservation. [EID: 0x7adf6d58c08b0aa4]",
    ),
    FailureText(
        "regional-quota",
        "github.com/marin-community/marin/issues/87",
        "RESOURCE_EXHAUSTED: Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. Limit 10000 in region {region}",
    ),
    FailureText(
        "type-not-in-zone",
        "github.com/skypilot-org/skypilot/issues/3840",
        "INVALID_ARGUMENT: Cloud TPU received a bad request. the accelerator v6e-16 was not found in zone {zone} [EID: 0x945ef875d10e8e13]",
        passes=False,
    ),
    FailureText(
        "already-exists",
        "github.com/skypilot-org/skypilot/issues/129",
        "ALREADY_EXISTS: Resource 'projects/{project}/locations/{zone}/nodes/{name}' already exists\n"
        "- '@type': type.googleapis.com/google.rpc.ResourceInfo\n"
        "  resourceName: projects/{project}/locations/{zone}/nodes/{name}",
    ),
    FailureText(
        "scopes",
        f"github.com/tensorflow/tpu/issues/596; the help below it: {_SDK}calliope/exceptions.py",
        "PERMISSION_DENIED: Request had insufficient authentication scopes.\n\n"
        "If you are in a compute engine VM, it is likely that the specified scopes during VM creation are not enough to run this command.\n"
        "See https://cloud.google.com/compute/docs/access/service-accounts#accesscopesiam for more information about access scopes.",
        passes=False,
    ),
    FailureText(
        "may-not-exist",
        "github.com/CrowdStrike/falcon-integration-gateway/pull/98, github.com/tensorflow/tpu/issues/296",
        "PERMISSION_DENIED: Permission 'tpu.nodes.get' denied on resource "
        "'//tpu.googleapis.com/projects/{project}/locations/{zone}/nodes/{name}' (or it may not exist).",
        passes=False,
    ),
    FailureText(
        "free-trial",
        "github.com/tensorflow/tpu/issues/124",
        "PERMISSION_DENIED: cannot create a TPU Node on a project linked to a free-trial billing account",
        passes=False,
    ),
    FailureText(
        "no-network",
        "github.com/googlecloudrobotics/core/issues/339",
        'INVALID_ARGUMENT: Project "{project}" has no network named "default".',
        passes=False,
    ),
    FailureText(
        "reauthentication",
        f"github.com/cline/cline/issues/4080; the words around it: {_SDK}core/credentials/exceptions.py",
        "There was a problem refreshing your current auth tokens: ('invalid_grant: reauth related error (invalid_rapt)', "
        "{{'error': 'invalid_grant', 'error_description': 'reauth related error (invalid_rapt)', 'error_subtype': 'invalid_rapt'}})\n"
        "Please run:\n\n  $ gcloud auth login\n\nto obtain new credentials.",
        passes=False,
    ),
    FailureText(
        "token-endpoint-502",
        f"github.com/cloudfoundry/bosh-google-cpi-release/issues/197; the words around it: {_SDK}core/credentials/exceptions.py",
        "There was a problem refreshing your current auth tokens: ('Unexpected response (502) from OAuth server: "
        "<!DOCTYPE html>\\n<html lang=en>\\n<title>Error 502 (Server Error)!!1</title>\\n<p>The server encountered a temporary error and could "
        "not complete your request.<p>Please try again in 30 seconds.', )\n"
        "Please run:\n\n  $ gcloud auth login\n\nto obtain new credentials.",
    ),
    FailureText(
        "database-locked",
        "github.com/google/oss-fuzz-gen/issues/163, github.com/marin-community/marin/pull/6681",
        "gcloud crashed (OperationalError): database is locked\n\n"
        "If you would like to report this issue, please run the following command:\n  gcloud feedback\n\n"
        "To check gcloud for common problems, please run the following command:\n  gcloud info --run-diagnostics",
    ),
    FailureText(
        "tls-eof",
        "github.com/GoogleCloudPlatform/cloud-code-intellij/issues/3146",
        "gcloud crashed (SSLError): HTTPSConnectionPool(host='oauth2.googleapis.com', port=443): Max retries exceeded with url: /token "
        "(Caused by SSLError(SSLEOFError(8, 'EOF occurred in violation of protocol (_ssl.c:1129)')))",
    ),
    FailureText(
        "connection-reset",
        f"{_SDK}core/exceptions.py, NetworkIssueError",
        "[Errno 104] Connection reset by peer\n"
        "This may be due to network connectivity issues. Please check your network settings, and the status of the service you are trying to reach.",
    ),
    FailureText(
        "operation-unfinished",
        f"{_SDK}api_lib/util/waiter.py",
        "Operation projects/{project}/locations/{zone}/operations/operation-1730000000000-62abc has not finished in 1800 seconds. "
        "The operations may still be underway remotely and may still succeed; use gcloud list and describe commands or "
        "https://console.developers.google.com/ to check resource state.",
    ),
    FailureText(
        "project-id",
        f"{_SDK}core/properties.py",
        "The project property must be set to a valid project ID, [{project}] is not a valid project ID.\n"
        "To set your project, run:\n\n  $ gcloud config set project PROJECT_ID",
        passes=False,
    ),
    FailureText(
        "front-end-404",
        "form of the page: github.com/cloudfoundry/bosh-google-cpi-release/issues/197 (a 502); that of a 404 is written from memory [?]",
        "HTTPError 404: <!DOCTYPE html>\n<html lang=en>\n  <meta charset=utf-8>\n  <title>Error 404 (Not Found)!!1</title>\n"
        "  <p><b>404.</b> <ins>That’s an error.</ins>\n  <p>The requested URL was not found on this server.  <ins>That’s all we know.</ins>",
    ),
)


def filled(text: FailureText, project: str, zone: str, name: str) -> str:
    return text.text.format(project=project, zone=zone, region=zone.rpartition("-")[0], name=name)

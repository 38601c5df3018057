"""What a failed call of kubectl lets one conclude: that nothing of the name is there, that the same call may be made again, or that a
person has to act first. Pure.

Texts are told apart by what only they say. What no row knows has an unknown outcome: the call may have done its work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from podwright.targets.google.replies import Consequence, Reply, ReplyRule
from podwright.targets.settings.gke import GkeSettings

CREDENTIALS = "type gcloud container clusters get-credentials {cluster} --location={location} --project={project}"
_GRANT = (
    "type gcloud projects add-iam-policy-binding {project} --member={member} --role=roles/container.developer, or have an owner of "
    "{project} type it"
)
_RIGHTS = "ask for the role Kubernetes Engine Developer (roles/container.developer) in {project}"
_JOBSET = "install JobSet: https://jobset.sigs.k8s.io/docs/installation"
_NO_NETWORK = (
    r"connection to the server \S+ was refused|no such host|i/o timeout|handshake timeout|no route to host|network is unreachable"
    r"|context deadline exceeded|Client\.Timeout|connection re(?:fused|set)|connection lost|unexpected EOF|: EOF|GOAWAY|server misbehaving"
    r"|Temporary failure in name resolution|timed out waiting|kubectl has not answered"
)
_TABLE = (
    ReplyRule(
        r"context was not found for specified context|context \"[^\"]*\" does not exist|error loading config file .*no such file",
        Consequence.FINAL,
        "NoContext: kubectl has no login for cluster {cluster}",
        CREDENTIALS,
    ),
    ReplyRule(
        r"executable gke-gcloud-auth-plugin not found|exec: \"gke-gcloud-auth-plugin\": executable file not found",
        Consequence.FINAL,
        "NoPlugin: gke-gcloud-auth-plugin, by which kubectl logs in, is not on this machine",
        "type gcloud components install gke-gcloud-auth-plugin",
    ),
    ReplyRule(  # before texts of logins and certificates: those of the webhook are meant there
        r"failed calling webhook \"(?P<quota>[^\"]+)\"",
        Consequence.REPEAT,
        "WebhookDown: {quota}, which checks what is created, does not answer",
    ),
    ReplyRule(
        r"No Auth Provider found for name \"gcp\"|no Auth Provider found|gcp auth plugin (?:is deprecated|has been removed)"
        r"|could not find default credentials|error executing access token command|exec plugin: invalid apiVersion|x509: certificate signed by unknown authority|certificate has expired",
        Consequence.FINAL,
        "OldLogin: kubectl's entry for cluster {cluster} is out of date",
        CREDENTIALS,
    ),
    ReplyRule(
        r"There was a problem refreshing (?:your current )?auth tokens: (?!.*(?:[Rr]eauth|invalid_grant))"
        r"|Failed to retrieve access token(?!.*(?:[Rr]eauth|invalid_grant|active account)).*(?:connection|timed? ?out|resolve)",
        Consequence.UNKNOWN,
        "NoToken: the login of gcloud could not be renewed now",
    ),
    ReplyRule(
        r"must be logged in to the server|server has asked for the client to provide credentials|Error from server \(Unauthorized\)"
        r"|[Rr]eauthentication (?:failed|required)|complete reauthentication|invalid_grant|active account selected"
        r"|executable gke-gcloud-auth-plugin failed with exit code|getting credentials: ",
        Consequence.FINAL,
        "NoLogin: the login of gcloud, which kubectl uses, has expired",
        "type gcloud auth login",
    ),
    ReplyRule(
        r"admission webhook \"[^\"]+\" denied the request: follower pod node selector not set",
        Consequence.REPEAT,
        "Follower: the first pod of the slice has no node yet",
    ),
    ReplyRule(
        r"admission webhook \"(?P<quota>[^\"]+)\" denied the request: (?P<message>[^\n]+)",
        Consequence.FINAL,
        "Denied: {quota} of the cluster refuses it: {message}",
        "change what it names, or ask an administrator of the cluster",
    ),
    ReplyRule(
        r"object is being deleted|because it is being terminated|Error from server \(Conflict\)",
        Consequence.REPEAT,
        "Deleting: what was there before is being deleted",
    ),
    ReplyRule(r"AlreadyExists|already exists", Consequence.EXISTS, "Exists: something of this name exists"),
    ReplyRule(
        r"exceeded quota: (?P<quota>[^,\n]+), (?P<message>[^\n]+)",
        Consequence.FINAL,
        "Quota: namespace {namespace} has no more of ResourceQuota {quota}: {message}",
        "type kubectl describe resourcequota {quota} --namespace={namespace}, and delete what is no longer needed",
    ),
    ReplyRule(
        r"is forbidden: User \"(?P<user>[^\"]+@[^\"]+)\" cannot (?P<verb>\w+) resource \"(?P<resource>[^\"]+)\" in API group \"(?P<group>[^\"]*)\""
        r" (?P<where>in the namespace \"[^\"]+\"|at the cluster scope)",
        Consequence.FINAL,
        "NoPermission: {user} may not {verb} {resource} {where}",
        _GRANT,
    ),
    ReplyRule(
        r"is forbidden: (?P<message>User \"[^\"]*\" cannot [^\n]+)",
        Consequence.FINAL,
        "NoPermission: {message}",
        _RIGHTS,
    ),
    ReplyRule(
        r"Required \"(?P<quota>[\w.]+)\" permission",
        Consequence.FINAL,
        "NoPermission: the account of gcloud lacks {quota}",
        _RIGHTS,
    ),
    ReplyRule(r"Forbidden|is forbidden: (?P<message>[^\n]+)", Consequence.FINAL, "NoPermission: {message}", _RIGHTS),
    ReplyRule(
        r"namespaces \"(?P<quota>[^\"]+)\" not found",
        Consequence.FINAL,
        "NoNamespace: the cluster has no namespace {quota}",
        "type kubectl create namespace {quota} --context={context}, or correct namespace of the target",
    ),
    ReplyRule(
        r"no matches for kind \"JobSet\"|doesn't have a resource type \"jobsets?\"|could not find the requested resource \((?:get|post|delete) jobsets"
        r"|Resource=jobsets\"[^\n]*could not find the requested resource",
        Consequence.FINAL,
        "NoJobSet: JobSet, by which a run is submitted, is not installed in cluster {cluster}",
        _JOBSET,
    ),
    ReplyRule(
        r"Resource=(?P<quota3>[\w.-]+)\"[^\n]*could not find the requested resource|doesn't have a resource type \"(?P<quota>[^\"]+)\"|no matches for kind \"(?P<quota2>[^\"]+)\"",
        Consequence.ABSENT,
        "NoKind: cluster {cluster} has no objects of kind {quota}",
    ),
    ReplyRule(
        r"could not find the requested resource",
        Consequence.ABSENT,
        "NoKind: cluster {cluster} does not know this kind of object",
    ),
    ReplyRule(r"\(NotFound\)|\" not found", Consequence.ABSENT, "Absent: nothing of this name exists"),
    ReplyRule(
        r"error validating|is invalid: |strict decoding error|error parsing|Request entity too large|cannot unmarshal"
        r"|Error from server \((?:BadRequest|MethodNotAllowed|NotAcceptable|UnsupportedMediaType)\)",
        Consequence.FINAL,
        "Invalid: {summary}",
        "report it with this line: the manifest is of podwright",
    ),
    ReplyRule(
        r"unknown (?:shorthand )?flag|unknown command|invalid argument \"[^\"]*\" for \"|required flag\(s\)",
        Consequence.FINAL,
        "OldKubectl: this kubectl does not know an option of the call: {summary}",
        "type gcloud components install kubectl",
    ),
    ReplyRule(
        r"TooManyRequests|too many requests|rate limiter|throttl",
        Consequence.REPEAT,
        "RequestRate: the API server takes no more requests now",
    ),
    ReplyRule(
        r"ServiceUnavailable|currently unable to handle the request|InternalError|etcdserver|Error from server \(Timeout\)"
        r"|Internal error|internal server error|storage is \(re\)initializing|an error on the server",
        Consequence.REPEAT,
        "ServerBusy: the API server could not answer",
    ),
    ReplyRule(
        _NO_NETWORK,
        Consequence.UNKNOWN,
        "Unreachable: this machine does not reach the API server of cluster {cluster}",
    ),
)


def context_of(own: GkeSettings) -> str:
    """The name that `gcloud container clusters get-credentials` gives to the login for a cluster."""
    return f"gke_{own.project}_{own.location}_{own.cluster}"


def classify(text: str, own: GkeSettings) -> Reply:
    """`text`: stderr of a call that failed."""
    fields = {
        "project": own.project,
        "location": own.location,
        "cluster": own.cluster,
        "namespace": own.namespace,
        "context": context_of(own),
        "summary": summary(text),
    }
    for row in _TABLE:
        if match := re.search(row.pattern, text):
            groups = match.groupdict()
            known = (
                fields
                | _right(groups)
                | {
                    "quota": groups.get("quota") or groups.get("quota2") or groups.get("quota3") or "",
                    "message": groups.get("message") or fields["summary"],
                }
            )
            return Reply(row.consequence, row.reason.format(**known), row.fix.format(**known))
    return Reply(Consequence.UNKNOWN, f"Unclear: kubectl says {fields['summary']!r}")


def is_done(failure: Reply | None) -> bool:
    """Of a call that reads or deletes: whether it succeeded, or nothing of the name is there."""
    return failure is None or failure.consequence is Consequence.ABSENT


def _right(groups: Mapping[str, str | None]) -> dict[str, str]:
    """Of a call that was refused for lack of a right: whose, which, and where. {} for another row."""
    if not (user := groups.get("user")):
        return {}
    resource, group, verb = groups["resource"] or "", groups["group"], groups["verb"] or ""
    where = (groups["where"] or "").replace('"', "").replace("in the namespace", "in namespace")
    member = f"serviceAccount:{user}" if user.endswith(".gserviceaccount.com") else f"user:{user}"
    named = f"{resource} ({group})" if group else resource
    return {"user": user, "member": member, "verb": verb, "resource": named, "where": where}


def summary(text: str) -> str:
    """The last line that is a message, without the notes of klog (E1123 07:02:09 ...) before it."""
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not re.match(r"[EWIF]\d{4} |Warning:", line)
    ]
    return lines[-1][:300] if lines else "nothing"

"""The resources that the API server knows, and the discovery documents made of them: /api, /apis, /version, /openapi/v3."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
GIT_VERSION = "v1.32.4-gke.1415000"


@dataclass(frozen=True)
class Resource:
    """One row of `kubectl api-resources`. `strategic`: a built-in type, which takes strategic merge patches."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = True
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    strategic: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As messages name it: jobs.batch, pods."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


KUEUE, JOBSET = "kueue.x-k8s.io", "jobset.x-k8s.io"
ROWS = (
    Resource("", "v1", "pods", "Pod", short=("po",), subresources=("log", "exec")),
    Resource("", "v1", "nodes", "Node", namespaced=False, short=("no",)),
    Resource("", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",)),
    Resource("", "v1", "configmaps", "ConfigMap", short=("cm",), status=False),
    Resource("", "v1", "secrets", "Secret", status=False),
    Resource("", "v1", "services", "Service", short=("svc",)),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",), status=False),
    Resource("", "v1", "events", "Event", short=("ev",), status=False),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",)),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", status=False),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",), status=False),
    Resource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, ("crd", "crds")
    ),
    Resource("apps", "v1", "deployments", "Deployment", short=("deploy",)),
    Resource("apps", "v1", "daemonsets", "DaemonSet", short=("ds",)),
    Resource(JOBSET, "v1alpha2", "jobsets", "JobSet", strategic=False),
    Resource(KUEUE, "v1beta1", "workloads", "Workload", short=("wl",), strategic=False),
    Resource(KUEUE, "v1beta1", "clusterqueues", "ClusterQueue", False, ("cq",), strategic=False),
    Resource(KUEUE, "v1beta1", "localqueues", "LocalQueue", short=("queue", "queues", "lq"), strategic=False),
    Resource(KUEUE, "v1beta1", "resourceflavors", "ResourceFlavor", False, ("flavor", "rf"), False, strategic=False),
    Resource(KUEUE, "v1beta1", "workloadpriorityclasses", "WorkloadPriorityClass", False, (), False, strategic=False),
    Resource(KUEUE, "v1beta1", "admissionchecks", "AdmissionCheck", False, strategic=False),
    Resource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        False,
        (),
        False,
        verbs=("create",),
    ),
    Resource(
        "authorization.k8s.io",
        "v1",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        False,
        (),
        False,
        verbs=("create",),
    ),
)
RESOURCES = {row.plural: row for row in ROWS}
CUSTOM_GROUPS = (JOBSET, KUEUE)


def installed(absent: frozenset[str] = frozenset()) -> list[Resource]:
    """All but those of groups that the cluster does not have, such as Kueue's."""
    return [row for row in ROWS if row.group not in absent]


def groups(rows: list[Resource]) -> dict[str, str]:
    """{group: version} of the named groups."""
    return {row.group: row.version for row in rows if row.group}


def api_versions() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(rows: list[Resource]) -> Json:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(*item) for item in groups(rows).items()]}


def group(name: str, version: str) -> Json:
    choice = {"groupVersion": f"{name}/{version}", "version": version}
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": [choice], "preferredVersion": choice}


def resource_list(api_version: str, rows: list[Resource]) -> Json | None:
    """APIResourceList of one group and version; None where there is none."""
    listed = [entry for row in rows if row.api_version == api_version for entry in entries(row)]
    if not listed:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed}


def entries(row: Resource) -> Iterator[Json]:
    base = {"name": row.plural, "singularName": row.kind.lower(), "namespaced": row.namespaced, "kind": row.kind}
    yield base | {"verbs": list(row.verbs)} | ({"shortNames": list(row.short)} if row.short else {})
    below = {"status": ["get", "patch", "update"], "log": ["get"], "exec": ["create", "get"]}
    for name in (*(("status",) if row.status else ()), *row.subresources):
        yield base | {"name": f"{row.plural}/{name}", "singularName": "", "verbs": below[name]}


def version() -> Json:
    return {
        "major": "1",
        "minor": "32",
        "gitVersion": GIT_VERSION,
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "go1.23.6",
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def openapi_paths(rows: list[Resource]) -> Json:
    """The index of /openapi/v3: one document a group and version."""
    versions = dict.fromkeys(row.api_version for row in rows)
    places = [("apis/" if "/" in v else "api/") + v for v in versions]
    return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}?hash=LAB"} for place in places}}


def openapi(api_version: str, rows: list[Resource]) -> Json | None:
    """As much as makes kubectl leave the validation to the server (`fieldValidation`): the PATCH of each resource, and no schema."""
    kinds = [row for row in rows if row.api_version == api_version]
    if not kinds:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": GIT_VERSION},
        "paths": {
            path(row): {
                "parameters": [],
                "patch": {
                    "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                    "responses": {},
                    "x-kubernetes-action": "patch",
                    "x-kubernetes-group-version-kind": {"group": row.group, "version": row.version, "kind": row.kind},
                },
            }
            for row in kinds
        },
        "components": {"schemas": {}},
    }


def path(row: Resource) -> str:
    root = f"/apis/{row.api_version}" if row.group else f"/api/{row.version}"
    return f"{root}/{'namespaces/{namespace}/' if row.namespaced else ''}{row.plural}/{{name}}"

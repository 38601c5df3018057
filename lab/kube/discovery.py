"""The resources that the API server knows, and the discovery documents made of them: /api, /apis, /version, /openapi/v3."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
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


KUEUE_VERSIONS = ("v1beta2", "v1beta1")  # the preferred one first


def served(row: Resource, knobs: Json) -> tuple[str, ...]:
    """The versions of a resource, the preferred one first."""
    return tuple(knobs.get("kueue_versions", KUEUE_VERSIONS)) if row.group == KUEUE else (row.version,)


def installed(knobs: Json) -> list[Resource]:
    """All in each of their versions, but those of groups that the cluster does not have, such as Kueue's."""
    rows = [row for row in ROWS if row.group not in knobs.get("absent_groups", ())]
    return [replace(row, version=version) for row in rows for version in served(row, knobs)]


def groups(rows: list[Resource]) -> dict[str, list[str]]:
    """{group: versions} of the named groups."""
    named: dict[str, list[str]] = {}
    for row in rows:
        if row.group and row.version not in named.setdefault(row.group, []):
            named[row.group].append(row.version)
    return named


def api_versions() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(rows: list[Resource]) -> Json:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(*item) for item in groups(rows).items()]}


def group(name: str, listed: list[str]) -> Json:
    choices = [{"groupVersion": f"{name}/{version}", "version": version} for version in listed]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": choices, "preferredVersion": choices[0]}


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


def definition(row: Resource, knobs: Json) -> Json:
    """The CustomResourceDefinition of a resource, as far as clients look at it."""
    names = {"plural": row.plural, "singular": row.kind.lower(), "kind": row.kind, "listKind": f"{row.kind}List"}
    listed = [{"name": v, "served": True, "storage": not n} for n, v in enumerate(served(row, knobs))]
    spec = {
        "group": row.group,
        "names": names,
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "versions": listed,
    }
    established = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
    return {"metadata": {"name": row.qualified}, "spec": spec, "status": {"conditions": [established]}}


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

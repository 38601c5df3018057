"""The fields of the kinds that runs are made of, for `fieldValidation=Strict`: unknown fields and wrong types are refused.

One line a type: `field:type`, where a type is s(tring), i(nteger), b(oolean), q(uantity or integer), *(anything), {x} a map to x, [x] a list of x,
or another line's name. `!` marks a required field. Source: the public API reference of Kubernetes and the custom resource definitions of
JobSet (v1alpha2) and Kueue (v1beta1, v1beta2).
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

from lab.kube.discovery import Resource
from lab.kube.errors import bad_request, invalid

Object = dict[str, Any]

TYPES = """
Meta name:s generateName:s namespace:s labels:{s} annotations:{s} ownerReferences:[Owner] finalizers:[s] uid:s resourceVersion:s generation:i \
  creationTimestamp:* deletionTimestamp:* deletionGracePeriodSeconds:i managedFields:* selfLink:s
Owner apiVersion!:s kind!:s name!:s uid!:s controller:b blockOwnerDeletion:b
JobSet replicatedJobs:[ReplicatedJob] network:Network successPolicy:SuccessPolicy failurePolicy:FailurePolicy startupPolicy:StartupPolicy \
  suspend:b coordinator:Coordinator managedBy:s ttlSecondsAfterFinished:i volumeClaimPolicies:*
ReplicatedJob name!:s groupName:s replicas:i template!:JobTemplate dependsOn:[DependsOn]
DependsOn name!:s status!:s
Network enableDNSHostnames:b publishNotReadyAddresses:b subdomain:s
SuccessPolicy operator!:s targetReplicatedJobs:[s]
FailurePolicy maxRestarts:i restartStrategy:s rules:[FailureRule]
FailureRule name!:s action!:s targetReplicatedJobs:[s] onJobFailureReasons:[s] onJobFailureMessagePatterns:[s]
StartupPolicy startupPolicyOrder!:s
Coordinator replicatedJob!:s jobIndex:i podIndex:i
JobTemplate metadata:Meta spec:Job
Job parallelism:i completions:i activeDeadlineSeconds:i podFailurePolicy:PodFailurePolicy successPolicy:* backoffLimit:i backoffLimitPerIndex:i \
  maxFailedIndexes:i selector:Selector manualSelector:b template!:PodTemplate ttlSecondsAfterFinished:i completionMode:s suspend:b \
  podReplacementPolicy:s managedBy:s
PodFailurePolicy rules!:[PodFailureRule]
PodFailureRule action!:s onExitCodes:ExitCodes onPodConditions:[PodCondition]
ExitCodes containerName:s operator!:s values!:[i]
PodCondition type!:s status:s
Selector matchLabels:{s} matchExpressions:[Expression]
Expression key!:s operator!:s values:[s]
PodTemplate metadata:Meta spec:Pod
Pod volumes:[Volume] initContainers:[Container] containers!:[Container] ephemeralContainers:* restartPolicy:s terminationGracePeriodSeconds:i \
  activeDeadlineSeconds:i dnsPolicy:s nodeSelector:{s} serviceAccountName:s serviceAccount:s automountServiceAccountToken:b nodeName:s \
  hostNetwork:b hostPID:b hostIPC:b shareProcessNamespace:b securityContext:PodSecurity imagePullSecrets:[Named] hostname:s subdomain:s \
  affinity:Affinity schedulerName:s tolerations:[Toleration] hostAliases:* priorityClassName:s priority:i dnsConfig:* readinessGates:* \
  runtimeClassName:s enableServiceLinks:b preemptionPolicy:s overhead:{q} topologySpreadConstraints:* setHostnameAsFQDN:b os:* hostUsers:b \
  schedulingGates:[Named] resourceClaims:* resources:Resources
Container name!:s image:s command:[s] args:[s] workingDir:s ports:[Port] envFrom:[EnvFrom] env:[Env] resources:Resources resizePolicy:* \
  restartPolicy:s volumeMounts:[Mount] volumeDevices:* livenessProbe:* readinessProbe:* startupProbe:* lifecycle:* terminationMessagePath:s \
  terminationMessagePolicy:s imagePullPolicy:s securityContext:Security stdin:b stdinOnce:b tty:b
Port name:s hostPort:i containerPort!:i protocol:s hostIP:s
EnvFrom prefix:s configMapRef:Optional secretRef:Optional
Optional name:s optional:b
Env name!:s value:s valueFrom:EnvSource
EnvSource fieldRef:FieldRef resourceFieldRef:* configMapKeyRef:KeyRef secretKeyRef:KeyRef
FieldRef apiVersion:s fieldPath!:s
KeyRef name:s key!:s optional:b
Resources limits:{q} requests:{q} claims:*
Mount name!:s readOnly:b recursiveReadOnly:s mountPath!:s subPath:s mountPropagation:s subPathExpr:s
Security capabilities:* privileged:b seLinuxOptions:* windowsOptions:* runAsUser:i runAsGroup:i runAsNonRoot:b readOnlyRootFilesystem:b \
  allowPrivilegeEscalation:b procMount:s seccompProfile:* appArmorProfile:*
PodSecurity seLinuxOptions:* windowsOptions:* runAsUser:i runAsGroup:i runAsNonRoot:b supplementalGroups:[i] supplementalGroupsPolicy:s \
  fsGroup:i sysctls:* fsGroupChangePolicy:s seccompProfile:* appArmorProfile:* seLinuxChangePolicy:s
Named name:s
Affinity nodeAffinity:* podAffinity:* podAntiAffinity:*
Toleration key:s operator:s value:s effect:s tolerationSeconds:i
Volume name!:s configMap:ConfigMapVolume secret:SecretVolume emptyDir:EmptyDir hostPath:HostPath csi:Csi persistentVolumeClaim:Claim \
  downwardAPI:* projected:* ephemeral:* nfs:* image:* gcePersistentDisk:*
ConfigMapVolume name:s items:[KeyToPath] defaultMode:i optional:b
SecretVolume secretName:s items:[KeyToPath] defaultMode:i optional:b
KeyToPath key!:s path!:s mode:i
EmptyDir medium:s sizeLimit:q
HostPath path!:s type:s
Csi driver!:s readOnly:b fsType:s volumeAttributes:{s} nodePublishSecretRef:Named
Claim claimName!:s readOnly:b
ClusterQueue resourceGroups:[ResourceGroup] cohort:s cohortName:s queueingStrategy:s namespaceSelector:Selector flavorFungibility:* preemption:* \
  admissionChecks:[s] admissionChecksStrategy:* stopPolicy:s fairSharing:* admissionScope:* concurrentAdmissionPolicy:*
ResourceGroup coveredResources!:[s] flavors!:[FlavorQuotas]
FlavorQuotas name!:s resources!:[Quota]
Quota name!:s nominalQuota!:q borrowingLimit:q lendingLimit:q
LocalQueue clusterQueue:s stopPolicy:s fairSharing:*
ResourceFlavor nodeLabels:{s} nodeTaints:[Taint] tolerations:[Toleration] topologyName:s
Taint key!:s value:s effect!:s timeAdded:*
ConfigMapKind metadata:Meta data:{s} binaryData:{s} immutable:b
SecretKind metadata:Meta data:{s} stringData:{s} type:s immutable:b
PriorityClassKind metadata:Meta value!:i globalDefault:b description:s preemptionPolicy:s
"""
BY_KIND = {"configmaps": "ConfigMapKind", "secrets": "SecretKind", "priorityclasses": "PriorityClassKind"}
SPECS = {
    "jobsets": "JobSet",
    "jobs": "Job",
    "pods": "Pod",
    "clusterqueues": "ClusterQueue",
    "localqueues": "LocalQueue",
}
SPECS |= {"resourceflavors": "ResourceFlavor"}
NAMES = {"s": "string", "i": "integer", "b": "boolean", "q": "integer or string"}
QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?\d+))?")
REQUIRED, UNKNOWN = "Required value", "unknown"
Types = dict[str, dict[str, tuple[str, bool]]]


@functools.cache
def types() -> Types:
    """{type: {field: (its type, required)}}."""
    parsed: Types = {}
    for line in TYPES.strip().splitlines():
        name, *fields = line.split()
        pairs = [field.split(":") for field in fields]
        parsed[name] = {field.rstrip("!"): (kind, field.endswith("!")) for field, kind in pairs}
    return parsed


def check(row: Resource, version: str, body: Object, strict: bool) -> None:
    """400 for unknown fields (if strict) and for wrong types of built-in kinds; 422 for wrong types of custom resources."""
    faults = [(path, text) for path, text in object_faults(body, fields_of(row, body), "") if text != REQUIRED]
    unknown = [f'unknown field "{path}"' for path, text in faults if text == UNKNOWN]
    wrong = [(path, text) for path, text in faults if text != UNKNOWN]
    prefix = f'{row.kind} in version "{version}" cannot be handled as a {row.kind}'
    if unknown and strict:
        raise bad_request(f"{prefix}: strict decoding error: {', '.join(unknown)}")
    if wrong and row.strategic:
        raise bad_request(f"{prefix}: {wrong[0][1]}")
    if wrong:
        raise invalid(row.kind, row.group, body["metadata"].get("name", ""), wrong)


def missing(row: Resource, body: Object) -> list[tuple[str, str]]:
    """Fields that must be there, which a webhook may have added."""
    return [(path, text) for path, text in object_faults(body, fields_of(row, body), "") if text == REQUIRED]


def fields_of(row: Resource, body: Object) -> dict[str, tuple[str, bool]]:
    head = {"apiVersion": ("s", False), "kind": ("s", False), "metadata": ("Meta", False), "status": ("*", False)}
    if row.plural in BY_KIND:
        return head | types()[BY_KIND[row.plural]]
    if row.plural in SPECS:
        return head | {"spec": (SPECS[row.plural], False)}
    return {**{key: ("*", False) for key in body}, "metadata": ("Meta", False)}


def object_faults(body: Any, fields: dict[str, tuple[str, bool]], path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(body, dict):
        yield path, wrong_type(path, "object", body)
        return
    for key, value in body.items():
        place = f"{path}.{key}" if path else key
        if key not in fields:
            yield place, UNKNOWN
        elif value is not None:
            yield from value_faults(value, fields[key][0], place)
    for key, (_, required) in fields.items():
        if required and body.get(key) is None:
            yield f"{path}.{key}" if path else key, REQUIRED


def value_faults(value: Any, kind: str, path: str) -> Iterator[tuple[str, str]]:
    if kind == "*":
        return
    if kind.startswith("["):
        if not isinstance(value, list):
            yield path, wrong_type(path, "array", value)
        for position, part in enumerate(value if isinstance(value, list) else ()):
            yield from value_faults(part, kind[1:-1], f"{path}[{position}]")
    elif kind.startswith("{"):
        if not isinstance(value, dict):
            yield path, wrong_type(path, "object", value)
        for key, part in value.items() if isinstance(value, dict) else ():
            yield from value_faults(part, kind[1:-1], f"{path}.{key}")
    elif kind in NAMES:
        if not fits(value, kind):
            yield path, wrong_type(path, NAMES[kind], value)
    else:
        yield from object_faults(value, types()[kind], path)


def fits(value: Any, kind: str) -> bool:
    if kind == "b" or isinstance(value, bool):
        return kind == "b" and isinstance(value, bool)
    if kind == "q":
        return isinstance(value, int) or (isinstance(value, str) and bool(QUANTITY.fullmatch(value)))
    return isinstance(value, str if kind == "s" else int)


def wrong_type(path: str, expected: str, value: Any) -> str:
    given = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}[
        type(value)
    ]
    return f'Invalid value: "{given}": {path} in body must be of type {expected}: "{given}"'

"""What Kueue, JobSet, the scheduler and nodes say of an attempt that has not started, and what each text means: data for waiting.py.

The texts are those of Kueue 0.9 to 0.17, JobSet 0.8 to 0.10 and Kubernetes 1.28 to 1.33.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.rundir import Ending


@dataclass(frozen=True)
class WaitingRule:
    pattern: str
    reason: str
    """as `Reason: what it means`, with the groups of the pattern"""
    fix: str = ""
    ending: Ending | None = None
    """of what never passes by itself"""
    pulls: bool = False
    """whether it is about an image"""


OWN_QUEUE = (
    WaitingRule(
        r"(?P<kind>LocalQueue|ClusterQueue) (?P<what>[\w.-]+) doesn't exist"
        r"|references missing (?P<kind2>ResourceFlavor)\(s\): (?P<what2>[^.;\n]+)",
        "NoQueue: {kind} {what}, which was created for the run alone, was deleted on the cluster, not by Podwright",
        "type podwright resume {run}, which creates others",
        Ending.STOPPED,
    ),
)
"""Comes first where the queue is one that the run brought."""

_CLUSTER_QUEUE = "type kubectl get clusterqueues --context={context} -o yaml"
KUEUE = (
    WaitingRule(
        r"Pending the preemption of (?P<what>[^\n]*)",
        "Preempting: Kueue ends workloads of lower priority first ({what})",
    ),
    WaitingRule(
        r"insufficient unused quota(?: in cohort)? for (?P<what>[\w./-]+) in flavor (?P<flavor>[\w.-]+),? (?P<more>[\d.]+\w*) more needed",
        "Quota: other workloads of the queue hold {what} of flavor {flavor}; {more} more must become free",
    ),
    WaitingRule(
        r"borrowing limit for (?P<what>[\w./-]+) in flavor (?P<flavor>[\w.-]+) exceeded",
        "Quota: workloads of the queue have used up what it may borrow of {what} of flavor {flavor}; some must end",
    ),
    WaitingRule(
        r"[Nn]o longer fits after processing another workload|waiting for all (?:admitted )?(?:pods|workloads)[^\n]*",
        "Queued: Kueue starts another workload first",
    ),
    WaitingRule(
        r"topology \"(?P<what>[^\"]+)\" (?:doesn't allow to fit|allows to fit only)(?P<more>[^\n]*)",
        "Topology: no part of topology {what} has enough free nodes together ({message})",
    ),
    WaitingRule(
        r"(?:LocalQueue|ClusterQueue) (?P<what>[\w.-]+) is stopped",
        "Stopped: queue {what} was stopped by an administrator of the cluster (stopPolicy)",
    ),
    WaitingRule(
        r"(?P<kind>LocalQueue|ClusterQueue) (?P<what>[\w.-]+) is inactive",
        "Inactive: {kind} {what} admits nothing now",
    ),
    WaitingRule(
        r"request > maximum capacity \((?P<need>[\d.]+\w*) > (?P<most>[\d.]+\w*)\)",
        "TooLarge: the queue never has more than {most}, and the slice needs {need}",
        "take a smaller slice, or have nominalQuota of the ClusterQueue raised: " + _CLUSTER_QUEUE,
        Ending.NO_CAPACITY,
    ),
    WaitingRule(
        r"insufficient quota for (?P<what>[\w./-]+) in flavor (?P<flavor>[\w.-]+)[^\n]*current podset request \((?P<need>[^)]+)\)"
        r" > maximum capacity \((?P<most>[^)]+)\)",
        "TooLarge: flavor {flavor} of the queue never has more than {most} {what}, and the slice needs {need}",
        "take a smaller slice, or have nominalQuota of the ClusterQueue raised: " + _CLUSTER_QUEUE,
        Ending.NO_CAPACITY,
    ),
    WaitingRule(
        r"> maximum capacity|exceeds the maximum|insufficient quota for (?P<what>[\w./-]+)",
        "TooLarge: the slice is larger than what the queue ever has ({message})",
        "take a smaller slice, or have nominalQuota of the ClusterQueue raised: " + _CLUSTER_QUEUE,
        Ending.NO_CAPACITY,
    ),
    WaitingRule(
        r"flavor (?P<flavor>[\w.-]+) doesn't match node affinity",
        "NoFlavor: flavor {flavor} of the queue is for other nodes than those of the slice",
        "have a ResourceFlavor with the nodeLabels of the slice added to the ClusterQueue: " + _CLUSTER_QUEUE,
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"untolerated taint (?P<what>\{[^}]*\}|[^\n]+?) in flavor (?P<flavor>[\w.-]+)",
        "Taint: the nodes of flavor {flavor} have the taint {what}, which the pods of the run do not tolerate",
        "take another queue, or have the taint removed from the flavor",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"untolerated taint (?P<what>[^\n]+)",
        "Taint: the nodes of the queue have the taint {what}, which the pods of the run do not tolerate",
        "take another queue, or have the taint removed from the flavor",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"resource (?P<what>[\w./-]+) unavailable in ClusterQueue",
        "NoResource: the pods ask for {what}, and the ClusterQueue has no quota for it",
        "have {what} added to coveredResources of the ClusterQueue: " + _CLUSTER_QUEUE,
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"LocalQueue (?P<what>[\w.-]+) doesn't exist",
        "NoQueue: namespace {namespace} has no queue {what}",
        "type podwright target check {target}, which names the queues of the namespace, or says how one is created",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"ClusterQueue (?P<what>[\w.-]+) doesn't exist",
        "NoQueue: the cluster has no ClusterQueue {what}, to which queue {queue} belongs",
        "type podwright target check {target}, which says how it is created, or set queue of the target to another one",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"namespace (?:doesn't match|does not match|\S+ doesn't match) ClusterQueue selector",
        "NoQueue: the ClusterQueue of queue {queue} takes nothing from namespace {namespace}",
        "set namespace of the target to another one, or have namespaceSelector of the ClusterQueue changed",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"LimitRange|must not exceed its limits|requests exceed",
        "Limits: the pods ask for more than namespace {namespace} allows ({message})",
        "type kubectl describe limitrange --namespace={namespace} --context={context}",
        Ending.BAD_INPUT,
    ),
)
"""Waits before what never passes: a message names every flavor, and one that will have room is enough."""

INACTIVE = (
    WaitingRule(
        r"references missing ResourceFlavor\(s\): (?P<what>[^.;\n]+)",
        "NoFlavor: ClusterQueue {name} names ResourceFlavor {what}, which the cluster does not have",
        "have ResourceFlavor {what} created, or removed from the ClusterQueue; podwright target check {target} shows both",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"is stopped|StopPolicy|stopped", "Stopped: ClusterQueue {name} was stopped by an administrator of the cluster"
    ),
    WaitingRule(r"(?P<what>\S[^\n]*)", "Inactive: ClusterQueue {name} admits nothing: {what}"),
)

CREATING = (
    WaitingRule(
        r"follower pod node selector not set",
        "Starting: the pods of the slice follow its first one, which has no node yet",
    ),
    WaitingRule(
        r"failed calling webhook \"(?P<what>[^\"]+)\"|no endpoints available for service \"(?P<what2>[^\"]+)\"",
        "WebhookDown: {what}, which checks pods, does not answer; the cluster tries again",
    ),
    WaitingRule(
        r"no PriorityClass with name (?P<what>system-\S+) was found",
        "NoPriority: the cluster has no PriorityClass {what}",
        "set priority of the target to one of: kubectl get priorityclasses --context={context}",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"no PriorityClass with name (?P<what>\S+) was found",
        "NoPriority: the cluster has no PriorityClass {what}",
        "type kubectl create priorityclass {what} --value=500 --context={context}, or set priority of the target to one of: "
        "kubectl get priorityclasses --context={context}",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"violates PodSecurity \"(?P<what>[^\"]+)\"",
        "PodSecurity: namespace {namespace} refuses pods with the rights that TPUs need (PodSecurity {what})",
        "set namespace of the target to one that allows privileged pods",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"GKE Warden rejected|denied by autogke-",
        "Autopilot: an Autopilot cluster refuses pods with the rights that TPUs need",
        "set cluster of the target to a Standard cluster",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"exceeded quota: (?P<what>[^,\n]+)",
        "Quota: namespace {namespace} has no room in ResourceQuota {what}",
    ),
    WaitingRule(
        r"error looking up service account (?P<what>\S+)|serviceaccount \"(?P<what2>[^\"]+)\" not found",
        "NoAccount: there is no service account {what}",
        "create it, or correct the recipe",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"creation failed with error: [^\n]* is invalid: (?P<what>[^\n]*)",
        "Invalid: the cluster refuses the jobs of the JobSet: {what}",
        "report it with this line: the manifest is of podwright",
        Ending.BAD_INPUT,
    ),
    WaitingRule(r"(?P<what>\S[^\n]*)", "Refused: the cluster creates no pods of the run: {what}"),
)

SCHEDULING = (
    WaitingRule(
        r"Node scale up in zones (?P<where>\S*) ?associated with this pod failed: (?P<what>[^.]*)",
        "NoCapacity: the autoscaler could not add nodes in {where} ({what}), and tries again",
    ),
    WaitingRule(
        r"pod didn't trigger scale-up[^\n]*in backoff after failed scale-up",
        "NoCapacity: the autoscaler could not add nodes and tries again later ({message})",
    ),
    WaitingRule(
        r"didn't match pod anti-affinity rules|didn't satisfy existing pods anti-affinity rules",
        "Occupied: pods of another JobSet, which may have ended, hold the nodes of the slice; "
        "kubectl get jobsets --all-namespaces --context={context} shows it, and deleting one that has ended frees them",
    ),
    WaitingRule(
        r"Insufficient google\.com/tpu",
        "Busy: other pods use the TPUs of the nodes, or a node that just started has not registered its TPUs yet",
    ),
    WaitingRule(
        r"0/(?P<count>\d+) nodes are available: (?P=count) node\(s\) didn't match Pod's node affinity/selector",
        "NoNodes: none of the {count} nodes of the cluster is of the slice ({selector})",
    ),
    WaitingRule(
        r"had untolerated taint (?P<what>\{[^}]*\})",
        "Taint: nodes of the slice have the taint {what} now",
    ),
    WaitingRule(
        r"didn't match (?:Pod's node affinity/|node )selector|no nodes available|0/0 nodes are available",
        "NoNodes: no free node of the cluster is of the slice ({selector})",
    ),
    WaitingRule(
        r"didn't trigger scale-up[^\n]*",
        "NoCapacity: the autoscaler adds no nodes ({message})",
    ),
    WaitingRule(r"triggered scale-up", "ScalingUp: the autoscaler is adding nodes"),
)

CONTAINERS = (
    WaitingRule(
        r"InvalidImageName|couldn't parse image|invalid reference format",
        "BadImage: {image} is no name of an image",
        "correct image of the target or of the recipe",
        Ending.BAD_INPUT,
    ),
    WaitingRule(
        r"no match for platform|exec format error",
        "BadImage: {image} is not for the processors of the nodes",
        "build the image for linux/amd64",
        Ending.BAD_INPUT,
        True,
    ),
    WaitingRule(
        r"(?:ErrImagePull|ImagePullBackOff)[^\n]*(?:(?<![\w.-])40[13](?![\w.-])|[Uu]nauthorized|[Ff]orbidden|denied|insufficient_scope|no basic auth)",
        "NoPermission: the nodes may not pull {image}",
        "give the service account of the nodes the role roles/artifactregistry.reader on it, then resume the run",
        Ending.BAD_INPUT,
        True,
    ),
    WaitingRule(
        r"(?:ErrImagePull|ImagePullBackOff)[^\n]*(?:not found|manifest unknown|does not exist|NotFound)",
        "NoImage: there is no image {image}",
        "build it (podwright render writes the script), or correct image of the target, then resume the run",
        Ending.BAD_INPUT,
        True,
    ),
    WaitingRule(
        r"ErrImagePull|ImagePullBackOff|RegistryUnavailable|ErrImageNeverPull",
        "Pulling: image {image} could not be pulled yet ({message})",
    ),
    WaitingRule(
        r"CreateContainerConfigError[^\n]*(?P<kind>secret|configmap) \"(?P<what>[^\"]+)\" not found",
        "NoObject: the pods need {kind} {what}, which namespace {namespace} does not have",
        "resume the run: it is created again",
        Ending.CRASHED,
        True,
    ),
    WaitingRule(
        r"(?:CreateContainerConfigError|CreateContainerError|RunContainerError|StartError)[^\n]*",
        "NotStarted: the container cannot be started ({message})",
    ),
    WaitingRule(
        r"(?:FailedMount|FailedAttachVolume): (?P<what>[^\n]*)",
        "Mounting: a volume of the pods cannot be mounted yet ({what})",
    ),
    WaitingRule(r"Pulling: Pulling image \"(?P<what>[^\"]+)\"", "Pulling: the nodes pull image {what}"),
    WaitingRule(
        r"FailedCreatePodSandBox[^\n]*",
        "Starting: a node cannot set up the pod yet ({message})",
    ),
)

"""What GKE, Kueue, JobSet and xpk say of node pools and workloads."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import RESUME, Role, rule

RULES = (
    rule(
        "workload-validation",
        r"Workload scheduling validation failed|which is \d+ VMs, but the cluster only contains",
        Ending.BAD_INPUT,
        "xpk's list of the cluster's slices (the ConfigMap resources-configmap) lacks this type, or has fewer of it than the workload asks for",
        "add the type to that ConfigMap with kubectl edit configmap, or ask for fewer slices",
    ),
    rule(
        "kueue-quota-small",
        r"request \(\d+\) > maximum capacity \(\d+\)",
        Ending.BAD_INPUT,
        "the workload asks for more chips than the ClusterQueue ever gives, and would wait for ever",
        "raise the quota of its flavor (kubectl edit clusterqueue), or ask for a smaller slice",
    ),
    rule(
        "kueue-waiting",
        r"insufficient unused quota for google\.com/tpu",
        Ending.NO_CAPACITY,
        "other workloads use the quota of the ClusterQueue",
        "nothing: it starts by itself; kubectl get workloads.kueue.x-k8s.io shows the queue",
        role=Role.CONSEQUENCE,
        passing=True,
    ),
    rule(
        "kueue-flavor",
        r"couldn't assign flavors to pod set|references missing ResourceFlavor|flavor \S+ doesn't match node affinity|unavailable in ClusterQueue",
        Ending.BAD_INPUT,
        "Kueue has no flavor for this type of slice: its ResourceFlavor or its entry in the ClusterQueue is missing",
        "compare kubectl get resourceflavor and kubectl get clusterqueue with the labels that the pods ask for, and create what is missing",
    ),
    rule(
        "kueue-queue",
        r"(LocalQueue|ClusterQueue) \S+ (doesn't exist|is inactive|is stopped)|resource type \"workloads\"",
        Ending.BAD_INPUT,
        "the queue of the workload does not exist or takes no workloads, or Kueue does not run in the cluster",
        "look with kubectl get localqueue and kubectl get clusterqueue",
    ),
    rule(
        "workload-preempted",
        r"Evicted.{0,80}\bPreempted\b|Preempted to accommodate a workload",
        Ending.PREEMPTED,
        "a workload of higher priority took the slice",
        "type podwright resume RUN; it waits in the queue",
    ),
    rule(
        "pod-unschedulable",
        r"FailedScheduling|Insufficient google\.com/tpu|didn't trigger scale-up",
        Ending.NO_CAPACITY,
        "no node takes the pod: the node pool of this topology is missing or full, or an older JobSet still holds its nodes",
        "look with kubectl get nodes and kubectl get jobsets; delete the older JobSet, or create the node pool",
        passing=True,
    ),
    rule(
        "image-pull",
        r"ErrImagePull|ImagePullBackOff|Failed to pull image",
        Ending.BAD_INPUT,
        "a node cannot fetch the container image: its name is wrong, or the node's account may not read it",
        "compare the name with the registry, and grant the account of the nodes the role Artifact Registry Reader",
    ),
    rule(
        "node-pool-busy",
        r"Cluster is running incompatible operation|NodePool \S+ is currently (being|PROVISIONING)",
        Ending.NO_CAPACITY,
        "the cluster works on another operation, and a node pool under creation cannot be cancelled",
        "wait until it has ended (gcloud container operations list shows it), then try again",
        passing=True,
    ),
    rule(
        "machine-type",
        r"Use workload policy instead|[Mm]achine ?[Tt]ype .{0,80}(does not exist|not found|is not supported|is invalid)|Invalid machine type",
        Ending.BAD_INPUT,
        "the zone has no machine type of that name, or it needs a workload policy in place of a placement policy",
        "type gcloud compute machine-types list, and take a name and policy that fit (of tpu7x: a workload policy)",
    ),
    rule(
        "xpk-memory-limit",
        r"(KeyError|AttributeError|TypeError|NameError|UnboundLocalError)\b.{0,60}memory_limit",
        Ending.BAD_INPUT,
        "this version of xpk has a fault: it does not know the memory of the machine type",
        "create the node pool with gcloud container node-pools create, or install a newer xpk",
    ),
    rule(
        "prompt",
        r"EOFError: EOF when reading a line|\?\s+\([yY]/[nN]\)\W*$|cannot prompt during non-interactive execution",
        Ending.BAD_INPUT,
        "a program asked a question, and a run has no terminal to answer it",
        "start it with the option that answers yes (of gcloud --quiet, of xpk --force)",
    ),
    rule(
        "jobset-failed",
        r"jobset failed due to|FailedJobs\b|BackoffLimitExceeded|ReachedMaxRestarts",
        Ending.CRASHED,
        "a pod of the workload failed, and with it all",
        f"the reason is in the log of that pod, {RESUME}",
        role=Role.CONSEQUENCE,
    ),
)

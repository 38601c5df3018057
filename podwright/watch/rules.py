"""Failures as data: what a line of a log says, which ending that is, why it came about, and what to type or do.

Of a line the first rule that knows it counts, so that the particular stand before the general. Each has a log in tests/logs.
A remedy may name a field of recipe/advice.py in braces, which has other keys for other kinds of recipe, and RUN.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from podwright.rundir import Ending


@dataclass(frozen=True)
class Rule:
    name: str
    pattern: re.Pattern[str]
    ending: Ending
    cause: str
    remedy: str
    follows: bool = False
    """it may be what others see of a fault elsewhere, so that any other match explains more"""


def _rule(name: str, pattern: str, ending: Ending, cause: str, remedy: str, follows: bool = False) -> Rule:
    return Rule(name, re.compile(pattern), ending, cause, remedy, follows)


_RESUME = "then type podwright resume RUN"

RULES: tuple[Rule, ...] = (
    # ssh
    _rule(
        "ssh-refused",
        r"ssh: connect to host \S+ port \d+: Connection refused",
        Ending.NO_CAPACITY,
        "a host takes no connections over ssh: sshd does not run there, or listens at another port",
        "start sshd there, or write its port into hosts in the target's file (hosts: [user@host:port]); podwright target check tries it",
    ),
    _rule(
        "ssh-unreachable",
        r"ssh: connect to host .*(timed out|No route to host|Network is unreachable)|Connection to \S+ port \d+ timed out",
        Ending.NO_CAPACITY,
        "a host does not answer over ssh: it is switched off, or no network leads there",
        "see that it is there, then type podwright resume RUN",
    ),
    _rule(
        "ssh-name",
        r"ssh: Could not resolve hostname",
        Ending.BAD_INPUT,
        "this machine cannot resolve the name of a host",
        "fix hosts in the target's file, or give the name an entry in ~/.ssh/config",
    ),
    _rule(
        "ssh-key",
        r"Permission denied \(publickey",
        Ending.BAD_INPUT,
        "a host takes none of your keys",
        "type ssh-copy-id and the host's name; a key with a passphrase is loaded with ssh-add first",
    ),
    _rule(
        "ssh-host-key-changed",
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        Ending.BAD_INPUT,
        "a host shows another key than it used to: it was set up anew, or another machine answers in its place",
        "if you know why, type ssh-keygen -R and the host's name",
    ),
    _rule(
        "ssh-host-key",
        r"Host key verification failed",
        Ending.BAD_INPUT,
        "the key that a host shows is not known on this machine",
        "log in once by hand and compare what it shows, which writes it down",
        follows=True,
    ),
    # memory
    _rule(
        "cuda-out-of-memory",
        r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        Ending.OUT_OF_MEMORY,
        "a GPU's memory is full",
        "{device_memory}",
    ),
    _rule(
        "hbm-out-of-memory",
        r"Ran out of memory (on|in memory space) hbm|CompileTimeHbmOom|RESOURCE_EXHAUSTED: (?!.*(No space left|quota))",
        Ending.OUT_OF_MEMORY,
        "a device's memory does not hold the program",
        "{device_memory}",
    ),
    _rule(
        "slurm-memory",
        r"Detected \d+ oom_kill event|: Out Of Memory$|JobState=OUT_OF_MEMORY",
        Ending.OUT_OF_MEMORY,
        "the job used more of a node's memory than it asked SLURM for",
        "ask for more (mem in the target's file), or {host_memory}",
    ),
    _rule(
        "cgroup-out-of-memory",
        r"the kernel killed it for memory|Memory cgroup out of memory",
        Ending.OUT_OF_MEMORY,
        "the kernel killed a process of the run, since its cgroup (container, service or job) or the machine had no memory left",
        "raise that limit, ask for more (mem in the target's file), or use a machine with more memory",
    ),
    _rule(
        "shared-memory",
        r"unable to allocate shared memory|insufficient shared memory|out of shared memory",
        Ending.CRASHED,
        "/dev/shm is full, through which the workers hand rows over",
        "make it larger (in a container: --shm-size=8g)",
    ),
    _rule(
        "host-out-of-memory",
        r"can't allocate memory|std::bad_alloc|MemoryError|Cannot allocate memory|\boom-kill\b|[Oo]ut of memory",
        Ending.OUT_OF_MEMORY,
        "the machine's own memory is full",
        "{host_memory}, or use a machine with more memory",
    ),
    # files
    _rule(
        "disk-full",
        r"No space left on device|[Dd]isk quota exceeded|[Ff]ile system is full|inline_container.*unexpected pos",
        Ending.CRASHED,
        "a disk is full, or your share of it",
        f"free some space (checkpoints of old runs), {_RESUME}",
    ),
    _rule(
        "read-only",
        r"Read-only file system",
        Ending.CRASHED,
        "the file system takes no writes; a network file system turns so when its server has failed",
        f"mount it for writing or give another --runs, {_RESUME}",
    ),
    _rule(
        "mount-gone",
        r"Stale file handle|Transport endpoint is not connected|Input/output error|ESTALE",
        Ending.CRASHED,
        "a shared file system went away while it was in use",
        f"mount it again on that node, {_RESUME}",
    ),
    _rule(
        "no-permission",
        r"Permission denied(?! \(publickey)",
        Ending.CRASHED,
        "the user who runs this may not read or write that file",
        f"give it to them (chown, chmod, or another --runs), {_RESUME}",
    ),
    # devices
    _rule(
        "old-driver",
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|forward compatibility was attempted",
        Ending.BAD_INPUT,
        "the node's NVIDIA driver is older than what this PyTorch was built for",
        "install a PyTorch for an older CUDA, or have the driver updated",
    ),
    _rule(
        "no-cuda",
        r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|no NVIDIA driver on your system",
        Ending.BAD_INPUT,
        "PyTorch sees no GPU here",
        "look at nvidia-smi and CUDA_VISIBLE_DEVICES; a PyTorch for CPUs alone is replaced by pip install torch of a CUDA index",
    ),
    _rule(
        "gpu-broken",
        r"uncorrectable ECC error|GPU has fallen off the bus|NVRM: Xid|CUDA error: (unspecified launch failure|an illegal instruction)",
        Ending.NODE_LOST,
        "a GPU has failed",
        f"leave its node out (sbatch: [--exclude=NODE] in the target's file; over ssh take it out of hosts), {_RESUME}",
    ),
    # processes finding each other
    _rule(
        "name-resolution",
        r"Name or service not known|Temporary failure in name resolution|nodename nor servname|gai error",
        Ending.CRASHED,
        "this node cannot resolve the name of another node",
        "give its address instead of its name, or fix DNS or /etc/hosts",
    ),
    _rule(
        "address-in-use",
        r"EADDRINUSE|[Aa]ddress already in use",
        Ending.CRASHED,
        "another process listens on the port where the processes of this run meet, often one left of an earlier run",
        "end that process (ss -ltnp names it), or take another port",
    ),
    _rule(
        "rendezvous-connect",
        r"client socket has timed out .* connect to|Gloo connectFullMesh failed|failed to connect to all addresses",
        Ending.CRASHED,
        "the first process does not answer where the others look for it: it has not started, or a firewall stands between",
        "read the first process's log; podwright target check tries the ports between nodes",
    ),
    _rule(
        "rendezvous-timeout",
        r"waiting for clients\. \d+/\d+ clients joined|RendezvousTimeoutError|Barrier timed out|rendezvous.{0,60}timed out",
        Ending.CRASHED,
        "not every process of the run came to the meeting point in time",
        "look for the node whose log is missing or shorter, and for a different number of processes on one of them",
    ),
    _rule(
        "nccl-connect",
        r"NCCL WARN .*(Connect to|connection).*(failed|refused|returned|closed)|ncclSystemError|ncclRemoteError|No route to host",
        Ending.CRASHED,
        "NCCL found no way from one node to another",
        "name the right network (NCCL_SOCKET_IFNAME=eth0), open the ports between nodes, and look with NCCL_DEBUG=INFO",
    ),
    # what one process sees of another's end
    _rule(
        "nccl-timeout",
        r"Watchdog caught collective operation timeout|ran for \d+ milliseconds before timing out",
        Ending.STALLED,
        "the processes waited for one that did not come to a collective: it has ended, hangs, or got other data",
        f"find the process whose last step is behind in its log, {_RESUME}",
        follows=True,
    ),
    _rule(
        "stalled",
        r"STALLED: no step has ended for \d+ s",
        Ending.STALLED,
        "a step did not end: the line names the process that is elsewhere than the others, which wait for it",
        f"read its stacks-K.txt beside the log, which says where it hangs, {_RESUME}",
        follows=True,
    ),
    _rule(
        "gloo-timeout",
        r"Timed out waiting \d+ms for (recv|send) operation",
        Ending.STALLED,
        "a process waited for another that did not answer in time: it has ended, hangs, or is far behind",
        f"find the process whose last step is behind in its log, {_RESUME}",
        follows=True,
    ),
    _rule(
        "peer-gone",
        r"Connection (closed|reset) by peer|JAX distributed service detected fatal errors|stopped sending heartbeats|remote process exited",
        Ending.CRASHED,
        "another process of the run has ended",
        f"the reason is in that process's log (podwright logs RUN), {_RESUME}",
        follows=True,
    ),
    _rule(
        "loader-worker-killed",
        r"DataLoader worker \(pid\S* \d+\) (is killed by signal|exited unexpectedly)",
        Ending.OUT_OF_MEMORY,
        "a worker that loads data was killed, most often for memory",
        "{host_memory}, or give the job more memory",
    ),
    _rule(
        "worker-killed",
        r"Signal 9 \(SIGKILL\) received|exitcode *: -9|oom_reaper",
        Ending.UNKNOWN,
        "a process was killed from outside: by the kernel for memory, by the scheduler, or by a person",
        "look at dmesg for oom-kill; if it is there, {host_memory}",
        follows=True,
    ),
    # the recipe and its files
    _rule(
        "missing-keys",
        r"Missing key\(s\) in state_dict|Unexpected key\(s\) in state_dict|size mismatch for \S+: copying a param",
        Ending.BAD_INPUT,
        "the checkpoint is of another model than the recipe's",
        "give the checkpoint that belongs to these dimensions, or the dimensions of that checkpoint",
    ),
    _rule(
        "no-module",
        r"ModuleNotFoundError: No module named",
        Ending.BAD_INPUT,
        "a Python package is missing where this ran",
        "install it there, in the target's own environment: pip install -e '.[jax]' or '.[torch]' in podwright's clone",
    ),
    _rule(
        "no-compiler",
        r"No working C\+\+ compiler found|Failed to find C compiler",
        Ending.BAD_INPUT,
        "torch.compile found no compiler where this ran",
        "{compiler}",
    ),
    _rule(
        "not-finite",
        r"^NOT_FINITE|\b(loss|grad_norm|gradients?)\b\W+(is |are |= ?|: ?)?([Nn]a[Nn]|[Ii]nf|not finite)\b",
        Ending.NOT_FINITE,
        "the loss or its gradient is NaN or infinite",
        "start again with {not_finite}",
    ),
    # SLURM
    _rule(
        "slurm-time",
        r"DUE TO TIME LIMIT|JobState=TIMEOUT",
        Ending.TIMED_OUT,
        "the job reached its time limit",
        "type podwright resume RUN, which resumes from the last checkpoint, or ask for more time in the target's file",
    ),
    _rule(
        "slurm-preempted",
        r"DUE TO PREEMPTION|JobState=PREEMPTED|PreemptTime=\d",
        Ending.PREEMPTED,
        "a job of higher priority took the nodes",
        "type podwright resume RUN, unless SLURM has queued it again already",
    ),
    _rule(
        "slurm-node",
        r"DUE TO NODE FAILURE|JobState=NODE_FAIL|error: Node failure on",
        Ending.NODE_LOST,
        "a node of the job went down",
        "type podwright resume RUN; if it fails again leave the node out (sbatch: [--exclude=NODE] in the target's file)",
    ),
    _rule(
        "slurm-launch",
        r"JobLaunchFailure|launch failed",
        Ending.CRASHED,
        "SLURM could not start the job on its node; most often the folder of --output does not exist there, and then there is no log",
        "make that folder on a file system that all nodes share (podwright's own runs have theirs made)",
    ),
    _rule(
        "slurm-partition",
        r"[Ii]nvalid (partition|account|qos)",
        Ending.BAD_INPUT,
        "the cluster has no such partition, account or qos, or you may not use it",
        "sinfo -s and sacctmgr show assoc user=$USER name yours; correct the target's file",
    ),
    _rule(
        "slurm-limit",
        r"PartitionTimeLimit|Requested time limit is invalid|PartitionNodeLimit|QOSMax\w+|AssocMax\w+|AssocGrp\w+",
        Ending.BAD_INPUT,
        "the job asks for more time or nodes than its partition, qos or account gives, and would wait for ever",
        "ask for less (nodes or time in the target's file); sinfo -o '%P %l %D' shows what partitions give",
    ),
    _rule(
        "slurm-impossible",
        r"Requested node configuration is not available|ReqNodeNotAvail|BadConstraints",
        Ending.BAD_INPUT,
        "no node of the partition has what the job asks for",
        "compare with sinfo -N -o '%N %c %m %G %f', and correct the target's file",
    ),
    _rule(
        "slurm-pending",
        r"\((Resources|Priority|BeginTime|Dependency|QOSGrp\w+)\)\s*$",
        Ending.NO_CAPACITY,
        "the job waits for nodes that others use",
        "nothing: it starts by itself; squeue --start says when SLURM thinks so",
        follows=True,
    ),
    _rule(
        "slurm-task-killed",
        r"srun: error: \S+: tasks? [\d,-]+: (Exited with exit code 1(29|[3-5]\d|6[0-4])|Killed)",
        Ending.UNKNOWN,
        "a signal ended a process of the job on the node that the line names: exit code 137 is 128 + 9 (SIGKILL), sent by the kernel for "
        "memory, by the scheduler, or by a person",
        "type dmesg on that node; if it says oom-kill, ask for more memory (mem in the target's file), else type podwright resume RUN",
        follows=True,
    ),
    _rule(
        "slurm-cancelled",
        r"\*\*\* (JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ \*\*\*|JobState=CANCELLED",
        Ending.STOPPED,
        "somebody cancelled the job",
        "type podwright resume RUN",
        follows=True,
    ),
)

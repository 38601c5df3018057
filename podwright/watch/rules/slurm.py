"""What SLURM says of a job."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import Role, rule

RULES = (
    rule(
        "slurm-time",
        r"DUE TO TIME LIMIT|JobState=TIMEOUT",
        Ending.TIMED_OUT,
        "the job reached its time limit",
        "type podwright resume RUN, which {resumes}; or ask for more time in the target's file",
    ),
    rule(
        "slurm-preempted",
        r"DUE TO PREEMPTION|JobState=PREEMPTED|PreemptTime=\d",
        Ending.PREEMPTED,
        "a job of higher priority took the nodes",
        "type podwright resume RUN, unless SLURM has queued it again already",
    ),
    rule(
        "slurm-node",
        r"DUE TO NODE FAILURE|JobState=NODE_FAIL|error: Node failure on",
        Ending.NODE_LOST,
        "a node of the job went down",
        "type podwright resume RUN; if it fails again leave the node out (sbatch: [--exclude=NODE] in the target's file)",
    ),
    rule(
        "slurm-launch",
        r"JobLaunchFailure|launch failed",
        Ending.CRASHED,
        "SLURM could not start the job on its node; most often the folder of --output does not exist there, and then there is no log",
        "make that folder on a file system that all nodes share (podwright's own runs have theirs made)",
    ),
    rule(
        "slurm-partition",
        r"[Ii]nvalid (partition|account|qos)",
        Ending.BAD_INPUT,
        "the cluster has no such partition, account or qos, or you may not use it",
        "sinfo -s and sacctmgr show assoc user=$USER name yours; correct the target's file",
    ),
    rule(
        "slurm-limit",
        r"PartitionTimeLimit|Requested time limit is invalid|PartitionNodeLimit|QOSMax\w+|AssocMax\w+|AssocGrp\w+",
        Ending.BAD_INPUT,
        "the job asks for more time or nodes than its partition, qos or account gives, and would wait for ever",
        "ask for less (nodes or time in the target's file); sinfo -o '%P %l %D' shows what partitions give",
    ),
    rule(
        "slurm-impossible",
        r"Requested node configuration is not available|ReqNodeNotAvail|BadConstraints",
        Ending.BAD_INPUT,
        "no node of the partition has what the job asks for",
        "compare with sinfo -N -o '%N %c %m %G %f', and correct the target's file",
    ),
    rule(
        "slurm-pending",
        r"\((Resources|Priority|BeginTime|Dependency|QOSGrp\w+)\)\s*$",
        Ending.NO_CAPACITY,
        "the job waits for nodes that others use",
        "nothing: it starts by itself; squeue --start shows the expected time",
        role=Role.CONSEQUENCE,
    ),
    rule(
        "slurm-task-killed",
        r"srun: error: \S+: tasks? [\d,-]+: (Exited with exit code 1(29|[3-5]\d|6[0-4])|Killed)",
        Ending.UNKNOWN,
        "a signal ended a process of the job on the node that the line names: exit code 137 is 128 + 9 (SIGKILL), sent by the kernel for "
        "memory, by the scheduler, or by a person",
        "type dmesg on that node; if it says oom-kill, ask for more memory (mem in the target's file), else type podwright resume RUN",
        role=Role.CONSEQUENCE,
    ),
    rule(
        "slurm-cancelled",
        r"\*\*\* (JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ \*\*\*|JobState=CANCELLED",
        Ending.STOPPED,
        "the job was cancelled",
        "type podwright resume RUN",
        role=Role.CONSEQUENCE,
    ),
)

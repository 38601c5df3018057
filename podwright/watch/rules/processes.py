"""Processes of a run that do not find each other, and what they see of the end of another one."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import RESUME, Role, rule

RULES = (
    rule(
        "name-resolution",
        r"Name or service not known|Temporary failure in name resolution|nodename nor servname|gai error",
        Ending.CRASHED,
        "this node cannot resolve the name of another node",
        "give its address instead of its name, or fix DNS or /etc/hosts",
        passing=True,
    ),
    rule(
        "address-in-use",
        r"EADDRINUSE|[Aa]ddress already in use",
        Ending.CRASHED,
        "another process listens on the port where the processes of this run meet, often one left of an earlier run",
        "end that process (ss -ltnp names it), or take another port",
        passing=True,
    ),
    rule(
        "rendezvous-connect",
        r"client socket has timed out .* connect to|Gloo connectFullMesh failed|failed to connect to all addresses",
        Ending.CRASHED,
        "the first process does not answer where the others look for it: it has not started, or a firewall blocks the connection",
        "read the first process's log; podwright target check TARGET tries the ports between nodes",
        role=Role.SYMPTOM,
        passing=True,
    ),
    rule(
        "rendezvous-timeout",
        r"waiting for clients\. \d+/\d+ clients joined|RendezvousTimeoutError|Barrier timed out|rendezvous.{0,60}timed out",
        Ending.CRASHED,
        "not every process of the run came to the meeting point in time",
        "look for the node whose log is missing or shorter, and for a different number of processes on one of them",
        role=Role.SYMPTOM,
    ),
    rule(
        "nccl-connect",
        r"NCCL WARN .*(Connect to|connection).*(failed|refused|returned|closed)|ncclSystemError|ncclRemoteError|No route to host",
        Ending.CRASHED,
        "NCCL found no way from one node to another",
        "name the right network (NCCL_SOCKET_IFNAME=eth0), open the ports between nodes, and look with NCCL_DEBUG=INFO",
    ),
    rule(
        "nccl-timeout",
        r"Watchdog caught collective operation timeout|ran for \d+ milliseconds before timing out",
        Ending.STALLED,
        "the processes waited for one that did not reach a collective: it has ended, hangs, or got other data",
        f"find the process whose last step is behind in its log, {RESUME}",
        role=Role.CONSEQUENCE,
    ),
    rule(
        "stalled",
        r"STALLED: no step has ended for \d+ s",
        Ending.STALLED,
        "a step did not end: the line names the process that is elsewhere than the others, which wait for it",
        f"read its stacks-K.txt beside the log, which says where it hangs, {RESUME}",
        role=Role.CONSEQUENCE,
    ),
    rule(
        "gloo-timeout",
        r"Timed out waiting \d+ms for (recv|send) operation",
        Ending.STALLED,
        "a process waited for another that did not answer in time: it has ended, hangs, or is far behind",
        f"find the process whose last step is behind in its log, {RESUME}",
        role=Role.CONSEQUENCE,
    ),
    rule(
        "peer-gone",
        r"Connection (closed|reset) by peer|JAX distributed service detected fatal errors|stopped sending heartbeats|remote process exited",
        Ending.CRASHED,
        "another process of the run has ended",
        f"the reason is in that process's log (podwright logs RUN), {RESUME}",
        role=Role.CONSEQUENCE,
        passing=True,
    ),
    rule(
        "coordination-lost",
        r"Socket closed|RAW: Raising signal|Fatal Python error: Aborted|heartbeat timeout|\bheartbeats? .{0,30}(missed|timed out)"
        r"|error from coordination service|coordination service (encountered|to shut down|has been shut down)|task was preempted/died",
        Ending.CRASHED,
        "another process of the run has ended, or lost its connection, and jax then ended this one",
        f"the reason is in that process's log (podwright logs RUN), {RESUME}",
        role=Role.CONSEQUENCE,
        passing=True,
    ),
    rule(
        "loader-worker-killed",
        r"DataLoader worker \(pid\S* \d+\) (is killed by signal|exited unexpectedly)",
        Ending.OUT_OF_MEMORY,
        "a worker that loads data was killed, most often for memory",
        "{host_memory}, or give the job more memory",
    ),
    rule(
        "worker-killed",
        r"Signal 9 \(SIGKILL\) received|exitcode *: -9|oom_reaper",
        Ending.UNKNOWN,
        "a process was killed from outside: by the kernel for memory, by the scheduler, or by a person",
        "look at dmesg for oom-kill; if it is there, {host_memory}",
        role=Role.CONSEQUENCE,
    ),
)

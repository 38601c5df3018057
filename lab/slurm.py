"""A real SLURM of two nodes on this machine: munged, slurmctld and a slurmd for each node, all children of the test process.

Each node has a hostname, a /etc/hosts and process numbers of its own, so that whatever it started ends with it.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from lab.machine import end_with_parent

NEEDED = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "srun",
    "squeue",
    "scontrol",
    "scancel",
    "sinfo",
    "unshare",
    "flock",
)
NODES = ("n1", "n2")
PARTITIONS = """PartitionName=gpu Nodes=ALL Default=YES MaxTime=2:00:00 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
PartitionName=one Nodes=n1 MaxTime=INFINITE State=UP
PartitionName=shut Nodes=ALL State=DOWN
"""
CONF = """ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
FirstJobId={first}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge.sock
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout={silence_s}
MessageTimeout=20
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
SlurmdParameters=config_overrides
{nodes}
{partitions}"""


def missing() -> str:
    """Why there can be no cluster here; "" when there can."""
    return lacking(NEEDED, "slurmctld slurmd slurm-client munge")


def lacking(needed: Iterable[str], packages: str) -> str:
    """Why there can be no nodes with names of their own and the commands `needed`, which `packages` have."""
    if os.geteuid():
        return "nodes with names of their own need root, for namespaces"
    absent = [name for name in needed if not shutil.which(name)]
    if absent:
        return f"{', '.join(absent)} not installed: apt-get install --no-install-recommends {packages}"
    done = subprocess.run(
        ["unshare", "-u", "-m", "-p", "-f", "--mount-proc", "true"], capture_output=True, text=True, check=False
    )
    return f"no namespaces: {done.stderr.strip()}" if done.returncode else ""


def _ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    found = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return found


class Cluster:
    def __init__(self, silence_s: int = 30) -> None:
        """`silence_s`: for which a node may be silent until the controller gives it up."""
        self._silence_s = silence_s
        self.root = Path(tempfile.mkdtemp(prefix="sl", dir="/tmp"))  # the path of a socket has at most 107 characters
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Cluster":
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            process.kill()
            process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def env(self) -> dict[str, str]:
        """To add to the environment of whoever uses the cluster."""
        return {"SLURM_CONF": str(self.root / "slurm.conf")}

    def call(self, *argv: object, check: bool = True) -> str:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "SQUEUE", "SACCT"))}
        done = subprocess.run(
            [str(a) for a in argv],
            env=clean | self.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout.strip()

    def jobs(self, states: str = "all") -> list[str]:
        """`ID STATE` of every job."""
        return self.call("squeue", "-h", "-t", states, "-o", "%A %T").splitlines()

    def state(self, job: str) -> str:
        return self.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", check=False)

    def hurry(self, job: str) -> None:
        """Let go a job that SLURM holds for two minutes, when its last start has left nothing whose end could be booked on the next."""
        self.wait(lambda: self.state(job) == "PENDING" and not self._steps(job))
        time.sleep(1)

        def started() -> bool:
            if self.state(job) != "PENDING":
                return True
            self.call("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
            return False

        self.wait(started)

    def kill(self, node: str) -> None:
        """End a node with all that runs on it, for good; nobody tells the controller."""
        process = self._started.pop(len(self._started) - len(NODES) + NODES.index(node))
        process.kill()
        process.wait()

    def wait(self, true: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, "it did not happen in time"
            assert all(p.poll() is None for p in self._started), "a daemon is gone"
            time.sleep(0.1)

    def _steps(self, job: str) -> bool:
        found = b""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += path.read_bytes()
            except OSError:
                continue
        return f"slurmstepd: [{job}.".encode() in found

    def _daemon(self, *argv: object) -> None:
        with (self.root / "daemons.txt").open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    [str(a) for a in argv],
                    env={k: v for k, v in os.environ.items() if not k.startswith("SLURM")} | self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=end_with_parent,
                )
            )

    def _start(self) -> None:
        root = self.root
        for name in ("state", *(f"spool/{node}" for node in NODES)):
            (root / name).mkdir(parents=True)
        key = root / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(1024))
        control, *ports = _ports(1 + len(NODES))
        addresses = {node: f"127.0.0.{11 + number}" for number, node in enumerate(NODES)}
        hosts = "".join(f"{address} {node}\n" for node, address in addresses.items())
        (root / "hosts").write_text(Path("/etc/hosts").read_text() + hosts)
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={node} NodeAddr={addresses[node]} Port={port} CPUs=4 RealMemory=4000 "
            "Gres=gpu:h100:2 State=UNKNOWN"
            for node, port in zip(NODES, ports, strict=True)
        )
        host = socket.gethostname().split(".")[0]
        # Jobs of two clusters on this machine would meet at ports and in the list of processes that are named after them.
        first = 1 + secrets.randbelow(19_000)
        (root / "slurm.conf").write_text(
            CONF.format(
                root=root,
                host=host,
                control=control,
                first=first,
                nodes=nodes,
                partitions=PARTITIONS,
                silence_s=self._silence_s,
            )
        )
        for number in range(2):  # GPUs are files of devices; these are as good as /dev/null
            os.mknod(root / f"gpu{number}", 0o020666, os.makedev(1, 3))
        (root / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu Type=h100 File={root}/gpu[0-1]\n")
        (root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # read, never used
        places = (f"--socket={root}/munge.sock", f"--key-file={key}", f"--pid-file={root}/munged.pid")
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            *places,
            f"--log-file={root}/munged.log",
            f"--seed-file={root}/munged.seed",
        )
        self.wait((root / "munge.sock").exists)
        self._daemon("slurmctld", "-D", "-c")
        for node in NODES:
            # The shell stays, as the first process of the node, to take in orphans.
            script = f"hostname {node}; mount --bind {root}/hosts /etc/hosts; slurmd -D -N {node} & wait"
            self._daemon("unshare", "-u", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", script)
        self.wait(
            lambda: (
                self.call("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T", check=False).split() == ["idle"] * len(NODES)
            )
        )

"""python tests/logs/make.py [NAME...]: has each failure happen for real on this machine and keeps what it says as NAME.log.

A few need root (mounts of their own, an sshd), PyTorch, or libtpu. Those of SLURM were made by a real one. The others are of GPUs and
stores that are not here: their lines have the form that the libraries' sources give them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TORCH = "import datetime, os, time, torch, torch.distributed as dist\nrank = int(os.environ['RANK'])\n"
JOIN = "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=3))\n"
HANGS = f"""
import sys, tempfile
from pathlib import Path
sys.path.insert(0, "{HERE.parents[1]}")
from tests.unit.train import together
run = Path(tempfile.gettempdir(), f"tmp{{os.getppid()}}", "runs", "cats")
(run / "attempts" / "1").mkdir(parents=True, exist_ok=True)
sys.argv = ["", str(run), "hangs"]
together.main()
"""
LOADER = """
import os, torch, time
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        {fault}
        return torch.zeros({size})
for batch in torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=1): pass
"""
HBM = """
import numpy as np, jax, jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(topologies.get_topology_desc(platform="tpu", topology_name="v6e:2x2").devices[:1]), ("fsdp",))
x = jax.ShapeDtypeStruct((1 << 17, 1 << 16), jnp.float32, sharding=NamedSharding(mesh, P()))
jax.jit(lambda x: x @ x.T).lower(x).compile()
"""
TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
SMALL_DISK = 'mkdir -p {d}/m && mount -t tmpfs -o size=1m tmpfs {d}/m && exec {python} -c "{code}"'

# name -> (programs of ranks 0, 1, ..., extra environment); one rank alone of two: None in the other's place
RANKS: dict[str, tuple[list[str | None], dict[str, str]]] = {
    "gloo-timeout": ([JOIN + "dist.all_reduce(torch.ones(1))", JOIN + "time.sleep(8)"], {}),
    "peer-gone": ([JOIN + "dist.all_reduce(torch.ones(1))\ntime.sleep(1)\ndist.all_reduce(torch.ones(1))",
                   JOIN + "dist.all_reduce(torch.ones(1))\nos._exit(1)"], {}),
    "stalled": ([HANGS, HANGS], {"LOCAL_RANK": "0"}),
    "rendezvous-timeout": ([JOIN, None], {}),
    "rendezvous-connect": ([None, JOIN], {}),
    "address-in-use": (["import socket\ns = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n" + JOIN, None], {}),
    "name-resolution": ([None, JOIN], {"MASTER_ADDR": "node-17.invalid"}),
}  # fmt: skip
ALONE: dict[str, str] = {
    "loader-worker-killed": LOADER.format(fault="i == 20 and os.kill(os.getpid(), 9)", size=1),
    "host-out-of-memory": "import torch\ntorch.empty(1 << 44)",
    "missing-keys": "import torch\ntorch.nn.Linear(2, 3).load_state_dict({'weigth': torch.zeros(3, 2)})",
    "no-module": "import flash_attention_kernels",
    "no-cuda": "import torch\ntorch.zeros(1, device='cuda')",
    "no-compiler": "import os, torch\nos.environ['PATH'] = ''\ntorch.compile(lambda x: x.sin())(torch.ones(8))",
    "hbm-out-of-memory": HBM,
}
MOUNTED: dict[str, str] = {
    "disk-full": SMALL_DISK.replace("{code}", "open('{d}/m/model.pt', 'wb').write(bytes(2 << 20))"),
    "read-only": SMALL_DISK.replace("&& exec", "&& mount -o remount,ro {d}/m && exec").replace(
        "{code}", "open('{d}/m/last.ckpt', 'wb')"
    ),
    "no-permission": "mkdir {d}/m && chmod 700 {d} && exec setpriv --reuid 65534 --clear-groups "
    "{python} -c \"open('{d}/m/last.ckpt', 'wb')\"",
    "shared-memory": "mount -t tmpfs -o size=4m tmpfs /dev/shm && exec {python} {d}/loader.py",
}


def main() -> None:
    wanted = sys.argv[1:]
    for name, (programs, env) in RANKS.items():
        if not wanted or name in wanted:
            keep(name, ranks([p and TORCH + p for p in programs], env))
    for name, program in ALONE.items():
        if not wanted or name in wanted:
            keep(name, run([sys.executable, "-c", program], TPU if name.startswith("hbm") else {}))
    for name, script in MOUNTED.items():
        if not wanted or name in wanted:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "loader.py").write_text(LOADER.format(fault="pass", size="1 << 20"))
                keep(
                    name,
                    run(
                        [
                            "unshare",
                            "-m",
                            "sh",
                            "-c",
                            script.replace("{d}", folder).replace("{python}", sys.executable),
                        ],
                        {},
                    ),
                )
    if not wanted or any(name.startswith("ssh-") for name in wanted):
        over_ssh()
    if not wanted or "worker-killed" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(
                "import os\nos.environ['RANK'] == '1' and os.kill(os.getpid(), 9)\nimport time\ntime.sleep(60)"
            )
            keep(
                "worker-killed",
                run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"{folder}/train.py"], {}),
            )


def over_ssh() -> None:
    """A host that takes other keys, one that we do not know, one whose key has changed, and three that are not there."""
    sys.path.insert(0, str(HERE.parents[1]))
    from lab import sshd

    with sshd.Hosts(Path(tempfile.mkdtemp())) as lab:
        (address, port), here = lab.names[0].split(":"), lab.root / "id"
        changed = f"[{address}]:{port} {(lab.root / 'other.pub').read_text()}"
        (lab.root / "changed").write_text(changed)
        asked = {
            "ssh-key": (lab.config("a", "other"), address, port),
            "ssh-host-key": (lab.config("b", "id", known="nobody"), address, port),
            "ssh-host-key-changed": (lab.config("c", "id", known="changed"), address, port),
            "ssh-refused": (here, address, "1"),
            "ssh-unreachable": (here, "240.0.0.1", "22"),
            "ssh-name": (here, "gpu-17.invalid", "22"),
        }
        for name, (config, host, at) in asked.items():
            given = ["-F", "none" if config == here else str(config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]
            said = run(["ssh", *given, "-p", at, host, "true"], {})
            keep(name, said.replace(str(lab.root), "/shared/keys").replace(address, "gpu-1").replace(port, "2222"))


def ranks(programs: list[str | None], env: dict[str, str]) -> str:
    """What the ranks say, one after another."""
    where = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29871", "WORLD_SIZE": str(len(programs))} | env
    started = [
        subprocess.Popen(
            [sys.executable, "-c", p],
            env=where | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, p in enumerate(programs)
        if p
    ]
    return "".join(process.communicate()[0] for process in started)


def run(argv: list[str], env: dict[str, str]) -> str:
    return subprocess.run(
        argv, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


def keep(name: str, said: str) -> None:
    """Without the places of this machine and the frames of libraries."""
    said = "".join(line for line in said.splitlines(keepends=True) if not line.startswith("frame #"))
    said = re.sub(r"\S*/(?=(?:site-packages|lib/python3|dist-packages)/)", "/opt/venv/", said)
    said = re.sub(r"/tmp/tmp\w+", "/shared/run", said)
    said = re.sub(rf"{re.escape(os.uname().nodename)}", "node-1", said)
    (HERE / f"{name}.log").write_text(said)
    print(
        f"{name}: {len(said.splitlines())} lines, the last: {(said.strip().splitlines() or ['nothing'])[-1][:150]}",
        flush=True,
    )


if __name__ == "__main__":
    main()

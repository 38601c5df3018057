"""The pods of an attempt as processes of this machine: their command lines, the files of their ConfigMap and the variables that GKE sets."""

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path

from podwright.targets.gke.attempt import AttemptObjects

MOUNT = "/podwright/"
PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
"""of the image; its packages are those of this environment, so that pip has nothing to do"""
PIP = "#!/bin/sh\nexit 0\n"


def image(folder: Path) -> str:
    """PATH of a stand-in for the image of the pods, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"python": PYTHON, "pip": PIP}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


class Pods:
    """All pods of `attempt`, started in `folder`. `variables`: of its Secret."""

    def __init__(self, attempt: AttemptObjects, folder: Path, variables: dict[str, str]):
        (code,) = attempt.before
        mounted = folder / "mounted"
        mounted.mkdir(parents=True)
        for name, text in code["data"].items():
            (mounted / name).write_text(text)
        for name, content in code["binaryData"].items():
            (mounted / name).write_bytes(base64.b64decode(content))
        (of_slice,) = attempt.jobset["spec"]["replicatedJobs"]
        number, slices = of_slice["template"]["spec"]["parallelism"], of_slice["replicas"]
        (container,) = of_slice["template"]["spec"]["template"]["spec"]["containers"]
        argv = [word.replace(MOUNT, f"{mounted}/") for word in container["command"]]
        self.logs = [folder / f"pod-{k}.txt" for k in range(slices * number)]
        self.processes = []
        for k, path in enumerate(self.logs):
            tmp = folder / f"tmp-{k}"
            tmp.mkdir()
            given = {"TPU_WORKER_HOSTNAMES": ",".join(["127.0.0.1"] * number), "TPU_WORKER_ID": str(k % number)}
            if slices > 1:
                given |= {"MEGASCALE_NUM_SLICES": str(slices), "MEGASCALE_SLICE_ID": str(k // number)}
                given["MEGASCALE_COORDINATOR_ADDRESS"] = "127.0.0.1:8081"
            env = {"PATH": image(folder / "image"), "HOME": str(tmp), "TMPDIR": str(tmp), **variables, **given}
            with path.open("w") as log:
                self.processes.append(
                    subprocess.Popen(
                        argv, env=env, cwd="/", stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                    )
                )

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def wait(self, timeout: float = 600) -> list[int]:
        return [process.wait(timeout) for process in self.processes]

    def stop(self) -> None:
        """SIGTERM, as the kubelet sends it: to the first process of each container alone."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As with their nodes."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def texts(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in self.logs)

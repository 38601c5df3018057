"""One pod on its node: from volumes and images to processes, and what its status says of them."""

import json
import shutil
from pathlib import Path
from typing import Any

from lab.kube.controllers import knobs, objects, pod_contents
from lab.kube.controllers.container import ProcessContainer, ReplayedContainer
from lab.kube.controllers.logs import Log
from lab.kube.controllers.network import PodNetwork
from lab.kube.controllers.objects import Json
from lab.kube.store import Store
from lab.kube.streams import log_file

SHUTDOWN_TEXT = "Pod was terminated in response to imminent node shutdown."
BACK_OFF_S = 10
COMPONENT = "kubelet"


class ContainerRun:
    """A container of a pod, over its restarts."""

    def __init__(self, body: Json) -> None:
        self.body, self.name = body, str(body["name"])
        self.process: ProcessContainer | ReplayedContainer | None = None
        self.state: Json = {"waiting": {"reason": "ContainerCreating"}}
        self.last: Json = {}
        self.restarts, self.started, self.again, self.oom = 0, 0.0, 0.0, False
        self.code_wanted: int | None = None
        self.environment: dict[str, str] = {}

    @property
    def terminated(self) -> Json | None:
        return self.state.get("terminated")

    def status(self) -> Json:
        return {
            "name": self.name,
            "image": self.body.get("image", ""),
            "imageID": self.body.get("image", "") if self.started else "",
            "ready": "running" in self.state,
            "started": "running" in self.state,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }


class PodRun:
    def __init__(self, root: Path, network: PodNetwork, pod: Json) -> None:
        self.root, self.network, self.uid = root, network, objects.uid(pod)
        self.folder, self.log_folder = root / "pods" / self.uid, log_file(root, pod, "x").parents[1]
        self.containers = [ContainerRun(body) for body in pod["spec"]["containers"]]
        self.since: float | None = None
        self.volumes: dict[str, Path] | None = None
        self.pulled = False
        self.pull_at = 0.0
        self.deadline: float | None = None  # of a pod that is being ended
        self.shutdown = False
        self.ended = False
        self.events: list[tuple[str, str, str]] = []
        self.said: set[tuple[str, str, str]] = set()

    # ending

    def stop(self, now: float, grace_s: float) -> None:
        if self.deadline is None:
            self.deadline = now + grace_s
            for container in self.containers:
                if container.process and not container.terminated:
                    self.say("Normal", "Killing", f"Stopping container {container.name}")
                    container.process.terminate()
        self.deadline = min(self.deadline, now + grace_s)

    def shut_down(self, now: float, grace_s: float) -> None:
        if not self.ended:
            self.shutdown = True
            self.stop(now, grace_s)

    def kill(self) -> None:
        for container in self.containers:
            if container.process:
                container.process.kill()

    def wait(self) -> None:
        for container in self.containers:
            if isinstance(container.process, ProcessContainer):
                container.process.wait()

    # progress

    def advance(self, store: Store, pod: Json, node: Json, settings: Json, now: float) -> None:
        self.since = self.since or now
        for container in self.containers:
            self.poll(container, pod, settings, now)
        if self.deadline is not None:
            if now >= self.deadline:
                self.kill()
            if all(each.terminated or not each.process for each in self.containers):
                self.finish()
            return
        if self.ended:
            return
        if not self.is_prepared(store, pod, settings, now):
            return
        for container in self.containers:
            if container.process is None and not container.terminated and now >= container.again:
                self.start(store, container, pod, settings, now)
        if all(each.terminated for each in self.containers):
            self.finish()

    def finish(self) -> None:
        self.ended = True
        shutil.rmtree(self.folder / "volumes", ignore_errors=True)

    def is_prepared(self, store: Store, pod: Json, settings: Json, now: float) -> bool:
        if self.volumes is None:
            text = pod_contents.missing_volume(store, pod)
            if text:
                self.say("Warning", "FailedMount", text)
            if text or knobs.names(settings["stuck_creating"], pod):
                return False
            self.volumes = pod_contents.make_volumes(store, pod, self.folder)
            self.pull_at = now + settings["image_s"]
            for name in ("home", "tmp", "root"):
                (self.folder / name).mkdir(exist_ok=True, parents=True)
        if not self.pulled and now >= self.pull_at:
            self.pulled = self.pull(settings, now)
        return self.pulled

    def pull(self, settings: Json, now: float) -> bool:
        for container in self.containers:
            image = container.body.get("image", "")
            row = next((r for r in settings["images"] if knobs.fnmatch.fnmatch(image, r["image"])), None)
            if row is None:
                continue
            reason, message = row.get("reason", "ErrImagePull"), row["message"]
            if container.state["waiting"]["reason"] == reason:
                reason, message = "ImagePullBackOff", f'Back-off pulling image "{image}": {reason}: {message}'
            else:
                self.say("Warning", "Failed", f'Failed to pull image "{image}": {message}')
            container.state = {"waiting": {"reason": reason, "message": message}}
            self.pull_at = now + settings["backoff_s"]
            return False
        for image in dict.fromkeys(each.body.get("image", "") for each in self.containers):
            self.say("Normal", "Pulled", f'Successfully pulled image "{image}"')
        return True

    def start(self, store: Store, container: ContainerRun, pod: Json, settings: Json, now: float) -> None:
        try:
            values = pod_contents.environment(store, pod, container.body, self.folder, settings)
        except pod_contents.NotThere as error:
            container.state = {"waiting": {"reason": "CreateContainerConfigError", "message": str(error)}}
            self.say("Warning", "Failed", f"Error: {error}")
            container.again = now + settings["backoff_s"]
            return
        row, words = (
            knobs.matching(settings["replay"], pod, container.name),
            pod_contents.command(container.body, values),
        )
        if not row and not words:
            text = "lab: an image has no entry point here: give the container a command"
            container.state = {"waiting": {"reason": "RunContainerError", "message": text}}
            return
        log = Log(log_file(self.root, pod, container.name, container.restarts), settings["log_bytes"])
        if row:
            lines = Path(row["file"]).read_bytes().splitlines(keepends=True)
            container.process = ReplayedContainer(
                lines, row.get("lines_per_s", 0.0), row.get("exit_code", 0), row.get("wait_s", 0.0), log
            )
        else:
            container.process = ProcessContainer(self.order(store, container, pod, settings, words, values), log)
            container.environment = values
        container.started, container.oom, container.code_wanted = now, False, None
        container.state = {"running": {"startedAt": objects.timestamp(now)}}
        self.say("Normal", "Started", f"Started container {container.name}")

    def order(
        self, store: Store, container: ContainerRun, pod: Json, settings: Json, words: list[str], values: dict[str, str]
    ) -> dict[str, Any]:
        assert self.volumes is not None
        self.network.reach_ports_of(values)
        hosts, empty = self.folder / "hosts", self.folder / "empty"
        hosts.write_text(pod_contents.hosts_file(store, pod))
        empty.mkdir(exist_ok=True)
        hidden = [[str(empty), str(folder), True] for folder in settings["hidden"]]
        root = self.folder / "root" / container.name
        root.mkdir(exist_ok=True)
        return {
            "root": str(root),
            "mounts": [*hidden, [str(hosts), "/etc/hosts", False], *pod_contents.mounts(container.body, self.volumes)],
            "argv": words,
            "environment": values,
            "directory": container.body.get("workingDir") or "/",
            "hostname": values["HOSTNAME"][:63],
            "network": self.network.path,
            "pid": str(self.folder / f"{container.name}.pid"),
            "error": str(self.folder / f"{container.name}.error"),
        }

    def poll(self, container: ContainerRun, pod: Json, settings: Json, now: float) -> None:
        if container.process is None or container.terminated:
            return
        self.strike(container, pod, settings, now)
        code = container.process.ended()
        if code is None:
            return
        if container.code_wanted is not None:
            code = container.code_wanted
        reason = "OOMKilled" if container.oom else "Completed" if code == 0 else "Error"
        ended = {
            "exitCode": code,
            "reason": reason,
            "startedAt": objects.timestamp(container.started),
            "finishedAt": objects.timestamp(now),
        }
        if text := container.process.start_error():  # [?]
            what = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed"
            what += f": unable to start container process: {text}: unknown"
            ended |= {"reason": "StartError", "message": what, "startedAt": objects.timestamp(0)}
        policy = pod["spec"].get("restartPolicy", "Always")
        if self.deadline is None and (policy == "Always" or (policy == "OnFailure" and code)):
            container.process, container.restarts = None, container.restarts + 1
            container.last, container.again = {"terminated": ended}, now + settings["backoff_s"]
            text = f"back-off {BACK_OFF_S}s restarting failed container={container.name} pod={objects.name(pod)}_{objects.namespace(pod)}({self.uid})"
            container.state = {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
            self.say("Warning", "BackOff", text)
        else:
            container.state = {"terminated": ended}

    def strike(self, container: ContainerRun, pod: Json, settings: Json, now: float) -> None:
        """What the knobs do to a running container."""
        assert container.process
        row = knobs.matching(settings["oom"], pod, container.name)
        if row and not container.oom and now >= container.started + row.get("after_s", 0.0):
            container.oom, container.code_wanted = True, 137
            container.process.kill()
        row = knobs.matching(settings["kill"], pod, container.name)
        if row and container.code_wanted is None and now >= container.started + row.get("after_s", 0.0):
            container.code_wanted = row.get("code", 1)
            container.process.kill()

    def say(self, kind: str, reason: str, message: str) -> None:
        """An event, once."""
        if (kind, reason, message) not in self.said:
            self.said.add((kind, reason, message))
            self.events.append((kind, reason, message))

    # status

    def phase(self) -> str:
        if self.ended:
            codes = [each.terminated["exitCode"] if each.terminated else 137 for each in self.containers]
            return "Failed" if any(codes) or self.shutdown else "Succeeded"
        return "Running" if any(each.started for each in self.containers) else "Pending"

    def status(self, pod: Json) -> Json:
        """All but conditions."""
        body = {
            "phase": self.phase(),
            "startTime": objects.timestamp(self.since or 0.0),
            "containerStatuses": [each.status() for each in self.containers],
        }
        if self.phase() != "Pending":
            body |= {"hostIP": "127.0.0.1", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
        if self.ended and self.shutdown:
            body |= {"reason": "Terminated", "message": SHUTDOWN_TEXT}
        return body

    def write(self, store: Store, pod: Json, now: float) -> Json | None:
        body = json.loads(json.dumps(self.status(pod)))
        running = all("running" in each.state for each in self.containers)
        names = ", ".join(each.name for each in self.containers if "running" not in each.state)
        unready = "PodCompleted" if self.phase() == "Succeeded" else "PodFailed" if self.ended else "ContainersNotReady"
        text = "" if self.ended else f"containers with unready status: [{names.replace(', ', ' ')}]"

        def function(copy: Json) -> None:
            copy.setdefault("status", {}).update(body)
            started = any(each.started for each in self.containers)
            objects.set_condition(copy, now, "PodReadyToStartContainers", started and not self.ended, "", "")
            objects.set_condition(copy, now, "Initialized", True, "", "")
            for kind in ("Ready", "ContainersReady"):
                objects.set_condition(copy, now, kind, running, "" if running else unready, "" if running else text)
            if self.shutdown:
                objects.set_condition(copy, now, "DisruptionTarget", True, "TerminationByKubelet", SHUTDOWN_TEXT)

        changed = objects.change(store, "pods", pod, function)
        for kind, reason, message in self.events:
            store.record_event("pods", pod, kind, reason, message, COMPONENT)
        self.events.clear()
        return changed

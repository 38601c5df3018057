"""What a test holds of the simulated cluster: its kubeconfig, its objects past all faults, its knobs and its record of calls."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lab.kube import discovery
from lab.kube.control_socket import call_api
from lab.kube.controllers.knobs import check as check_knobs
from lab.kube.discovery import RESOURCES
from lab.machine import REPOSITORY, end_with_parent

Object = dict[str, Any]
START_S = 60.0
END_S = 20.0
HINT = "Install gke-gcloud-auth-plugin for use with kubectl by following the instructions of Google Cloud"


class Kube:
    """An API server of its own below `root`/kube, until the block ends. `controllers`: what makes pods of JobSets runs too.

    `login`: the credential plugin in the kubeconfig, as that of GKE names gke-gcloud-auth-plugin; then the API is HTTPS, and a client without the
    bearer token `lab` (knob `token`) is Unauthorized.
    """

    def __init__(
        self,
        root: Path,
        controllers: bool = False,
        project: str = "p",
        location: str = "us-central1",
        cluster: str = "c",
        login: str = "",
    ) -> None:
        self.folder, self.with_controllers, self.login = root / "kube", controllers, login
        self.context = f"gke_{project}_{location}_{cluster}"
        self.last_calls: list[Object] = []

    def __enter__(self) -> "Kube":
        self.folder.mkdir(parents=True)
        if self.login:
            certify(self.folder)
        with (self.folder / "server.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lab.kube.server", str(self.folder)],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        deadline = time.monotonic() + START_S
        while not (self.folder / "url").exists():
            assert self.process.poll() is None and time.monotonic() < deadline, self.server_text()
            time.sleep(0.02)
        self.url = (self.folder / "url").read_text()
        (self.folder / "config").write_text(json.dumps(self._kubeconfig()))
        if self.login:
            self.set(token="lab")
        if self.with_controllers:
            self._lab("controllers")
        return self

    def __exit__(self, *_: object) -> None:
        ended = self.process.poll() is not None
        errors = []
        if not ended:
            self.last_calls, errors = self.requests(), self._lab("errors")
            self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            errors.append(f"the server did not end within {END_S} s of SIGTERM")
        assert not ended and not errors, self.server_text() + "\n".join(errors)

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which `kubectl` is this cluster's."""
        return {"KUBECONFIG": str(self.folder / "config"), "KUBECACHEDIR": str(self.folder / "cache")}

    def call(self, *argv: str, text: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run the real `kubectl` with these arguments."""
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
        command = ["kubectl", "--context", self.context, *argv]
        environment = os.environ | self.environment
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=timeout, **given
        )

    # records

    def requests(self) -> list[Object]:
        """Every call of clients, in order: {"time", "verb", "resource", "namespace", "name", "method", "path", "query", "agent", "status", "seconds"};
        `status` is None for one that was never answered, `seconds` is missing while it lasts. After the block: those until its end."""
        if self.process.poll() is None:
            self.last_calls = self._lab("calls")
        return self.last_calls

    def objects(self, resource: str, namespace: str = "", labels: str = "") -> list[Object]:
        """What exists, of all namespaces for ""."""
        row = RESOURCES[resource]
        items: list[Object] = self.api("GET", f"{place(resource, namespace)}?labelSelector={quote(labels)}")["items"]
        return [{"apiVersion": row.api_version, "kind": row.kind} | body for body in items]

    def get(self, resource: str, name: str, namespace: str = "default") -> Object:
        return self.api("GET", f"{place(resource, namespace)}/{name}")

    # acting past all faults

    def create(self, body: Object, namespace: str = "default") -> Object:
        """Create an object by its `kind`; what it has of a status is kept."""
        resource = next(row.plural for row in discovery.ROWS if row.kind == body["kind"])
        created = self.api("POST", place(resource, body.get("metadata", {}).get("namespace", namespace)), body)
        if "status" in body and RESOURCES[resource].status:
            metadata = created["metadata"]
            return self.patch_status(resource, metadata["name"], body["status"], metadata.get("namespace", ""))
        return created

    def patch(self, resource: str, name: str, patch: Object, namespace: str = "default") -> Object:
        """A JSON merge patch."""
        return self.api("PATCH", f"{place(resource, namespace)}/{name}", patch)

    def patch_status(self, resource: str, name: str, status: Object, namespace: str = "default") -> Object:
        """A JSON merge patch of the status."""
        return self.api("PATCH", f"{place(resource, namespace)}/{name}/status", {"status": status})

    def delete(self, resource: str, name: str, namespace: str = "default", grace_s: int | None = None) -> Object:
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        return self.api("DELETE", f"{place(resource, namespace)}/{name}", options)

    def api(self, method: str, path: str, body: Object | None = None) -> Any:
        """A call over the control socket, which knows no faults. Raises ApiError."""
        return call_api(self.folder, method, path, body)

    # knobs

    def set(self, **knobs: Any) -> None:
        """Knobs of the server and of the controllers; their names are in `controllers.knobs`."""
        check_knobs(knobs)
        self._lab("knobs", knobs)

    def fault(self, kind: str, **rule: Any) -> None:
        """A rule of `faults.Rule`, from now on."""
        self._lab("fault", {"kind": kind, **rule})

    def unreachable(self, seconds: float) -> None:
        """Connections are refused from now on for this time, and those that are there break."""
        self._lab("unreachable", {"seconds": seconds})

    def clear_faults(self) -> None:
        """No rule holds any more, and the API is reachable."""
        self._lab("clear")

    def expire_history(self) -> None:
        """Running watches get 410 with their next event, and so do later ones from an older resourceVersion, and `continue` of older lists."""
        self._lab("expire")

    def _kubeconfig(self) -> Object:
        """As `gcloud container clusters get-credentials` names its entries."""
        name, server = self.context, {"server": self.url}
        user: Object = {}
        if self.login:
            server["certificate-authority"] = str(self.folder / "certificate.pem")
            plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": self.login}
            user = {"exec": plugin | {"installHint": HINT, "interactiveMode": "Never", "provideClusterInfo": True}}
        config: Object = {"apiVersion": "v1", "kind": "Config", "current-context": name, "preferences": {}}
        config |= {"clusters": [{"name": name, "cluster": server}], "users": [{"name": name, "user": user}]}
        return config | {"contexts": [{"name": name, "context": {"cluster": name, "user": name}}]}

    def _lab(self, verb: str, body: Object | None = None) -> Any:
        return self.api("POST", f"/lab/{verb}", body or {})

    def server_text(self) -> str:
        return (self.folder / "server.txt").read_text(errors="replace")


def place(resource: str, namespace: str) -> str:
    """The path of a collection; of all namespaces for ""."""
    row = RESOURCES[resource]
    root = f"/apis/{row.api_version}" if row.group else f"/api/{row.version}"
    return f"{root}/namespaces/{namespace}/{resource}" if row.namespaced and namespace else f"{root}/{resource}"


def certify(folder: Path) -> None:
    """A certificate of its own for 127.0.0.1 in certificate.pem, with its key in key.pem."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem"))
    subprocess.run(["openssl", "req", "-x509", *curve, "-nodes", *subject, *files], check=True, capture_output=True)

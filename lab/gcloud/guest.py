"""What runs in a host of the simulated cloud besides sshd: the guest agent (accounts and keys), the TPU API over https, the startup script.

`order["guest"]` is empty; the host's metadata file says the rest, as a real guest's metadata server does. Its key `agent/ssh-keys` is what the
agent has received so far, which may be later than `instance/attributes/ssh-keys`.
"""

import contextlib
import json
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lab.gcloud import store
from lab.gcloud.api import ApiError, handle

API = "tpu.googleapis.com"
API_ADDRESS = "169.254.169.254"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TICK_S = 0.05


def begin(root: Path, home: Path, order: dict[str, Any]) -> tuple[Path, str]:
    """Start all of it; where the host key lies, and AuthorizedKeysFile for sshd."""
    private = home / "etc-ssh"
    private.mkdir(exist_ok=True)
    host_key = private / "ssh_host_ed25519_key"
    if not host_key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key)], check=True)
    certificates = store.folder(root) / "certs"
    subprocess.run(["mount", "--bind", str(certificates), "/etc/ssl/certs"], check=True)
    metadata = Path(order["metadata"])
    threading.Thread(target=keep_accounts, args=(metadata, home, private), daemon=True).start()
    threading.Thread(target=serve_api, args=(root,), daemon=True).start()
    if script := json.loads(metadata.read_text()).get("instance/attributes/startup-script"):
        (home / "startup-script").write_text(script)
        with (home / "startup-script.log").open("wb") as log:
            command = ["bash", str(home / "startup-script")]
            env = {"PATH": PATH}
            subprocess.Popen(
                command, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
    return host_key, f"{private}/keys-%u"


def keep_accounts(metadata: Path, home: Path, private: Path) -> None:
    """Each line USER:KEY of `ssh-keys` is an account with root's rights and the host's home, and a key of it."""
    users = Path("/etc/passwd").read_text()
    before = ""
    while True:
        lines = json.loads(metadata.read_text()).get("agent/ssh-keys", "")
        if lines != before:
            before = lines
            keys: dict[str, list[str]] = {}
            for user, key in (line.split(":", 1) for line in lines.splitlines() if ":" in line):
                keys.setdefault(user, []).append(key)
            for user, of_user in keys.items():
                (private / f"keys-{user}").write_text("\n".join(of_user) + "\n")
            accounts = [f"{user}:x:0:0::{home}:/bin/bash\n" for user in keys if f"\n{user}:" not in f"\n{users}"]
            Path("/etc/passwd").write_text(users.rstrip("\n") + "\n" + "".join(accounts))
        time.sleep(TICK_S)


def serve_api(root: Path) -> None:
    """https://tpu.googleapis.com as this host sees it, for whoever has the token of a living guest."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            started = time.time()
            status, reply = 200, {}
            try:
                with store.opened(root) as state:
                    authorize(state, self.headers.get("Authorization", ""))
                    reply = handle(state, self.command, url.path, dict(parse_qsl(url.query)), body, "instance")
            except ApiError as error:
                status, reply = error.status, error.body()
            row = {"argv": ["rest", self.command, self.path], "time": started, "rc": status, "seconds": 0.0}
            store.log_call(root, row)
            with contextlib.suppress(OSError):  # the caller's host may be gone by now
                text = json.dumps(reply, indent=2).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        do_GET = do_POST = do_DELETE = do_PATCH = answer

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls = store.folder(root) / "tls"
    context.load_cert_chain(tls / "server.pem", tls / "server.key")
    server = ThreadingHTTPServer((API_ADDRESS, 443), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


def authorize(state: store.State, header: str) -> None:
    token = header.removeprefix("Bearer ")
    if not any(node["token"] == token and node["boot"] == "on" for node in state["nodes"].values()):
        raise ApiError(
            401,
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication "
            "credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
        )

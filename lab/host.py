"""`python -m lab.host ORDER_FILE`: the first process of one host of the lab, in namespaces of its own.

It serves sshd and a metadata server. Everything in the host ends with this process. The order is a JSON object: `root`, `gateway`, `hidden` and
`sshd` of the lab; `name`, `address` and the `metadata` file of the host; and for a guest of the simulated cloud `guest`, see `lab.gcloud.guest`.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from lab.gcloud import guest

METADATA_ADDRESS = "169.254.169.254"
SSHD = """Port 22
HostKey {host_key}
AuthorizedKeysFile {keys}
PidFile none
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
UseDNS no
SetEnv TMPDIR={home}/tmp
"""


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    root, name, address = Path(order["root"]), order["name"], order["address"]
    bring_up(address, order["gateway"], order.get("internal", ""))
    home = private_disk(root, name, address, order["hidden"])
    host_key, keys = root / "host-key", str(root / "id.pub")
    threading.Thread(target=serve_metadata, args=(order["metadata"],), daemon=True).start()
    if "guest" in order:
        host_key, keys = guest.begin(root, home, order)
    conf = home / "sshd.conf"
    conf.write_text(SSHD.format(host_key=host_key, keys=keys, home=home))
    subprocess.Popen([order["sshd"], "-D", "-e", "-f", str(conf)], stdin=subprocess.DEVNULL)
    while True:  # as the first process of the host: take in orphans
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


def bring_up(address: str, gateway: str, internal: str) -> None:
    """The other end of eth0 is moved in from outside. `internal`: another address, which this machine has no route to."""
    while subprocess.run(["ip", "link", "show", "eth0"], capture_output=True, check=False).returncode:
        time.sleep(0.02)
    for words in (
        "link set lo up",
        f"addr add {METADATA_ADDRESS}/32 dev lo",
        f"addr add {address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {gateway}",
        *([f"addr add {internal}/24 dev eth0"] if internal else []),
    ):
        subprocess.run(["ip", *words.split()], check=True)


def private_disk(root: Path, name: str, address: str, hidden: list[str]) -> Path:
    """A home that no other host sees; `hidden` folders and the homes of the others are empty here."""
    disk, home = root / "disks" / name, root / "home"
    (disk / "tmp").mkdir(parents=True, exist_ok=True)
    (disk / "etc-hosts").write_text(
        f"127.0.0.1 localhost\n{address} {name}\n{METADATA_ADDRESS} metadata.google.internal {guest.API}\n"
    )
    (disk / "etc-resolv.conf").write_text(
        "nameserver 127.0.0.1\n"
    )  # nobody there: names that are not in hosts fail at once
    users = Path("/etc/passwd").read_text().splitlines()
    fields = next(line for line in users if line.startswith("root:")).split(":")
    fields[5] = str(home)
    (disk / "etc-passwd").write_text("\n".join([":".join(fields), *(u for u in users if not u.startswith("root:"))]))
    (disk / "boot-id").write_text(
        f"{uuid.uuid4()}\n"
    )  # else all hosts would have that of this machine, after a restart too
    for file in ("hosts", "passwd", "resolv.conf"):
        subprocess.run(["mount", "--bind", str(disk / f"etc-{file}"), f"/etc/{file}"], check=True)
    subprocess.run(["mount", "--bind", str(disk / "boot-id"), "/proc/sys/kernel/random/boot_id"], check=True)
    subprocess.run(["mount", "--bind", str(disk), str(home)], check=True)
    for folder in ("/dev/shm", str(root / "disks"), *hidden):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    socket.sethostname(name)
    return home


def serve_metadata(path: str, address: tuple[str, int] = (METADATA_ADDRESS, 80)) -> None:
    """The file holds {key: value}; a request with wait_for_change is answered when the value is not what it was, which is what it is at the
    request or, with last_etag, what the answer with that ETag had."""

    def etag(value: str | None) -> str:
        return hashlib.sha256(str(value).encode()).hexdigest()[:16]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            key, query = url.path.removeprefix("/computeMetadata/v1/"), parse_qs(url.query)
            if self.headers.get("Metadata-Flavor") != "Google":
                return self.answer(403, "the header Metadata-Flavor: Google is missing")
            value = self.value(key)
            last = query.get("last_etag", [etag(value)])[0]
            limit = time.monotonic() + float(query.get("timeout_sec", ["3600"])[0])
            while query.get("wait_for_change") == ["true"] and etag(value) == last and time.monotonic() < limit:
                time.sleep(0.1)
                value = self.value(key)
            self.answer(200, value) if value is not None else self.answer(404, "not found")

        def value(self, key: str) -> str | None:
            values: dict[str, str] = json.loads(Path(path).read_text())
            return values.get(key)

        def answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("ETag", etag(text))
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(address, Handler).serve_forever()


if __name__ == "__main__":
    main()

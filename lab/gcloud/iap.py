"""`gcloud compute start-iap-tunnel WORKER PORT --listen-on-stdin`: stdin and stdout, forwarded to a port of a worker."""

import os
import select
import socket
import sys

from lab.gcloud import store
from lab.gcloud.api import Json
from lab.gcloud.session import Session

CONNECT_S = 10.0


def tunnel(session: Session) -> None:
    """Until either side closes."""
    state = store.read(session.root)
    if "iap.tunnelInstances.accessViaIAP" in state["knobs"]["denied"]:
        raise session.fail("Error while connecting [4033: 'not authorized'].")
    zone = session.setting("zone", "compute/zone", "zone")
    host = find(state, session.call.name, zone)
    if host is None:
        project = session.setting("project", "core/project", "project")
        resource = f"projects/{project}/zones/{zone}/instances/{session.call.name}"
        raise session.fail(f"Could not fetch resource:\n - The resource '{resource}' was not found")
    port = int(session.call.rest[1]) if len(session.call.rest) > 1 else 22
    try:
        connection = socket.create_connection((host["address"], port), timeout=CONNECT_S)
    except OSError:
        raise session.fail(
            f"Error while connecting [4003: 'failed to connect to backend']. (Failed to connect to port {port})"
        ) from None
    connection.settimeout(None)
    forward(connection)


def find(state: store.State, name: str, zone: str) -> Json | None:
    for node in state["nodes"].values():
        if node["zone"] == zone and node["boot"] == "on":
            for host in node["hosts"]:
                if host["name"] == name:
                    return dict(host)
    return None


def forward(connection: socket.socket) -> None:
    watched: list[int | socket.socket] = [0, connection]
    while connection in watched:
        for source in select.select(watched, [], [])[0]:
            if source == 0:
                data = os.read(0, 65536)
                if data:
                    connection.sendall(data)
                else:
                    watched.remove(0)
                    connection.shutdown(socket.SHUT_WR)
            else:
                data = connection.recv(65536)
                if not data:
                    return
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()

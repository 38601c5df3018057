"""The network of all pods: one loopback apart from this machine's, so that ports of two clusters do not meet.

Ports of this machine, such as that of a bucket, are reached in it where a variable of a container names one as http://127.0.0.1:PORT.
"""

import ctypes
import fcntl
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
LIBC = ctypes.CDLL(None, use_errno=True)


class PodNetwork:
    def __init__(self) -> None:
        self.namespace = -1
        self.relays: dict[int, socket.socket] = {}
        apart(self._create)
        self.path = f"/proc/{os.getpid()}/fd/{self.namespace}"

    def _create(self) -> None:
        if LIBC.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network namespace: the lab's pods need root")
        self.namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))

    def reach_ports_of(self, values: Mapping[str, str]) -> None:
        """Those that variables name."""
        for text in values.values():
            for port in re.findall(r"://(?:127\.0\.0\.1|localhost):(\d+)", text):
                self.reach(int(port))

    def reach(self, port: int) -> None:
        if port in self.relays:
            return

        def listen() -> None:
            LIBC.setns(self.namespace, CLONE_NEWNET)
            self.relays[port] = socket.create_server(("127.0.0.1", port), backlog=128)

        apart(listen)
        threading.Thread(target=self._relay, args=(self.relays[port], port), daemon=True).start()

    def _relay(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                inner, _ = listener.accept()
            except OSError:  # closed
                return
            try:
                outer = socket.create_connection(("127.0.0.1", port), timeout=10)
            except OSError:
                inner.close()
                continue
            outer.settimeout(None)
            for source, sink in ((inner, outer), (outer, inner)):
                threading.Thread(target=pump, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        for listener in self.relays.values():
            listener.close()
        os.close(self.namespace)


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Until the source ends or one of the two breaks."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, sink):
            each.close()


def apart(function: Callable[[], None]) -> None:
    """In a thread of its own, whose namespaces end with it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]

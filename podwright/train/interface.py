"""The network over which the processes of several hosts exchange arrays: that by which this host reaches the first one.

Gloo, of PyTorch and of jax's CPU devices, else listens at the address that a host's own name stands for. Where that is the loopback
(Debian and Ubuntu write 127.0.1.1 into /etc/hosts) no other host reaches it. NCCL takes the first network that it finds.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator, MutableMapping

import psutil

GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
_ANY_PORT = 9
_ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""addresses of nobody (RFC 5737, RFC 3849), by which the default route is found; no packet goes there"""
_VIRTUAL = ("docker", "br-", "veth", "virbr", "cni", "flannel", "podman")


def choose(environment: MutableMapping[str, str], first: str) -> str:
    """Has Gloo and NCCL use the network of this host by which `first`, the first host, is reached, where several hosts train and the user
    names none (a line of setup). The name of Gloo's network; "" where all processes are on one host."""
    size = int(environment.get("WORLD_SIZE", environment.get("JAX_NUM_PROCESSES", "1")))
    if size > int(environment.get("LOCAL_WORLD_SIZE", "1")):
        name = of_route(first)
        if name:
            environment.setdefault(GLOO, name)
            environment.setdefault(NCCL, f"={name}")  # "=": not those whose names begin so
    return environment.get(GLOO, "").partition(",")[0]


def of_route(first: str) -> str:
    """The interface by which `first` is reached; on that host itself, whose name may stand for the loopback there, that of the default
    route, or the only one. "" where `first` is an address of the loopback: then all processes are on this machine."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(first).is_loopback:
            return ""
    addresses = {
        row.address.partition("%")[0]: name
        for name, rows in psutil.net_if_addrs().items()
        for row in rows
        if row.family in (socket.AF_INET, socket.AF_INET6)
    }
    others = {a: n for a, n in addresses.items() if not ipaddress.ip_address(a).is_loopback}
    for to in (first, *_ELSEWHERE):
        for own, reached in _sources(to):
            # The name of this host may stand for a network of containers, which no other host is on.
            if own in others and not (own == reached and others[own].startswith(_VIRTUAL)):
                return others[own]
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup and not name.startswith(_VIRTUAL)}
    real = sorted(up & set(others.values()))
    return real[0] if len(real) == 1 else ""


def _sources(to: str) -> Iterator[tuple[str, str]]:
    """Addresses of this host from which a packet to `to` would leave it, each with the address of `to`; the same where that is this host."""
    with contextlib.suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(to, _ANY_PORT, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as tried:
                tried.connect(address)
                yield tried.getsockname()[0].partition("%")[0], str(address[0]).partition("%")[0]

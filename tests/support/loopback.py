"""Restricts the sockets of tests to loopback for connecting, sending and listening, and blocks name lookups.

It watches Python's own sockets, whichever library uses them. Sockets of libuv and gRPC have no such hook.
"""

import ipaddress
import socket
import sys
import threading
from typing import Any

_EVENTS = frozenset({"socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg"})
_LOOKUPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})


class NetworkError(AssertionError):
    """Signals that a test tried to reach another machine."""


class Guard:
    """Refuses connections that would leave this machine, and records them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: list[str] = []

    def install(self) -> None:
        """Install the guard for the rest of the process."""
        sys.addaudithook(self.check)

    def refused(self) -> list[str]:
        """Return the refused operations since the last call."""
        with self._lock:
            refused, self._refused = self._refused, []
        return refused

    def check(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise NetworkError if a socket operation concerns another machine. Called as an audit hook."""
        if event in _EVENTS:
            host = _host(*arguments)
        elif event in _LOOKUPS:
            host = arguments[0]
        else:
            return
        if not is_local(host):
            text = f"{event} of {host!r}: tests use the loopback interface only"
            with self._lock:
                self._refused.append(text)
            raise NetworkError(text)


def _host(one: socket.socket, address: Any) -> object:
    """Return the host of a socket operation; None for a socket family that cannot reach another machine."""
    internet = one.family in {socket.AF_INET, socket.AF_INET6}
    return address[0] if internet and isinstance(address, tuple) else None


def is_local(host: object) -> bool:
    """Return True for loopback, its names, and None. An empty host to listen on means every interface."""
    if host is None:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)
    if text.lower() in {"localhost", socket.gethostname().lower()}:
        return True
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False

"""Sockets of a test reach this machine alone: they connect, send and listen on loopback, and no name is looked up.

It watches what Python's own sockets do, whichever library uses them; sockets of libuv and gRPC have no such hook.
"""

import ipaddress
import socket
import sys
import threading
from typing import Any

_EVENTS = frozenset({"socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg"})
_LOOKUPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})


class NetworkError(AssertionError):
    """A test reached for another machine."""


class Guard:
    """Refuses connections that would leave this machine, and records them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: list[str] = []

    def install(self) -> None:
        """Watch from now on until the process ends."""
        sys.addaudithook(self.check)

    def refused(self) -> list[str]:
        """What was refused since the last call."""
        with self._lock:
            refused, self._refused = self._refused, []
        return refused

    def check(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise NetworkError where an operation on a socket concerns another machine. The form of an audit hook."""
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
    """Whom an operation on a socket concerns; None where that is no other machine by the kind of the socket."""
    internet = one.family in {socket.AF_INET, socket.AF_INET6}
    return address[0] if internet and isinstance(address, tuple) else None


def is_local(host: object) -> bool:
    """True for loopback, for its names, and for no host at all. An empty one to listen on is every interface."""
    if host is None:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)
    if text.lower() in {"localhost", socket.gethostname().lower()}:
        return True
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False

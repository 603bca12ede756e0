"""Starts and stops clusters of real servers on 127.0.0.1, with their folders and ports."""

import fcntl
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar


class Cluster(Protocol):
    """Processes that start and stop together."""

    def start(self) -> None:
        """Start the cluster. Return when it is ready."""
        ...

    def stop(self) -> None:
        """End every process."""
        ...


C = TypeVar("C", bound=Cluster)


@contextmanager
def running(name: str, make: Callable[[Path], C]) -> Iterator[C]:
    """Run a cluster in a folder that every user can enter. Stop the cluster and delete the folder at the end.

    The folder is not below pytest's folder, because users of some servers cannot enter the parents of that one.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"jobmeter-{name}-", dir="/tmp"))
    folder.chmod(0o755)
    cluster = make(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Return distinct free ports, reserved against other test processes as long as this process runs.

    The ports lie below the range from which the kernel assigns ports to connections. A port of that range could be
    taken between this call and the start of the server.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(_PORTS)
        if port not in _reserved and _reserve(port):
            _reserved.add(port)
            ports.append(port)
    return ports


def free_port() -> int:
    """Return one free port, reserved as by ``free_ports``."""
    return free_ports(1)[0]


_PORTS = range(10_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
_reserved: set[int] = set()
"""Ports reserved by this process."""


@cache
def _open_reservations() -> int:
    """Return the reservation file. A process locks byte N to reserve port N, and its locks end with the process."""
    path = Path(tempfile.gettempdir()) / f"jobmeter-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _reserve(port: int) -> bool:
    try:
        fcntl.lockf(_open_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True

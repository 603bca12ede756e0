"""Starting a cluster of real servers on 127.0.0.1 and stopping it: its folder and its ports."""

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
    """Processes that are started and stopped together."""

    def start(self) -> None:
        """Return when the cluster is ready."""
        ...

    def stop(self) -> None:
        """End every process."""
        ...


C = TypeVar("C", bound=Cluster)


@contextmanager
def running(name: str, make: Callable[[Path], C]) -> Iterator[C]:
    """A cluster that is ready, in a folder that every user may enter; stopped and deleted at the end.

    The folder is not pytest's: its parents are closed to the users as whom some servers run.
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
    """Return different ports on which nobody listens. No other process of the tests gets them while this one runs.

    The kernel never gives these ports to a connection: they lie below its range. A port of that range may be taken
    between this call and the start of the server.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.choice(_PORTS)
        if port not in _reserved and _reserve(port):
            _reserved.add(port)
            ports.append(port)
    return ports


def free_port() -> int:
    """Return a port on which nobody listens, as ``free_ports`` does."""
    return free_ports(1)[0]


_PORTS = range(10_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
_reserved: set[int] = set()
"""The ports that this process got."""


@cache
def _open_reservations() -> int:
    """Return the file whose byte N is locked by the process that got port N. A lock ends with its process."""
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

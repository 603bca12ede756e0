"""Starting a cluster of real servers on 127.0.0.1 and stopping it: its folder and its ports."""

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
    """Different ports on which nobody listens now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def free_port() -> int:
    """A port on which nobody listens now."""
    return free_ports(1)[0]

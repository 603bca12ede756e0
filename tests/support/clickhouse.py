"""Starts real ClickHouse servers for tests, single ones or shards of a cluster, from the engine of the package.

This engine lacks replication and ``ON CLUSTER``. ``each_node`` therefore runs each cluster statement on every node, and
replaces replicated tables by plain ones.
"""

import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.httpclient import HttpClient

from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.pool import connect
from tests.support.clusters import free_ports
from tests.support.waiting import wait_until

CLUSTER = "main"
_MEMORY = Path("/dev/shm")
_PROGRAM = Path(__file__).with_name("clickhouse_node.py")
_ON_CLUSTER = re.compile(r" ON CLUSTER '\w+'")
_REPLICATED = re.compile(r"Replicated(ReplacingMergeTree)\('[^']+', '[^']+'(?:, )?")


@dataclass(frozen=True)
class Node:
    """Host and ports of a server."""

    http: int
    tcp: int

    @property
    def dsn(self) -> str:
        """Data source name without a database."""
        return f"clickhousedb://127.0.0.1:{self.http}"


@contextmanager
def node() -> Iterator[Node]:
    """Run a single server for the block."""
    with shards(1) as nodes:
        yield nodes[0]


@contextmanager
def shards(count: int) -> Iterator[Sequence[Node]]:
    """Run servers that know each other as the shards of the cluster ``main``, and kill them at the end.

    Their tables are in memory if there is room. On a disk most of the test's time would go into the sync of each
    insert. A killed process loses nothing, because the files in memory outlive it.
    """
    nodes = [Node(*free_ports(2)) for _ in range(count)]
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="jobmeter-ch-", dir=_MEMORY if _MEMORY.is_dir() else None))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        for number, one in enumerate(nodes, 1):
            stack.enter_context(_running(one, home / str(number), _config(nodes, number)))
        yield nodes


class NodeProcess:
    """Server that a test can kill, freeze and restart with its tables."""

    def __init__(self, own: Node, folder: Path, config: str = "") -> None:
        self.own = own
        self._folder = folder
        self._config = config or _config([own], 1)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server. Return when it answers."""
        self._folder.mkdir(exist_ok=True)
        (self._folder / "config.xml").write_text(self._config)
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        wait_until(lambda: _answers(self.own) or process.poll() is not None, "the start of ClickHouse")
        assert process.poll() is None, log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal such as SIGSTOP or SIGCONT to the server."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def data(self) -> Path:
        """Folder of the tables."""
        return self._folder / "data"

    def empty(self) -> None:
        """Kill the server, remove its data, and start it again."""
        self.kill()
        shutil.rmtree(self.data)
        self.start()

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Kill the server for the block, and restart it afterwards."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all threads of the server for the block."""
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task")
        self.signal(signal.SIGSTOP)
        try:
            wait_until(lambda: all(_is_stopped(task) for task in tasks.iterdir()))
            yield
        finally:
            self.signal(signal.SIGCONT)


def _is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(") ")[2].startswith("T")


@contextmanager
def _running(own: Node, folder: Path, config: str) -> Iterator[NodeProcess]:
    process = NodeProcess(own, folder, config)
    try:
        process.start()
        yield process
    finally:
        process.kill()


@contextmanager
def mortal_node() -> Iterator[NodeProcess]:
    """Yield a server that the test can kill and freeze."""
    with mortal_nodes(1) as nodes:
        yield nodes[0]


@contextmanager
def mortal_nodes(count: int) -> Iterator[Sequence[NodeProcess]]:
    """Yield servers that the test can kill and freeze.

    They do not know each other; the macro ``shard`` is their number.
    """
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="jobmeter-ch-", dir=_MEMORY if _MEMORY.is_dir() else None))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        ports = iter(free_ports(2 * count))
        yield [
            stack.enter_context(_running(own, home / str(number), _config([own], 1, number)))
            for number, own in enumerate(starmap(Node, zip(ports, ports, strict=True)), 1)
        ]


def _answers(own: Node) -> bool:
    """Return True if both ports are open: a server that finds its second port taken answers on the first, and exits."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{own.http}/ping", timeout=5) as reply:
            answer = reply.read()
        socket.create_connection(("127.0.0.1", own.tcp), timeout=5).close()
    except OSError:
        return False
    return bool(answer == b"Ok.\n")


def _config(nodes: Sequence[Node], number: int, shard: int = 0) -> str:
    """Return the configuration of a server. It allows backups to the folders of the tests."""
    own = nodes[number - 1]
    members = "".join(
        f"<shard><replica><host>127.0.0.1</host><port>{one.tcp}</port></replica></shard>" for one in nodes
    )
    return (
        "<clickhouse><listen_host>127.0.0.1</listen_host>"
        f"<http_port>{own.http}</http_port><tcp_port>{own.tcp}</tcp_port>"
        f"<macros><shard>{shard or number:02}</shard><replica>r1</replica></macros>"
        f"<remote_servers><{CLUSTER}><secret>between-nodes</secret>{members}</{CLUSTER}></remote_servers>"
        "<backups><allowed_path>/</allowed_path></backups></clickhouse>"
    )


@contextmanager
def each_node(nodes: Sequence[Node]) -> Iterator[None]:
    """Run each cluster statement of this process on all of its nodes, with plain tables instead of replicated ones."""
    command = HttpClient.command

    def everywhere(client: HttpClient, cmd: str, *arguments: Any, **options: Any) -> Any:
        if not _ON_CLUSTER.search(cmd):
            return command(client, cmd, *arguments, **options)
        plain = _REPLICATED.sub(r"\1(", _ON_CLUSTER.sub("", cmd))
        for other in nodes[1:]:
            peer = connect(parse_dsn(f"{other.dsn}?cluster={CLUSTER}"), client.database)
            assert isinstance(peer, HttpClient)
            command(peer, plain, *arguments, **options)
            peer.close()
        return command(client, plain, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpClient, "command", everywhere)
        yield

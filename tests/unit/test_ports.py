"""Tests of the ports of test servers: reserved for one process, and never given to a connection by the kernel."""

import socket
import subprocess
import sys
from pathlib import Path

from tests.support import clusters
from tests.support.clusters import free_ports

_ASK_FOR_EACH = """
from tests.support import clusters
clusters._PORTS = range({first}, {last} + 1)
print(*clusters.free_ports({count}))
"""


def test_a_port_is_given_once_and_lies_below_the_range_of_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(40)
    assert len(set(ports)) == 40
    assert max(ports) < first


def test_no_other_process_gets_a_port_before_its_server_starts() -> None:
    own = free_ports(5)
    first, last = min(own), max(own)
    count = min(200, (last - first + 1 - 5) // 2)
    program = _ASK_FOR_EACH.format(first=first, last=last, count=count)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not set(own) & set(map(int, done.stdout.split()))


def test_a_port_on_which_somebody_listens_is_not_given(monkeypatch) -> None:
    port, other = free_ports(2)
    monkeypatch.setattr(clusters, "_reserved", set())
    monkeypatch.setattr(clusters, "_PORTS", [port, other])
    with socket.create_server(("127.0.0.1", port)):
        assert free_ports(1) == [other]

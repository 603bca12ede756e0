"""Speed of network links, and bytes of InfiniBand and RoCE ports: /sys/class/net and /sys/class/infiniband."""

import re
from collections.abc import Iterator
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.collect.host.network import hardware
from jobmeter.model.sample import Sample

_RATE = re.compile(r"([\d.]+) Gb/sec")
_WORD = 4
"""Bytes that one unit of a port's data counters stands for."""
_DATA = {"port_rcv_data": "node.rdma.receive", "port_xmit_data": "node.rdma.transmit"}


class LinkCollector:
    """See ``Collector``. A driver may ask the card for each of these files, so they are not read at each turn.

    https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    """

    name = "host.links"
    metrics = ("node.network.speed", "node.rdma.speed", *_DATA.values())

    def __init__(self, place: NodeIdentity, sys_root: str = "/sys") -> None:
        self._place = place
        self._sys = sys_root

    def collect(self, now_ms: int) -> Samples:
        """See ``Collector.collect``. A link that is down has no speed."""
        return [
            Sample(self._place.of_node(metric, (("interface", name),)), now_ms, value)
            for metric, name, value in (*self._interfaces(), *self._ports())
        ]

    def _interfaces(self) -> Iterator[tuple[str, str, float]]:
        folder = f"{self._sys}/class/net"
        for name in hardware(_names(folder), self._sys):
            megabits = files.read_number(f"{folder}/{name}/speed") or -1
            if megabits > 0:
                yield "node.network.speed", name, megabits * 1e6 / 8

    def _ports(self) -> Iterator[tuple[str, str, float]]:
        folder = f"{self._sys}/class/infiniband"
        for device in _names(folder):
            for port in _names(f"{folder}/{device}/ports"):
                place = f"{folder}/{device}/ports/{port}"
                rate = _RATE.match(files.read_text(f"{place}/rate"))
                is_active = "ACTIVE" in files.read_text(f"{place}/state")
                if rate and is_active:
                    yield "node.rdma.speed", f"{device}:{port}", float(rate[1]) * 1e9 / 8
                for counter, metric in _DATA.items():
                    words = files.read_number(f"{place}/counters/{counter}")
                    if words is not None:
                        yield metric, f"{device}:{port}", float(words * _WORD)


def _names(folder: str) -> list[str]:
    try:
        return sorted(one.name for one in Path(folder).iterdir())
    except OSError:
        return []

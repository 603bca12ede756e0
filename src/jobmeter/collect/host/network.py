"""Bytes, packets, errors and drops of network interfaces, and TCP segments: /proc/net/dev and /proc/net/snmp."""

import os
from collections.abc import Iterable, Mapping

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample

_COLUMNS = (
    ("node.network.receive", "", 0),
    ("node.network.transmit", "", 8),
    ("node.network.packets", "receive", 1),
    ("node.network.packets", "transmit", 9),
    ("node.network.errors", "receive", 2),
    ("node.network.errors", "transmit", 10),
    ("node.network.dropped", "receive", 3),
    ("node.network.dropped", "transmit", 11),
)
_TCP = {b"OutSegs": "node.tcp.sent", b"RetransSegs": "node.tcp.retransmitted"}


def interfaces(text: bytes) -> Mapping[str, list[int]]:
    """Return the 16 numbers of each interface of a net/dev file except the loopback, by name."""
    found = {}
    for line in text.splitlines()[2:]:
        name, colon, numbers = line.partition(b":")
        if colon and name.strip() != b"lo":
            found[name.strip().decode()] = [int(word) for word in numbers.split()]
    return found


def hardware(names: Iterable[str], sys_root: str) -> list[str]:
    """The interfaces that have hardware behind them."""
    return [name for name in names if os.path.exists(f"{sys_root}/class/net/{name}/device")]  # noqa: PTH110


def tcp_segments(text: bytes) -> Mapping[str, int]:
    """The segments sent and sent again of a net/snmp file, by metric; empty if the file has none."""
    lines = [line.split() for line in text.splitlines() if line.startswith(b"Tcp:")]
    names, numbers = lines if len(lines) == 2 else ([], [])
    return {_TCP[name]: int(number) for name, number in zip(names, numbers, strict=False) if name in _TCP}


class NetworkCollector:
    """Collector of network traffic.

    If some interfaces have hardware behind them, only those are read: bridges, bonds and the host ends of containers
    repeat their bytes. Inside a container no interface has hardware, and all but the loopback are read.
    """

    name = "host.network"
    metrics = (*dict.fromkeys(metric for metric, _, _ in _COLUMNS), *_TCP.values())

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc", sys_root: str = "/sys") -> None:
        self._place = place
        # The first process is in the machine's own network namespace, even when this one is not.
        self._folders = (f"{proc_root}/1/net", f"{proc_root}/net")
        self._sys = sys_root

    def collect(self, now_ms: int) -> Samples:
        """Read the interfaces and the counters of TCP."""
        found = interfaces(files.read_required(*(f"{folder}/dev" for folder in self._folders)))
        snmp = next((text for one in self._folders if (text := files.read(f"{one}/snmp")) is not None), b"")
        samples: Samples = [
            Sample(self._place.of_node(metric), now_ms, float(value)) for metric, value in tcp_segments(snmp).items()
        ]
        for name in hardware(found, self._sys) or found:
            for metric, direction, column in _COLUMNS:
                labels = (*((("direction", direction),) if direction else ()), ("interface", name))
                samples.append(Sample(self._place.of_node(metric, labels), now_ms, float(found[name][column])))
        return samples

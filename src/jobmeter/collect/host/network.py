"""Bytes, errors and drops of network interfaces: /proc/net/dev."""

import os
from collections.abc import Mapping

from jobmeter.collect import files
from jobmeter.collect.base import Place, Samples
from jobmeter.model.sample import Sample

_COLUMNS = (
    ("node.network.receive", "", 0),
    ("node.network.transmit", "", 8),
    ("node.network.errors", "receive", 2),
    ("node.network.errors", "transmit", 10),
    ("node.network.dropped", "receive", 3),
    ("node.network.dropped", "transmit", 11),
)


def interfaces(text: bytes) -> Mapping[str, list[int]]:
    """Return the 16 numbers of each interface of a net/dev file except the loopback, by name."""
    found = {}
    for line in text.splitlines()[2:]:
        name, colon, numbers = line.partition(b":")
        if colon and name.strip() != b"lo":
            found[name.strip().decode()] = [int(word) for word in numbers.split()]
    return found


class NetworkCollector:
    """Collector of network traffic.

    If some interfaces have hardware behind them, only those are read: bridges, bonds and the host ends of containers
    repeat their bytes. Inside a container no interface has hardware, and all but the loopback are read.
    """

    name = "host.network"
    metrics = tuple(dict.fromkeys(metric for metric, _, _ in _COLUMNS))

    def __init__(self, place: Place, proc_root: str = "/proc", sys_root: str = "/sys") -> None:
        self._place = place
        # The first process is in the machine's own network namespace, even when this one is not.
        self._paths = (f"{proc_root}/1/net/dev", f"{proc_root}/net/dev")
        self._sys = sys_root

    def collect(self, now_ms: int) -> Samples:
        """Read the interfaces."""
        text = files.required(*self._paths)
        found = interfaces(text)
        hardware = [name for name in found if os.path.exists(f"{self._sys}/class/net/{name}/device")]  # noqa: PTH110
        samples: Samples = []
        for name in hardware or found:
            for metric, direction, column in _COLUMNS:
                labels = (*((("direction", direction),) if direction else ()), ("interface", name))
                samples.append(Sample(self._place.of_node(metric, labels), now_ms, float(found[name][column])))
        return samples

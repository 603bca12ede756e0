"""Bytes, packets, errors and drops of network interfaces, TCP segments, and RDMA ports: /proc/net and /sys/class."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.host.base import NodeCollector, NodeReading

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


def parse_interfaces(text: bytes) -> Mapping[str, list[int]]:
    """Return the 16 numbers of each interface of a net/dev file except the loopback, by name."""
    found = {}
    for line in text.splitlines()[2:]:
        name, colon, numbers = line.partition(b":")
        if colon and name.strip() != b"lo":
            found[name.strip().decode()] = [int(word) for word in numbers.split()]
    return found


def select_hardware(names: Iterable[str], sys_root: str) -> list[str]:
    """Return the interfaces that have hardware."""
    return [name for name in names if os.path.exists(f"{sys_root}/class/net/{name}/device")]  # noqa: PTH110


def parse_tcp_segments(text: bytes) -> Mapping[str, int]:
    """Return the segments sent and sent again in a net/snmp file, by metric; empty without them."""
    lines = [line.split() for line in text.splitlines() if line.startswith(b"Tcp:")]
    names, numbers = lines if len(lines) == 2 else ([], [])
    return {_TCP[name]: int(number) for name, number in zip(names, numbers, strict=False) if name in _TCP}


class NetworkCollector(NodeCollector):
    """Collector of network traffic.

    Interfaces without hardware (bridges, bonds, the host ends of containers) repeat the bytes of those with hardware,
    and are left out. Inside a container no interface has hardware, and all but the loopback are read.
    """

    name = "host.network"
    metrics = (*dict.fromkeys(metric for metric, _, _ in _COLUMNS), *_TCP.values())

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc", sys_root: str = "/sys") -> None:
        super().__init__(place, proc_root, sys_root)
        # The first process is in the machine's own network namespace, even when this one is not.
        self._folders = (f"{proc_root}/1/net", f"{proc_root}/net")

    def _read(self) -> Iterator[NodeReading]:
        found = parse_interfaces(files.read_required(*(f"{folder}/dev" for folder in self._folders)))
        snmp = next((text for one in self._folders if (text := files.read(f"{one}/snmp")) is not None), b"")
        for metric, value in parse_tcp_segments(snmp).items():
            yield metric, (), value
        for name in select_hardware(found, self._sys) or found:
            for metric, direction, column in _COLUMNS:
                labels = (*((("direction", direction),) if direction else ()), ("interface", name))
                yield metric, labels, found[name][column]


_RATE = re.compile(r"([\d.]+) Gb/sec")
_WORD = 4
"""Bytes that one unit of a port's data counters stands for."""
_DATA = {
    "node.rdma.receive": {
        "counters/port_rcv_data": _WORD,
        "hw_counters/rx_rdma_ucast_bytes": 1,  # ionic
        "hw_counters/rx_bytes": 1,  # bnxt_re
    },
    "node.rdma.transmit": {
        "counters/port_xmit_data": _WORD,
        "hw_counters/tx_rdma_ucast_bytes": 1,
        "hw_counters/tx_bytes": 1,
    },
}
"""Counters of data, with the bytes of one unit, by metric. The first counter that a driver has counts."""
_RECORDED = {"port_xmit_wait": "node.rdma.wait", "link_downed": "node.rdma.link.down"}
_KINDS = {
    "node.rdma.congestion": (
        *("np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets"),  # mlx5, bnxt_re
        *("rx_rdma_ecn_pkts", "rx_rdma_cnp_pkts", "tx_rdma_cnp_pkts"),  # ionic
    ),
    "node.rdma.retransmits": (
        *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "roce_adp_retrans"),
        *("tx_rdma_retx_pkts", "req_rx_pkt_seq_err"),
    ),
    "node.rdma.errors": ("symbol_error", "port_rcv_errors", "port_xmit_discards", "rx_roce_discards"),
}
"""Counters by metric. A driver has some of them, in the folder ``counters`` or ``hw_counters`` of a port."""
_FOLDERS = ("counters", "hw_counters")


class LinkCollector(NodeCollector):
    """Collector of links and ports. A driver may ask the card for each file, so not every turn reads them.

    https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    """

    name = "host.links"
    metrics = ("node.network.speed", "node.network.carrier", "node.rdma.speed", *_DATA, *_RECORDED.values(), *_KINDS)

    def _read(self) -> Iterator[NodeReading]:
        # A link that is down has no speed.
        for metric, name, value in (*self._read_interfaces(), *self._read_ports()):
            yield metric, (("interface", name),), value
        for metric, name, kind, value in self._read_kinds():
            yield metric, (("interface", name), ("kind", kind)), value

    def _read_interfaces(self) -> Iterator[tuple[str, str, float]]:
        folder = f"{self._sys}/class/net"
        for name in select_hardware(files.list_names(folder), self._sys):
            megabits = files.read_number(f"{folder}/{name}/speed") or -1
            if megabits > 0:
                yield "node.network.speed", name, megabits * 1e6 / 8
            changes = files.read_number(f"{folder}/{name}/carrier_changes")
            if changes is not None:
                yield "node.network.carrier", name, changes

    def _list_places(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the folder of each port."""
        folder = f"{self._sys}/class/infiniband"
        for device in files.list_names(folder):
            for port in files.list_names(f"{folder}/{device}/ports"):
                yield f"{device}:{port}", f"{folder}/{device}/ports/{port}"

    def _read_ports(self) -> Iterator[tuple[str, str, float]]:
        for name, place in self._list_places():
            rate = _RATE.match(files.read_text(f"{place}/rate"))
            is_active = "ACTIVE" in files.read_text(f"{place}/state")
            if rate and is_active:
                yield "node.rdma.speed", name, float(rate[1]) * 1e9 / 8
            for metric, units in _DATA.items():
                for counter, unit in units.items():
                    if (count := files.read_number(f"{place}/{counter}")) is not None:
                        yield metric, name, count * unit
                        break
            for counter, metric in _RECORDED.items():
                if (count := files.read_number(f"{place}/counters/{counter}")) is not None:
                    yield metric, name, count

    def _read_kinds(self) -> Iterator[tuple[str, str, str, float]]:
        """Yield metric, port, counter and value of the counters that a driver has."""
        for name, place in self._list_places():
            for metric, counters in _KINDS.items():
                for counter in counters:
                    read = (files.read_number(f"{place}/{folder}/{counter}") for folder in _FOLDERS)
                    value = next((number for number in read if number is not None), None)
                    if value is not None:
                        yield metric, name, counter, value

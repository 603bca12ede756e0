"""node_exporter, https://github.com/prometheus/node_exporter."""

import re
from collections.abc import Mapping, Sequence

from jobmeter.ingest.exporters.rule import Rule, Subject

_PLAIN = {
    "node_memory_MemTotal_bytes": "node.memory.total",
    "node_memory_MemAvailable_bytes": "node.memory.available",
    "node_memory_MemFree_bytes": "node.memory.free",
    "node_memory_Cached_bytes": "node.memory.cached",
    "node_memory_Dirty_bytes": "node.memory.dirty",
    "node_memory_Slab_bytes": "node.memory.slab",
    "node_memory_SwapTotal_bytes": "node.swap.total",
    "node_memory_SwapFree_bytes": "node.swap.free",
    "node_load1": "node.load1",
    "node_load5": "node.load5",
    "node_load15": "node.load15",
    "node_procs_running": "node.processes.running",
    "node_procs_blocked": "node.processes.blocked",
    "node_vmstat_pgmajfault": "node.memory.major.faults",
    "node_vmstat_oom_kill": "node.memory.oom.kills",
    "node_pressure_cpu_waiting_seconds_total": "node.pressure.cpu",
    "node_pressure_memory_waiting_seconds_total": "node.pressure.memory",
    "node_pressure_io_waiting_seconds_total": "node.pressure.io",
}

# Partitions, and devices built on others, would count the same bytes twice.
_WHOLE_DISK = {"device": re.compile(r"(?:[shv]d[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+|dasd[a-z]+)")}
_DISKS = {
    "node_disk_read_bytes_total": "node.disk.read",
    "node_disk_written_bytes_total": "node.disk.write",
    "node_disk_io_time_seconds_total": "node.disk.time",
}

# The same for the loopback, bridges, bonds, tunnels and the host ends of containers.
_WIRE = {
    "device": re.compile(
        r"(?!(?:lo|bond.*|br-.*|bridge.*|cali.*|cbr.*|cilium.*|cni.*|docker.*|dummy.*|flannel.*|gre.*|ipip.*|kube.*"
        r"|lxc.*|lxdbr.*|nodelocaldns|ovs.*|podman.*|sit.*|tap.*|team.*|tun.*|tunl.*|veth.*|virbr.*|vlan.*|vxlan.*"
        r"|wg.*|weave.*)$)[^.]+"
    )
}
_NETWORK = {
    "node_network_receive_bytes_total": ("node.network.receive", ()),
    "node_network_transmit_bytes_total": ("node.network.transmit", ()),
    "node_network_receive_errs_total": ("node.network.errors", (("direction", "receive"),)),
    "node_network_transmit_errs_total": ("node.network.errors", (("direction", "transmit"),)),
    "node_network_receive_drop_total": ("node.network.dropped", (("direction", "receive"),)),
    "node_network_transmit_drop_total": ("node.network.dropped", (("direction", "transmit"),)),
}
_FILESYSTEMS = {
    "node_filesystem_size_bytes": "node.filesystem.size",
    "node_filesystem_avail_bytes": "node.filesystem.available",
}

RULES: Mapping[str, Sequence[Rule]] = {
    "node_cpu_seconds_total": (
        Rule(metric="node.cpu.time", subject=Subject.NODE, keep={"mode": "mode", "cpu": "cpu"}),
    ),
    **{theirs: (Rule(metric=ours, subject=Subject.NODE),) for theirs, ours in _PLAIN.items()},
    **{
        theirs: (Rule(metric=ours, subject=Subject.NODE, keep={"device": "disk"}, only=_WHOLE_DISK),)
        for theirs, ours in _DISKS.items()
    },
    **{
        theirs: (Rule(metric=ours, subject=Subject.NODE, keep={"device": "interface"}, fixed=fixed, only=_WIRE),)
        for theirs, (ours, fixed) in _NETWORK.items()
    },
    **{
        theirs: (Rule(metric=ours, subject=Subject.NODE, keep={"mountpoint": "mount"}),)
        for theirs, ours in _FILESYSTEMS.items()
    },
}

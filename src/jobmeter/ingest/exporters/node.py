"""node_exporter, https://github.com/prometheus/node_exporter."""

import re

from jobmeter.ingest.rule import NOT_NEGATIVE, Rules, RuleTarget, TranslationRule, make_table

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
    "node_netstat_Tcp_OutSegs": "node.tcp.sent",
    "node_netstat_Tcp_RetransSegs": "node.tcp.retransmitted",
    "node_pressure_cpu_waiting_seconds_total": "node.pressure.cpu",
    "node_pressure_memory_waiting_seconds_total": "node.pressure.memory",
    "node_pressure_io_waiting_seconds_total": "node.pressure.io",
}

# Partitions, and devices built on other devices, would count the same bytes twice.
WHOLE_DISK = re.compile(r"(?:[shv]d[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+|dasd[a-z]+)")
_DISKS = {
    "node_disk_read_bytes_total": "node.disk.read",
    "node_disk_written_bytes_total": "node.disk.write",
    "node_disk_io_time_seconds_total": "node.disk.time",
}

# The loopback, bridges, bonds, tunnels and the host ends of containers would count the same bytes twice.
WIRE = re.compile(
    r"(?!(?:lo|bond.*|br-.*|bridge.*|cali.*|cbr.*|cilium.*|cni.*|docker.*|dummy.*|flannel.*|gre.*|ipip.*|kube.*"
    r"|lxc.*|lxdbr.*|nodelocaldns|ovs.*|podman.*|sit.*|tap.*|team.*|tun.*|tunl.*|veth.*|virbr.*|vlan.*|vxlan.*"
    r"|wg.*|weave.*)$)[^.]+"
)
_NETWORK = {
    "node_network_receive_bytes_total": "node.network.receive",
    "node_network_transmit_bytes_total": "node.network.transmit",
}
# The kernel says -1 Mbit/s of a link without a speed, and the exporter passes -125000 B/s on.
_SPEEDS = {"node_network_speed_bytes": "node.network.speed"}
_COUNTED = {
    "packets": "node.network.packets",
    "errs": "node.network.errors",
    "drop": "node.network.dropped",
}
_INTERFACE = {"device": "interface"}
_FILESYSTEMS = {
    "node_filesystem_size_bytes": "node.filesystem.size",
    "node_filesystem_avail_bytes": "node.filesystem.available",
}


def _make_counter_rules(metric: str, direction: str) -> tuple[TranslationRule, ...]:
    fixed = (("direction", direction),)
    return (
        TranslationRule(metric=metric, subject=RuleTarget.NODE, keep=_INTERFACE, fixed=fixed, only={"device": WIRE}),
    )


RULES: Rules = {
    **make_table(RuleTarget.NODE, {"node_cpu_seconds_total": "node.cpu.time"}, {"mode": "mode", "cpu": "cpu"}),
    **make_table(RuleTarget.NODE, _PLAIN),
    **make_table(RuleTarget.NODE, _DISKS, {"device": "disk"}, {"device": WHOLE_DISK}),
    **make_table(RuleTarget.NODE, _NETWORK, _INTERFACE, {"device": WIRE}),
    **make_table(RuleTarget.NODE, _SPEEDS, _INTERFACE, {"device": WIRE}, NOT_NEGATIVE),
    **{
        f"node_network_{direction}_{theirs}_total": _make_counter_rules(ours, direction)
        for direction in ("receive", "transmit")
        for theirs, ours in _COUNTED.items()
    },
    **make_table(RuleTarget.NODE, _FILESYSTEMS, {"mountpoint": "mount"}),
}

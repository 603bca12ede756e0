"""cAdvisor, as the kubelet serves it at ``/metrics/cadvisor``.

https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md
"""

import re

from jobmeter.ingest.rule import Rules, RuleTarget, make_table

# A pod's own group and its pause container repeat these values. Networks belong to the pod as a whole.
_CONTAINER = {"container": re.compile(r"(?!POD$).+")}
_ALL_CPUS = {**_CONTAINER, "cpu": re.compile(r"(?:total)?")}
_SPLIT = {"container": "container", "namespace": "namespace"}
_CONTAINERS = {
    "container_cpu_cfs_throttled_seconds_total": "cpu.throttled.time",
    "container_memory_working_set_bytes": "memory.usage",
    "container_memory_max_usage_bytes": "memory.peak",
    "container_oom_events_total": "memory.oom.kills",
    "container_processes": "process.count",
    "container_threads": "thread.count",
    "container_pressure_cpu_waiting_seconds_total": "pressure.cpu",
    "container_pressure_memory_waiting_seconds_total": "pressure.memory",
    "container_pressure_io_waiting_seconds_total": "pressure.io",
}

_DISKS = {"container_fs_reads_bytes_total": "disk.read", "container_fs_writes_bytes_total": "disk.write"}
_NETWORKS = {
    "container_network_receive_bytes_total": "network.receive",
    "container_network_transmit_bytes_total": "network.transmit",
}
_NOT_LOOPBACK = {"interface": re.compile("(?!lo$).*")}

RULES: Rules = {
    **make_table(RuleTarget.POD, {"container_cpu_usage_seconds_total": "cpu.time"}, _SPLIT, _ALL_CPUS),
    **make_table(RuleTarget.POD, _CONTAINERS, _SPLIT, _CONTAINER),
    **make_table(RuleTarget.POD, _DISKS, {**_SPLIT, "device": "disk"}, _CONTAINER),
    **make_table(RuleTarget.POD, _NETWORKS, {"interface": "interface", "namespace": "namespace"}, _NOT_LOOPBACK),
    **make_table(RuleTarget.NODE, {"machine_cpu_cores": "node.cpu.count"}),
}

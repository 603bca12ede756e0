"""cAdvisor, as the kubelet serves it at ``/metrics/cadvisor``.

https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md
"""

import re
from collections.abc import Mapping, Sequence

from jobmeter.ingest.exporters.rule import Rule, Subject

# A pod's own group and its pause container hold the same again; networks belong to the pod as a whole.
_CONTAINER = {"container": re.compile(r"(?!POD$).+")}
_ALL_CPUS = {**_CONTAINER, "cpu": re.compile(r"(?:total)?")}
_SPLIT = {"container": "container", "namespace": "namespace"}
_DISK = {**_SPLIT, "device": "disk"}
_NETWORK = {"interface": "interface", "namespace": "namespace"}

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

RULES: Mapping[str, Sequence[Rule]] = {
    "container_cpu_usage_seconds_total": (Rule(metric="cpu.time", subject=Subject.POD, keep=_SPLIT, only=_ALL_CPUS),),
    **{
        theirs: (Rule(metric=ours, subject=Subject.POD, keep=_SPLIT, only=_CONTAINER),)
        for theirs, ours in _CONTAINERS.items()
    },
    **{
        theirs: (Rule(metric=ours, subject=Subject.POD, keep=_DISK, only=_CONTAINER),)
        for theirs, ours in {
            "container_fs_reads_bytes_total": "disk.read",
            "container_fs_writes_bytes_total": "disk.write",
        }.items()
    },
    **{
        theirs: (Rule(metric=ours, subject=Subject.POD, keep=_NETWORK, only={"interface": re.compile("(?!lo$).*")}),)
        for theirs, ours in {
            "container_network_receive_bytes_total": "network.receive",
            "container_network_transmit_bytes_total": "network.transmit",
        }.items()
    },
    "machine_cpu_cores": (Rule(metric="node.cpu.count", subject=Subject.NODE),),
}

"""Containers and pods, as the Collector's receivers for the kubelet, the cluster and container engines measure them.

https://opentelemetry.io/docs/specs/semconv/system/container-metrics/ and
https://opentelemetry.io/docs/specs/semconv/system/k8s-metrics/

A metric of containers is not also read from the whole pod: that would count it twice.
"""

import re

from jobmeter.ingest.otel.attributes import DEVICE, DIRECTION, INTERFACE, MODE
from jobmeter.ingest.rule import Rules, RuleTarget, make_table, split

_SPLIT = {"container": "container", "namespace": "namespace"}
_CONTAINERS = {
    "container.memory.working_set": "memory.usage",
    "k8s.container.cpu.limit": "cpu.limit",
    "k8s.container.cpu_limit": "cpu.limit",
    "k8s.container.memory.limit": "memory.limit",
    "k8s.container.memory_limit": "memory.limit",
    "k8s.container.ephemeral_storage.limit": "storage.ephemeral.limit",
    "k8s.container.ephemeralstorage_limit": "storage.ephemeral.limit",
}
_DISKS = {"read": "disk.read", "write": "disk.write"}
_NETWORKS = split(
    RuleTarget.POD,
    DIRECTION,
    {"receive": "network.receive", "transmit": "network.transmit"},
    {INTERFACE: "interface", "namespace": "namespace"},
    {INTERFACE: re.compile("(?!lo$).*")},
)

RULES: Rules = {
    **make_table(RuleTarget.POD, {"container.cpu.time": "cpu.time"}, {**_SPLIT, MODE: "mode"}),
    **make_table(RuleTarget.POD, _CONTAINERS, _SPLIT),
    **make_table(RuleTarget.POD, {"k8s.pod.filesystem.usage": "storage.ephemeral.usage"}, {"namespace": "namespace"}),
    "container.disk.io": split(RuleTarget.POD, DIRECTION, _DISKS, {**_SPLIT, DEVICE: "disk"}),
    "container.network.io": _NETWORKS,
    "k8s.pod.network.io": _NETWORKS,
}

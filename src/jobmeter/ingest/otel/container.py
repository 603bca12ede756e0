"""Containers and pods, as the Collector's receivers for the kubelet, the cluster and container engines measure them.

https://opentelemetry.io/docs/specs/semconv/system/container-metrics/ and
https://opentelemetry.io/docs/specs/semconv/system/k8s-metrics/

What is measured for a container is not taken again from its pod as a whole: that would count it twice.
"""

import re
from collections.abc import Mapping, Sequence

from jobmeter.ingest.otel.rule import DEVICE, DIRECTION, INTERFACE, MODE, Rule, Subject

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
_NETWORK = {"receive": "network.receive", "transmit": "network.transmit"}
_NOT_LOOPBACK = re.compile("(?!lo$).*")

_NETWORKS = tuple(
    Rule(
        metric=ours,
        subject=Subject.REPLICA,
        keep={INTERFACE: "interface", "namespace": "namespace"},
        only={DIRECTION: re.compile(direction), INTERFACE: _NOT_LOOPBACK},
    )
    for direction, ours in _NETWORK.items()
)

RULES: Mapping[str, Sequence[Rule]] = {
    "container.cpu.time": (Rule(metric="cpu.time", subject=Subject.REPLICA, keep={**_SPLIT, MODE: "mode"}),),
    **{theirs: (Rule(metric=ours, subject=Subject.REPLICA, keep=_SPLIT),) for theirs, ours in _CONTAINERS.items()},
    "container.disk.io": tuple(
        Rule(
            metric=ours,
            subject=Subject.REPLICA,
            keep={**_SPLIT, DEVICE: "disk"},
            only={DIRECTION: re.compile(direction)},
        )
        for direction, ours in _DISKS.items()
    ),
    "container.network.io": _NETWORKS,
    "k8s.pod.network.io": _NETWORKS,
    "k8s.pod.filesystem.usage": (
        Rule(metric="storage.ephemeral.usage", subject=Subject.REPLICA, keep={"namespace": "namespace"}),
    ),
}

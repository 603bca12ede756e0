"""kube-state-metrics, https://github.com/kubernetes/kube-state-metrics."""

import re
from collections.abc import Mapping, Sequence

from jobmeter.ingest.exporters.rule import Rule, Subject

_SPLIT = {"container": "container", "namespace": "namespace"}
_LIMITS = {"cpu": "cpu.limit", "memory": "memory.limit", "ephemeral_storage": "storage.ephemeral.limit"}

RULES: Mapping[str, Sequence[Rule]] = {
    "kube_pod_container_resource_limits": tuple(
        Rule(metric=ours, subject=Subject.REPORTED_POD, keep=_SPLIT, only={"resource": re.compile(resource)})
        for resource, ours in _LIMITS.items()
    ),
    "kube_node_status_capacity": (
        Rule(metric="node.cpu.count", subject=Subject.REPORTED_NODE, only={"resource": re.compile("cpu")}),
    ),
}

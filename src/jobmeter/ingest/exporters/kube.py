"""kube-state-metrics, https://github.com/kubernetes/kube-state-metrics."""

from jobmeter.ingest.rule import Rules, RuleTarget, split

RULES: Rules = {
    "kube_pod_container_resource_limits": split(
        RuleTarget.REPORTED_POD,
        "resource",
        {"cpu": "cpu.limit", "memory": "memory.limit", "ephemeral_storage": "storage.ephemeral.limit"},
        {"container": "container", "namespace": "namespace"},
    ),
    "kube_node_status_capacity": split(RuleTarget.REPORTED_NODE, "resource", {"cpu": "node.cpu.count"}),
}

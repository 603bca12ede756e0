"""Alibaba Cloud eflo-controller 2022-12-15: nodes, their logs, and diagnostic tasks. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.common.product import Product, never
from jobmeter.dialects.alibaba.eflo.diagnostics import (
    create_diagnostic_task,
    describe_diagnostic_result,
    list_diagnostic_results,
)
from jobmeter.dialects.alibaba.eflo.nodes import describe_node, list_cluster_nodes
from jobmeter.dialects.alibaba.eflo.syslogs import list_syslogs

EFLO = Product(
    name="eflo",
    title="Alibaba Cloud Lingjun (eflo-controller), API version 2022-12-15",
    version="2022-12-15",
    url_names=("eflo-controller", "eflo"),
    operations=(
        create_diagnostic_task,
        list_diagnostic_results,
        describe_diagnostic_result,
        list_syslogs,
        list_cluster_nodes,
        describe_node,
    ),
    gaps=(
        never(
            "Clusters, nodes, images, networks: their administration, and sessions",
            "Jobmeter runs no machines; nodes are known by their agents, and nothing has to be created.",
        ),
        never(
            "Images, machine types, networks, disks, zones, serial numbers, node groups and tags of a node",
            "They are not reported: they are left out of the answer, or empty lists.",
        ),
        never(
            "`Ip`, `Domain`, `Sn`, `TagPackId`, `TagUserDefinedId` of a line",
            "An agent does not know them; they are left out of the answer.",
        ),
        never(
            "ListFaultReports, DescribeFaultReport, StopNodeDiagnostic", "They are about repairs that the vendor makes."
        ),
    ),
    fields={
        "node": "NodeId",
        "nodes": "NodeIds",
        "cluster": "ClusterId",
        "task": "DiagnosticId",
        "query": "Query",
        "start": "StartTime",
        "end": "EndTime",
        "logs": "AiJobLogInfo",
        "after": "NextToken",
        "type": "DiagnosticType",
        "project": "ClusterId",
    },
    not_found=dict.fromkeys(("node", "cluster", "task", "job"), "ResourceNotFound"),
)

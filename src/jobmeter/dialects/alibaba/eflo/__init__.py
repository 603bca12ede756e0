"""Alibaba Cloud eflo-controller 2022-12-15: nodes, their logs, and diagnostic tasks. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.common.product import Product, exclude
from jobmeter.dialects.base.request import load_operations

EFLO = Product(
    name="eflo",
    title="Alibaba Cloud Lingjun (eflo-controller), API version 2022-12-15",
    version="2022-12-15",
    url_names=("eflo-controller", "eflo"),
    operations=load_operations(f"{__name__}.operations"),
    gaps=(
        exclude(
            "Clusters, nodes, images, networks: their administration, and sessions",
            "Jobmeter runs no machines; nodes are known by their agents, and nothing has to be created.",
        ),
        exclude(
            "Images, machine types, networks, disks, zones, serial numbers, node groups and tags of a node",
            "They are not reported: they are left out of the answer, or empty lists.",
        ),
        exclude(
            "`Ip`, `Domain`, `Sn`, `TagPackId`, `TagUserDefinedId` of a line",
            "An agent does not know them; they are left out of the answer.",
        ),
        exclude(
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

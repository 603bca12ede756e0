"""Alibaba Cloud PaiStudio 2022-01-12: resource groups, quotas, nodes, training jobs. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.common.product import Product, exclude
from jobmeter.dialects.alibaba.pai_studio.names import NAME
from jobmeter.dialects.alibaba.pai_studio.view import view_call
from jobmeter.dialects.base import Gap
from jobmeter.dialects.base.request import load_operations

PAI_STUDIO = Product(
    name=NAME,
    title="Alibaba Cloud PaiStudio, API version 2022-01-12",
    version="2022-01-12",
    url_names=("PaiStudio",),
    view_call=view_call,
    operations=load_operations(f"{__name__}.operations"),
    gaps=(
        exclude(
            "GetNodeMetrics with `Verbose=true`",
            "It adds labels, for which the answer of the vendor's SDKs has no field; it is accepted and changes"
            " nothing.",
        ),
        exclude(
            "The data structure Event (trigger source, type, content)",
            "No operation of the vendor's returns it; `GET /api/jobmeter/v1/events` has the same fields.",
        ),
        exclude(
            "ListTrainingJobMetrics and GetTrainingJobLatestMetrics of samples that have expired",
            "They return single samples; roll-ups have none. GetTrainingJobLatestMetrics falls back on the hours.",
        ),
        Gap(
            "Training jobs: CreateTrainingJob, StopTrainingJob, GetTrainingJob and what belongs to them",
            "Jobs are registered through Jobmeter's own API, PAI-DLC's CreateJob or an agent.",
        ),
        exclude(
            "Resource groups, machine groups, quotas: their administration",
            "A resource group is what job and node records name; nothing has to be created.",
        ),
        exclude(
            "Orders, prices, networks, disks, zones and drivers of groups, machines and quotas; sub-quotas; labels",
            "They are not reported: they are left out of the answers, and a filter on them selects nothing.",
        ),
        exclude("Algorithms, components, experiments, services, images", "They are not about metrics."),
    ),
    fields={
        "job": "TrainingJobId",
        "job_id": "TrainingJobId",
        "metric": "MetricType",
        "metrics": "MetricType",
        "start": "StartTime",
        "end": "EndTime",
        "step": "TimeStep",
        "range": "StartTime",
        "offset": "PageNumber",
        "limit": "PageSize",
        "sort": "SortBy",
    },
    not_found={
        "job": "InvalidTrainingJobId.NotFound",
        "instance": "InvalidInstanceId.NotFound",
        "resource_group": "InvalidResourceGroupID.NotFound",
        "workspace": "InvalidWorkspaceId.NotFound",
    },
)

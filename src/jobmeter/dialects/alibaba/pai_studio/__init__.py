"""Alibaba Cloud PaiStudio 2022-01-12: resource groups, quotas, nodes, training jobs. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.common.product import Product, never
from jobmeter.dialects.alibaba.pai_studio.groups import get_resource_group, list_resource_groups
from jobmeter.dialects.alibaba.pai_studio.job_list import list_training_jobs
from jobmeter.dialects.alibaba.pai_studio.machines import list_resource_group_machine_groups
from jobmeter.dialects.alibaba.pai_studio.names import NAME
from jobmeter.dialects.alibaba.pai_studio.nodes import list_nodes
from jobmeter.dialects.alibaba.pai_studio.quotas import list_quotas
from jobmeter.dialects.alibaba.pai_studio.resource_groups import (
    get_node_metrics,
    get_resource_group_request,
    get_resource_group_total,
    get_user_view_metrics,
)
from jobmeter.dialects.alibaba.pai_studio.training_jobs import (
    get_training_job_latest_metrics,
    list_training_job_events,
    list_training_job_instance_events,
    list_training_job_instance_metrics,
    list_training_job_logs,
    list_training_job_metrics,
)
from jobmeter.dialects.alibaba.pai_studio.view import view_call
from jobmeter.dialects.base import Gap

PAI_STUDIO = Product(
    name=NAME,
    title="Alibaba Cloud PaiStudio, API version 2022-01-12",
    version="2022-01-12",
    url_names=("PaiStudio",),
    view_call=view_call,
    operations=(
        get_user_view_metrics,
        get_node_metrics,
        get_resource_group_total,
        get_resource_group_request,
        list_resource_groups,
        get_resource_group,
        list_resource_group_machine_groups,
        list_quotas,
        list_nodes,
        list_training_jobs,
        list_training_job_metrics,
        get_training_job_latest_metrics,
        list_training_job_instance_metrics,
        list_training_job_events,
        list_training_job_instance_events,
        list_training_job_logs,
    ),
    gaps=(
        never(
            "GetNodeMetrics with `Verbose=true`",
            "It adds labels, for which the answer of the vendor's SDKs has no field; it is accepted and changes"
            " nothing.",
        ),
        never(
            "The data structure Event (trigger source, type, content)",
            "No operation of the vendor's returns it; `GET /api/jobmeter/v1/events` has the same fields.",
        ),
        never(
            "ListTrainingJobMetrics and GetTrainingJobLatestMetrics of samples that have expired",
            "They return single samples; roll-ups have none. GetTrainingJobLatestMetrics falls back on the hours.",
        ),
        Gap(
            "Training jobs: CreateTrainingJob, StopTrainingJob, GetTrainingJob and what belongs to them",
            "Jobs are registered through Jobmeter's own API, PAI-DLC's CreateJob or an agent.",
        ),
        never(
            "Resource groups, machine groups, quotas: their administration",
            "A resource group is what job and node records name; nothing has to be created.",
        ),
        never(
            "Orders, prices, networks, disks, zones and drivers of groups, machines and quotas; sub-quotas; labels",
            "They are not reported: they are left out of the answers, and a filter on them selects nothing.",
        ),
        never("Algorithms, components, experiments, services, images", "They are not about metrics."),
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

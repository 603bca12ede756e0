"""Alibaba Cloud PAI-DLC 2020-12-03: the jobs of Deep Learning Containers. Sources and gaps: SPEC.md."""

from jobmeter.access.signatures import ALIBABA, SHARE
from jobmeter.dialects.alibaba.common.product import Product, exclude
from jobmeter.dialects.alibaba.pai_dlc.requests import NAME
from jobmeter.dialects.alibaba.pai_dlc.view import view_call
from jobmeter.dialects.base import Gap
from jobmeter.dialects.base.request import load_operations

PAI_DLC = Product(
    name=NAME,
    title="Alibaba Cloud PAI-DLC, API version 2020-12-03",
    version="2020-12-03",
    url_names=("pai-dlc",),
    schemes=(*ALIBABA, SHARE),
    view_call=view_call,
    operations=load_operations(f"{__name__}.operations"),
    gaps=(
        exclude("GetToken with `TargetType=tensorboard`", "Jobmeter serves no TensorBoard."),
        exclude(
            "GetToken's `TokenSettings.*`", "They concern accounts of the vendor; they are accepted and change nothing."
        ),
        exclude(
            "CreateJob, StopJob, UpdateJob as orders",
            "They change what is known of a job. Jobmeter starts, ends and moves no process.",
        ),
        exclude("GetDashboard, GetRayDashboard, GetWebTerminal", "They hand out addresses of the vendor's own pages."),
        exclude(
            "Tensorboards, job templates, Ray history servers, signals, `TagResources`, `UntagResources`",
            "They manage other things of the vendor than jobs and their measurements.",
        ),
        Gap(
            "ListJobs' `TimeRangeField=GmtModifiedTime`, further fields of `NumericRangeField`",
            "No document names the values of these two; the table has the accepted values.",
        ),
        exclude(
            "ListEcsSpecs' `IsAvailable`, prices, stock and drivers",
            "Jobmeter offers no machines: the types are those that jobs name.",
        ),
        exclude("GetPodLogs' `DownloadToFile`", "The lines come in the answer; no file is made."),
        exclude(
            "GetJob's `JobReplicaStatuses`, and `RestartRecord` unless the job's record holds one",
            "They are about the vendor's own scheduler.",
        ),
        Gap("Pod addresses (`Ip`, `PodIps`), sidecar containers", "Nothing reports them: they are empty."),
    ),
    fields={
        "job": "JobId",
        "job_id": "JobId",
        "metric": "MetricType",
        "metrics": "MetricType",
        "start": "StartTime",
        "end": "EndTime",
        "step": "TimeStep",
        "range": "StartTime",
        "name": "DisplayName",
        "type": "JobType",
        "command": "UserCommand",
        "workspace": "WorkspaceId",
        "resource_group": "ResourceId",
        "labels": "Tags",
        "conditions": "Tags",
    },
    not_found={
        "job": "InvalidJobId.NotFound",
        "pod": "InvalidPodId.NotFound",
        "metric": "InvalidMetricName.NotFound",
        "namespace": "InvalidNamespace.NotFound",
    },
)

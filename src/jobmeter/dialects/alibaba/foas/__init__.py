"""Alibaba Cloud Realtime Compute (Flink), API foas 2018-11-11: metrics of streaming and batch jobs. See SPEC.md."""

from jobmeter.dialects.alibaba.common.product import Product, exclude
from jobmeter.dialects.alibaba.foas.names import INSTANCE, JOB, NAME, RUNNING
from jobmeter.dialects.alibaba.foas.view import view_call
from jobmeter.dialects.base import Gap
from jobmeter.dialects.base.request import load_operations

FOAS = Product(
    name=NAME,
    title="Alibaba Cloud Realtime Compute for Flink, API foas, version 2018-11-11",
    version="2018-11-11",
    url_names=(NAME,),
    view_call=view_call,
    operations=load_operations(f"{__name__}.operations"),
    gaps=(
        exclude(
            "Clusters, queues, folders, packages and plans (`CreateCluster`, `CreateQueue`, `GetRawPlanJson`, ...)",
            "They concern the vendor's own service, which runs the jobs; Jobmeter measures jobs that something else"
            " runs.",
        ),
        exclude(
            "`ModifyInstanceState` to `PAUSED`, or back to `RUNNING`",
            "Jobmeter does not run jobs. `TERMINATED` is noted.",
        ),
        Gap(
            "Counters, metrics and plan of a vertex, the failed and running checkpoints, the task of an exception",
            "They are in the job manager's own answers; Jobmeter gets no reports of them, and leaves them out.",
        ),
        Gap("`UpdateJob`, `CommitJob`, `OfflineJob`, `DeleteJob`", "A record is changed through Jobmeter's own API."),
        exclude(
            "`niagara_seek.meam`, `input.tt.readLatency` and `Status.JVM.Memory.Process.rss` of a real Flink",
            "Flink has no such measurement; the nearest are `rocksdb_seek.mean`, `fetched_delay` and an agent's "
            "`memory.usage`. Points that were imported are answered.",
        ),
        exclude(
            "`percentiles` and `tsuids` in a query of `metricJson`",
            "They are refused: histograms are not stored, and no answer of these operations has ids of series.",
        ),
    ),
    fields={
        "job": "jobName",
        "job_id": "jobName",
        "name": "jobName",
        "project": "projectName",
        "cluster": "clusterId",
        "node": "clusterId",
        "metric": "metric",
        "start": "start",
        "end": "end",
        "step": "granularity",
        "range": "start",
    },
    not_found={
        "job": "JobNotFound",
        JOB: "JobNotFound",
        INSTANCE: "InstanceNotFound",
        RUNNING: "InstanceNotRunning",
        "node": "ClusterNotFound",
    },
)

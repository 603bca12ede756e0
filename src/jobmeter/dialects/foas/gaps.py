"""Parts of foas that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "Clusters, queues, folders, packages and plans (`CreateCluster`, `CreateQueue`, `GetRawPlanJson`, ...)",
        "They concern the vendor's own service, which runs the jobs; Jobmeter measures jobs that something else runs.",
        GapStatus.NEVER,
    ),
    Gap(
        "`ModifyInstanceState` to `PAUSED`, or back to `RUNNING`",
        "Jobmeter does not run jobs. `TERMINATED` is noted.",
        GapStatus.NEVER,
    ),
    Gap(
        "`GetInstanceDetail`, `GetInstanceConfig`, `GetInstanceCheckpoint`, `GetInstanceExceptions`, "
        "`GetInstanceResource`",
        "They forward the JobManager's own REST interface for a running job.",
    ),
    Gap("`UpdateJob`, `CommitJob`, `OfflineJob`, `DeleteJob`", "A record is changed through Jobmeter's own API."),
    Gap(
        "`niagara_seek.meam`, `input.tt.readLatency` and `Status.JVM.Memory.Process.rss` of a real Flink",
        "Flink has no such measurement; the nearest are `rocksdb_seek.mean`, `fetched_delay` and an agent's "
        "`memory.usage`. Points that were imported are answered.",
        GapStatus.NEVER,
    ),
    Gap(
        "`filters`, `rate`, `percentiles`, `explicitTags` and `tsuids` in a query of `metricJson`",
        "The document does not name them; they are refused, so that no answer differs in meaning from the request.",
    ),
)

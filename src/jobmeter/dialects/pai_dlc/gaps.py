"""Parts of PAI-DLC that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap("GetToken with `TargetType=tensorboard`", "Jobmeter serves no TensorBoard.", GapStatus.NEVER),
    Gap(
        "GetToken's `TokenSettings.*`",
        "They concern accounts of the vendor; they are accepted and change nothing.",
        GapStatus.NEVER,
    ),
    Gap(
        "CreateJob, StopJob, UpdateJob as orders",
        "They change what is known of a job. Jobmeter starts, ends and moves no process.",
        GapStatus.NEVER,
    ),
    Gap(
        "GetDashboard, GetRayDashboard, GetWebTerminal",
        "They hand out addresses of the vendor's own pages.",
        GapStatus.NEVER,
    ),
    Gap(
        "Tensorboards, job templates, Ray history servers, signals, `ListEcsSpecs`, `TagResources`, `UntagResources`",
        "They manage other things of the vendor than jobs and their measurements.",
        GapStatus.NEVER,
    ),
    Gap(
        "ListJobs' `TimeRangeField=GmtModifiedTime`, further fields of `NumericRangeField`",
        "No document names the values of these two; those that are taken are in the table.",
    ),
    Gap("GetPodLogs' `DownloadToFile`", "The lines come in the answer; no file is made.", GapStatus.NEVER),
    Gap(
        "GetJob's `JobReplicaStatuses`, and `RestartRecord` unless the job's record holds one",
        "They are about the vendor's own scheduler.",
        GapStatus.NEVER,
    ),
    Gap(
        "Pod addresses (`Ip`, `PodIps`), sidecar containers",
        "Nothing reports them: they are empty.",
    ),
)

"""Parts of ModelArts that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "CreateTrainingJob",
        "Jobmeter starts no jobs; `jobmeter run`, an agent or a job record registers one.",
        GapStatus.NEVER,
    ),
    Gap("BatchDeleteTrainingJob", "DeleteTrainingJob deletes one by one."),
    Gap(
        "ShowTrainingJobRoutePlan, ShowTrainingQuotas, ModifyTrainingQuotas",
        "Networks and quotas belong to the vendor's cloud.",
        GapStatus.NEVER,
    ),
    Gap(
        "ShowFtDetail, ListFtArtifacts, PublishFtArtifacts",
        "The assets of the vendor's model gallery exist only in its cloud.",
        GapStatus.NEVER,
    ),
    Gap(
        "Tags under `/modelarts-training-job`",
        "A job's labels are set by its record; ListTrainingJobs filters by them.",
    ),
    Gap("Training experiments, algorithms, workflows", "Jobmeter stores none of these.", GapStatus.NEVER),
    Gap("ShowPoolMonitor, ShowPoolRuntimeMetrics", "They are about resource pools; this dialect is about jobs."),
    Gap("Jobs of API version 1 (`/v1/{project_id}/training-jobs`)", "The vendor withdrew them.", GapStatus.NEVER),
    Gap(
        "`POST /v3/auth/tokens` of IAM",
        "Jobmeter stores no passwords; the token of `jobmeter key create` is an X-Auth-Token.",
        GapStatus.NEVER,
    ),
    Gap("`X-Language: zh-cn`", "Texts are in English; the header is accepted.", GapStatus.NEVER),
)

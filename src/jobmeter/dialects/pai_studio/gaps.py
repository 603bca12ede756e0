"""Parts of PaiStudio that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "GetNodeMetrics with `Verbose=true`",
        "It adds labels, for which the answer of the vendor's SDKs has no field; it is accepted and changes nothing.",
        GapStatus.NEVER,
    ),
    Gap(
        "The data structure Event (trigger source, type, content)",
        "No operation of the vendor's returns it; `GET /api/jobmeter/v1/events` has the same fields.",
        GapStatus.NEVER,
    ),
    Gap(
        "ListTrainingJobMetrics and GetTrainingJobLatestMetrics of samples that have expired",
        "They return single samples; roll-ups have none. GetTrainingJobLatestMetrics falls back on the hours.",
        GapStatus.NEVER,
    ),
    Gap(
        "Training jobs: CreateTrainingJob, StopTrainingJob, ListTrainingJobs, GetTrainingJob and what belongs to them",
        "Jobs are registered through Jobmeter's own API, PAI-DLC's CreateJob or an agent.",
    ),
    Gap(
        "Resource groups, machine groups, quotas: their administration",
        "A resource group is what job and node records name; nothing has to be created.",
        GapStatus.NEVER,
    ),
    Gap("Algorithms, components, experiments, services, images", "They are not about metrics.", GapStatus.NEVER),
)

"""Parts of EAS that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "Services, instances, their events, logs, diagnoses and scaling",
        "Jobmeter measures jobs and runs no services.",
        GapStatus.NEVER,
    ),
    Gap(
        "Resource groups and their machines: their administration",
        "A resource group is what job and node records name; nothing has to be created.",
        GapStatus.NEVER,
    ),
)

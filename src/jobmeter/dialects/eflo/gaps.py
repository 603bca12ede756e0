"""Parts of eflo-controller that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "Clusters, nodes, images, networks: their administration, and sessions",
        "Jobmeter runs no machines; nodes are known by their agents, and nothing has to be created.",
        GapStatus.NEVER,
    ),
    Gap(
        "`Ip`, `Domain`, `Sn`, `TagPackId`, `TagUserDefinedId` of a line",
        "An agent does not know them; they are left out of the answer.",
        GapStatus.NEVER,
    ),
    Gap(
        "ListFaultReports, DescribeFaultReport, StopNodeDiagnostic",
        "They are about repairs that the vendor makes.",
        GapStatus.NEVER,
    ),
)

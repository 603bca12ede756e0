"""EAS's words, and parameters that its operations share."""

from collections.abc import Iterable
from types import MappingProxyType

from jobmeter.dialects.alibaba.common.operation import in_query
from jobmeter.dialects.alibaba.common.statuses import Statuses
from jobmeter.model.job import JobState
from jobmeter.model.order import natural

NAME = "eas"
DEFAULT_PAGE, MAX_PAGE = 100, 1_000
READY, UNAVAILABLE = "ResourceReady", "ResourceUnavailable"
"""Statuses of a resource group and of its shipper. A shipper is unavailable while its sink accepts no lines."""
NO_CLUSTER = "default"
"""Placeholder for an unnamed cluster: paths need a text there, and any text means this server."""
PAGES = (
    in_query("PageNumber", "From 1, the default."),
    in_query("PageSize", f"1 to {MAX_PAGE}. Default: {DEFAULT_PAGE}."),
)
STATUS = Statuses(
    dialect=NAME,
    meanings=MappingProxyType(
        {
            **dict.fromkeys(
                ("Creating", "Waiting", "Pending", "Committing", "Cloning", "Developing", "Starting"), JobState.QUEUED
            ),
            **dict.fromkeys(("Running", "Updating", "HotUpdate", "Scaling", "Stopping", "Deleting"), JobState.RUNNING),
            "Complete": JobState.SUCCEEDED,
            "Failed": JobState.FAILED,
            **dict.fromkeys(("Stopped", "Deleted", "DeleteFailed"), JobState.STOPPED),
        }
    ),
    words=MappingProxyType(
        {
            JobState.QUEUED: "Waiting",
            JobState.RUNNING: "Running",
            JobState.SUCCEEDED: "Complete",
            JobState.FAILED: "Failed",
            **dict.fromkeys((JobState.STOPPED, JobState.UNKNOWN), "Stopped"),
        }
    ),
)


def cluster_of(clusters: Iterable[str]) -> str:
    """Return the first of some clusters, or ``NO_CLUSTER``: a text for paths."""
    return min(filter(None, clusters), key=natural, default=NO_CLUSTER)

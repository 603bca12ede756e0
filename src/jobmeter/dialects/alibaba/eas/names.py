"""EAS's words, and its requests for a page."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from jobmeter.dialects.alibaba.common.operation import ORDER, AlibabaRequest
from jobmeter.dialects.alibaba.common.statuses import Statuses
from jobmeter.model.job import JobState
from jobmeter.model.order import make_natural_key

NAME = "eas"
READY, UNAVAILABLE = "ResourceReady", "ResourceUnavailable"
"""Statuses of a resource group and of its shipper. A shipper is unavailable while its sink accepts no lines."""
NO_CLUSTER = "default"
"""Placeholder for an unnamed cluster: paths need a text there, and any text means this server."""
STATUS = Statuses(
    dialect=NAME,
    meanings={
        **dict.fromkeys(
            ("Creating", "Waiting", "Pending", "Committing", "Cloning", "Developing", "Starting"), JobState.QUEUED
        ),
        **dict.fromkeys(("Running", "Updating", "HotUpdate", "Scaling", "Stopping", "Deleting"), JobState.RUNNING),
        "Complete": JobState.SUCCEEDED,
        "Failed": JobState.FAILED,
        **dict.fromkeys(("Stopped", "Deleted", "DeleteFailed"), JobState.STOPPED),
    },
    words={
        JobState.QUEUED: "Waiting",
        JobState.RUNNING: "Running",
        JobState.SUCCEEDED: "Complete",
        JobState.FAILED: "Failed",
        **dict.fromkeys((JobState.STOPPED, JobState.UNKNOWN), "Stopped"),
    },
)


class EasPageRequest(AlibabaRequest, frozen=True, kw_only=True):
    """A request for a page of a list, in descending order by default."""

    page_number: Annotated[int, "From 1.", Meta(ge=1, le=10**6)] = 1
    page_size: Annotated[int, Meta(ge=1, le=1_000)] = 100
    order: Annotated[bool, ORDER] = True

    @property
    def page(self) -> tuple[int, int]:
        """The offset of the page, and its size."""
        return (self.page_number - 1) * self.page_size, self.page_size


def choose_cluster(clusters: Iterable[str]) -> str:
    """Return the first of some clusters, or ``NO_CLUSTER``: a text for paths."""
    return min(filter(None, clusters), key=make_natural_key, default=NO_CLUSTER)

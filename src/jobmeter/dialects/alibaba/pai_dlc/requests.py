"""Requests about a job and its pods."""

from typing import Annotated

from jobmeter.dialects.alibaba.common.operation import TIME, AlibabaRequest, Lookup
from jobmeter.dialects.base import ask
from jobmeter.model.catalog import map_dialect_names
from jobmeter.model.job import JobView
from jobmeter.model.time import DAY
from jobmeter.query.request import JobQuestion, JobRef

NAME = "pai-dlc"

METRICS = map_dialect_names(NAME)
"""The metric of each MetricType."""


WEEK = 7 * DAY
TIME_TEXT = "UTC, ISO 8601 (`2020-11-08T16:00:00Z`)."
Token = Annotated[str, "A share token (GetToken), used if the call has no other credential."]


WeekStart = Annotated[int | None, f"{TIME_TEXT} Default: seven days ago.", TIME]
WeekEnd = Annotated[int | None, f"{TIME_TEXT} Included. Default: now.", TIME]


def find_job_view(job: str) -> Lookup[JobView]:
    """Return the job of that id."""
    return (yield from ask(JobQuestion(JobRef(job))))


class DlcJobRequest(AlibabaRequest, frozen=True, kw_only=True):
    """A request about a job."""

    job_id: Annotated[str, "The job."]

    @property
    def ref(self) -> JobRef:
        """The job."""
        return JobRef(self.job_id)

    def find_view(self) -> Lookup[JobView]:
        """Return the job."""
        return find_job_view(self.job_id)


class PodRequest(DlcJobRequest, frozen=True, kw_only=True):
    """A request about a pod of a job."""

    pod_id: Annotated[str, "The pod, as GetJob names it."]
    pod_uid: Annotated[str, "One attempt of the pod, as GetJob names it. Default: all of them."] = ""

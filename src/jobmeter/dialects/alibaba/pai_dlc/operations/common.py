"""Shared by operations: the job of a call, and parameters."""

from jobmeter.dialects.alibaba.common.operation import Arguments, Lookup, in_path, in_query
from jobmeter.dialects.base import execute
from jobmeter.model.job import JobView
from jobmeter.model.time import DAY
from jobmeter.query.request import JobQuestion, JobRef

WEEK = 7 * DAY
TIME = "UTC, ISO 8601 (`2020-11-08T16:00:00Z`)."
JOB = in_path("JobId", "The job.")
POD = (
    in_path("PodId", "The pod, as GetJob names it."),
    in_query("PodUid", "One attempt of the pod, as GetJob names it. Default: all of them."),
)
LAST_WEEK = (
    in_query("StartTime", f"{TIME} Default: seven days ago."),
    in_query("EndTime", f"{TIME} Default: now. Included."),
)
TOKEN = in_query("Token", "A share token (GetToken), read when the call has no other credential.")


def job_view(arguments: Arguments) -> Lookup[JobView]:
    """Return the job of JobId."""
    return (yield from execute(JobQuestion(JobRef(arguments.required("JobId")))))

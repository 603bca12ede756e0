"""Shared by the operations: answers, the job of a path, and the rate limit."""

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from jobmeter.access.limit import Rate
from jobmeter.dialects.base import Answer, Context, OperationMaker, Parameter, execute
from jobmeter.dialects.baseten.bodies import job_body
from jobmeter.model.job import Job, SizesQuestion
from jobmeter.model.question import Question
from jobmeter.query.request import JobRef

MOST_JOBS = 1_000
"""Most jobs in one answer."""
RATE = Rate(100, 100)
"""Calls a second for each endpoint and key, https://docs.baseten.co/reference/management-api/rate-limits."""
JOB_PATH = "/v1/training_projects/{training_project_id}/jobs/{training_job_id}"
_OF_PATHS = (
    Parameter("training_project_id", "path", "The project: its name.", required=True),
    Parameter("training_job_id", "path", "The job.", required=True),
)
operation = OperationMaker(_OF_PATHS, rate=RATE)
"""Makes operations with the common rate limit."""


def answer(body: dict[str, Any]) -> Answer:
    """Return a successful answer."""
    return Answer(200, msgspec.json.encode(body))


def job_ref(context: Context) -> JobRef:
    """Return the job of the path."""
    return JobRef(context.path["training_job_id"], context.path["training_project_id"])


def job_bodies(jobs: Sequence[Job]) -> Generator[Question[Any], Any, list[dict[str, Any]]]:
    """Return the bodies of jobs, in their order."""
    sizes = yield from execute(SizesQuestion(jobs=tuple((job.project, job.id) for job in jobs)))
    return [job_body(job, size) for job, size in zip(jobs, sizes, strict=True)]

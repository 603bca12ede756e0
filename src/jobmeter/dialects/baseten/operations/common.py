"""What the operations share: how they answer, which job a path names, and how often each may be called."""

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
"""How many jobs one answer lists at most."""
RATE = Rate(100, 100)
"""https://docs.baseten.co/reference/management-api/rate-limits: a second, for each endpoint and key."""
JOB_PATH = "/v1/training_projects/{training_project_id}/jobs/{training_job_id}"
_OF_PATHS = (
    Parameter("training_project_id", "path", "The project: its name.", required=True),
    Parameter("training_job_id", "path", "The job.", required=True),
)
operation = OperationMaker(_OF_PATHS, rate=RATE)
"""Makes an operation, which may be called as often as all others."""


def answer(body: dict[str, Any]) -> Answer:
    """A successful answer."""
    return Answer(200, msgspec.json.encode(body))


def job_ref(context: Context) -> JobRef:
    """The job that the path names."""
    return JobRef(context.path["training_job_id"], context.path["training_project_id"])


def job_bodies(jobs: Sequence[Job]) -> Generator[Question[Any], Any, list[dict[str, Any]]]:
    """The bodies of jobs, in their order."""
    sizes = yield from execute(SizesQuestion(jobs=tuple((job.project, job.id) for job in jobs)))
    return [job_body(job, size) for job, size in zip(jobs, sizes, strict=True)]

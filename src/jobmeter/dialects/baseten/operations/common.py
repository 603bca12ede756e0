"""What the operations share: how they answer, which job a path names, and how often each may be called."""

from collections.abc import Generator, Iterable
from typing import Any

import msgspec

from jobmeter.access.limit import Rate
from jobmeter.dialects.base import Answer, Context, Parameter, ask
from jobmeter.errors import NotFoundError
from jobmeter.model.job import Job, JobView
from jobmeter.model.question import Asks
from jobmeter.query.request import JobQuestion, JobRef

MOST_JOBS = 1_000
"""How many jobs one answer lists at most."""
RATE = Rate(100, 100)
"""https://docs.baseten.co/reference/management-api/rate-limits: a second, for each endpoint and key."""
JOB_PATH = "/v1/training_projects/{training_project_id}/jobs/{training_job_id}"
PROJECT_PARAMETER = Parameter("training_project_id", "path", "The project: its name.", required=True)
JOB_PARAMETERS = (PROJECT_PARAMETER, Parameter("training_job_id", "path", "The job.", required=True))


def answer(body: dict[str, Any]) -> Answer:
    """A successful answer."""
    return Answer(200, msgspec.json.encode(body))


def job_ref(context: Context) -> JobRef:
    """The job that the path names."""
    return JobRef(context.path["training_job_id"], context.path["training_project_id"])


def views_of(jobs: Iterable[Job]) -> Generator[Asks[Any], Any, list[JobView]]:
    """Each job with its replicas and allocations; one that is gone by now is left out."""
    views = []
    for job in jobs:
        try:
            views.append((yield from ask(JobQuestion(JobRef(job.id, job.project)))))
        except NotFoundError:
            continue
    return views

"""``/resolve``: find a job by its id, a part of it, its name or ``last``."""

import msgspec

from jobmeter.errors import ConflictError, InvalidRequestError, NotFoundError
from jobmeter.model.job import Condition, Job, JobFilter, Operator
from jobmeter.model.job_answers import JobBody
from jobmeter.model.nearest import did_you_mean
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint

LAST = "last"
_LONGEST = 1_000
_MOST = 1_000
"""Most jobs whose id may contain the text; more are too ambiguous."""
_NAMED = 5
"""Jobs that an error names."""


def find_job(context: CallContext, text: str) -> Job:
    """Find a job: by id; else the newest, for ``last``; else the newest of that name; else by a prefix of its id.

    Raises NotFoundError naming similar jobs, ConflictError if several jobs match.
    """
    exact = _jobs(context, limit=2, ids=(text,))
    if len(exact) > 1:
        projects = ", ".join(sorted(job.project for job in exact))
        raise ConflictError(f"job {text} is in several projects ({projects}): choose one project")
    found = exact or (_jobs(context, limit=1) if text == LAST else [])
    found = found or _jobs(context, limit=1, conditions=(Condition("name", Operator.IN, (text,)),))
    found = found or _beginning(context, text)
    if not found:
        raise _job_not_found(context, text)
    return found[0]


def _jobs(context: CallContext, **question: object) -> list[Job]:
    job_filter = msgspec.structs.replace(JobFilter(projects=context.scope.projects), **question)
    return list(context.ask(job_filter).jobs)


def _beginning(context: CallContext, text: str) -> list[Job]:
    holding = _jobs(context, limit=_MOST + 1, conditions=(Condition("id", Operator.CONTAINS, (text,)),))
    found = [job for job in holding if job.id.startswith(text)]
    if len(found) > 1 or len(holding) > _MOST:
        some = ", ".join(job.id for job in found[:_NAMED])
        count = f"more than {_MOST}" if len(holding) > _MOST else str(len(found))
        raise ConflictError(
            f"{count} jobs begin with {text!r}, use a longer prefix: {some}{', ...' if len(found) > _NAMED else ''}"
        )
    return found


def _job_not_found(context: CallContext, text: str) -> NotFoundError:
    newest = _jobs(context, limit=_MOST)
    if not newest:
        return NotFoundError(f"there is no job {text!r}: there are no jobs yet", "job", text)
    names = [name for job in newest for name in (job.id, job.name)]
    return NotFoundError(f"there is no job {text!r}{did_you_mean(text, names)}", "job", text)


HEADING = "jobs"


@Endpoint(
    "resolveJob",
    "GET /resolve",
    "jobs:read",
    queries=(QueryArguments("job", "What somebody wrote.", required=True, example="last"), PROJECT),
    by_resource=True,
)
def _resolve(context: CallContext) -> JobBody:
    """Find the job that a text names.

    Its id; `last` for the newest job; its name, for the newest job of that name; or a unique prefix of its id. 404
    lists similar jobs, 409 the matching jobs.
    """
    text = context.arguments.read_text("job")
    if len(text) > _LONGEST:
        raise InvalidRequestError(f"job has {len(text)} characters, more than {_LONGEST}", "job")
    return copy_fields(JobBody, find_job(context, text))

"""The search over all projects, which nearly every command of `truss` uses.

https://docs.baseten.co/reference/training-api/search-training-jobs
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Annotated, Any

from msgspec.structs import replace

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Request, Typed, list_names
from jobmeter.dialects.baseten.bodies import compute_creation
from jobmeter.dialects.baseten.names import DEFAULT_STATUS, NAME, STATUS_KEY, STATUSES
from jobmeter.dialects.baseten.requests import MOST_JOBS, answer, operation, read_job_bodies
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Condition, Job, JobFilter, JobState, Operator
from jobmeter.model.question import Question

_FIELD = f"extra.{NAME}.{STATUS_KEY}"
Filter = tuple[frozenset[JobState], tuple[Condition, ...]]


@operation("POST /v1/training_jobs/search", "jobs:read", name="post_training_jobs_search", by_resource=True)
class SearchTrainingJobs(Request, frozen=True, kw_only=True):
    """The first jobs (at most 1,000) that meet every filter, ordered by their creation."""

    project_id: Annotated[str, "Jobs of that project. Default: of all that the key sees."] = ""
    job_id: Annotated[str, "The job of that id."] = ""
    statuses: Annotated[
        Sequence[str],
        f"A list of {list_names(STATUSES)}; any other status finds nothing. Default, and for an empty list: all.",
        Typed(list[str]),
    ] = ()
    order_by: Annotated[
        Sequence[dict[str, Any]],
        '`[{"field": "created_at", "order": "desc" or "asc"}]`. Default: `desc`.',
        Typed(list[dict[str, Any]]),
    ] = ()

    def _steps(self) -> Steps:
        question = JobFilter(
            projects=frozenset({self.project_id}) if self.project_id else None,
            ids=(self.job_id,) if self.job_id else (),
            descending=_descending(self.order_by),
            limit=MOST_JOBS,
        )
        jobs = yield from _find_jobs(
            question, list(iterate_filters(self.statuses)) if self.statuses else [(frozenset(), ())]
        )
        return answer({"training_jobs": (yield from read_job_bodies(jobs))})


def iterate_filters(statuses: Sequence[str]) -> Iterator[Filter]:
    """Yield states and further conditions that together find the jobs of these statuses, each job once.

    An unknown status matches no job. If every status of a state is requested, the state needs no condition. The default
    status of a state also matches jobs whose record has no status for it.
    """
    requested = frozenset(statuses)
    whole: set[JobState] = set()
    for state, default in DEFAULT_STATUS.items():
        own = [status for status, meant in STATUSES.items() if meant is state] or [default]
        chosen = tuple(status for status in own if status in requested)
        if len(chosen) == len(own):
            whole.add(state)
        elif default in chosen:
            others = tuple(status for status in own if status not in requested)
            yield frozenset({state}), (Condition(_FIELD, Operator.NOT_IN, others),)
        elif chosen:
            yield frozenset({state}), (Condition(_FIELD, Operator.IN, chosen),)
    if whole:
        yield frozenset(whole), ()


def _find_jobs(question: JobFilter, filters: Sequence[Filter]) -> Generator[Question[Any], Any, list[Job]]:
    jobs: list[Job] = []
    for states, conditions in filters:
        page = yield from ask(replace(question, states=states, conditions=conditions))
        jobs.extend(page.jobs)
    if len(filters) > 1:
        jobs.sort(key=lambda job: (compute_creation(job), job.id), reverse=question.descending)
    return jobs[:MOST_JOBS]


def _descending(orders: Sequence[dict[str, Any]]) -> bool:
    """Return True if the newest come first. Only the time of creation is a valid order."""
    for order in orders:
        field, direction = order.get("field", "created_at"), order.get("order", "desc")
        if field != "created_at":
            raise InvalidRequestError("order_by: only created_at is supported", "order_by")
        if str(direction).lower() not in {"asc", "desc"}:
            raise InvalidRequestError("order_by: order must be asc or desc", "order_by")
        return str(direction).lower() == "desc"
    return True

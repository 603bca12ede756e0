"""ListTrainingJobs and ValidateTrainingJobName.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ListTrainingJobs.html
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.base.request import Choice, Typed, list_names
from jobmeter.dialects.modelarts.answers import answer
from jobmeter.dialects.modelarts.errors import INVALID_QUERY, UNSUPPORTED_SORT, RefusedError
from jobmeter.dialects.modelarts.filters import KEYS, ModelArtsFilter, SearchFilter, filter_by
from jobmeter.dialects.modelarts.job_body import DEFAULT_WORKSPACE, make_job_body
from jobmeter.dialects.modelarts.names import NAME
from jobmeter.dialects.modelarts.requests import MAX_INTEGER, ModelArtsProjectRequest, operation
from jobmeter.errors import NotFoundError
from jobmeter.model.job import Condition, Job, JobFilter, JobPage, JobView, Operator
from jobmeter.model.question import Question
from jobmeter.query.request import JobQuestion, JobRef

MAX_PAGE = 50
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SORTS: Mapping[str, str] = {
    "create_time": "created",
    "start_time": "start",
    "duration": "duration",
    "name": "name",
    "job_name": "name",
    "user_name": "user",
    "user_id": "user",
    "id": "id",
}


class TagFilter(msgspec.Struct):
    """A tag that a job must have; if values are given, with one of them."""

    key: str
    values: list[str] = []


@operation("POST /v2/{project_id}/training-job-searches", "jobs:read", name="ListTrainingJobs", by_resource=True)
class ListModelArtsJobs(ModelArtsProjectRequest, frozen=True, kw_only=True):
    """A page of jobs in the form of ShowTrainingJobDetails, as `items`.

    `total` counts every job of the project, `count` the jobs that match.
    """

    offset: Annotated[int, "The page, counted from 0.", Meta(ge=0, le=MAX_INTEGER)] = 0
    limit: Annotated[int, "Jobs on a page.", Meta(ge=1, le=MAX_PAGE)] = MAX_PAGE
    sort_by: Annotated[str, f"One of {list_names(_SORTS)}."] = "create_time"
    order: Literal["asc", "desc"] = "desc"
    group_by: Annotated[str, "Accepted and returned unchanged; has no effect."] = ""
    workspace_id: Annotated[str, "`0`: jobs without a workspace. Default: all jobs."] = ""
    train_type: Annotated[
        Literal["job", "ftjob", ""],
        '`ftjob`: jobs whose `extra["modelarts"]` says so; `job`: the others.',
        Choice(("job", "ftjob"), shown=False),
    ] = ""
    tags: Annotated[
        Sequence[TagFilter],
        "`[{key, values}]`: jobs whose labels have one of the values (none: any).",
        Meta(max_length=10),
        Typed(list[TagFilter]),
    ] = ()
    host_ips: Annotated[
        Sequence[str],
        "Jobs with a task on one of these nodes; `status.task_ips` names the tasks.",
        Meta(max_length=10),
        Typed(list[str]),
    ] = ()
    filters: Annotated[
        Sequence[ModelArtsFilter],
        f"`[{{key, operator, value}}]`, all met. Keys: {list_names(KEYS)}. Operators: `like`, `in`, "
        "`not`; for `create_time` `between`, with milliseconds. Empty values filter nothing.",
        Typed(list[ModelArtsFilter]),
    ] = ()

    def _steps(self) -> Steps:
        project = self.project
        if self.sort_by not in _SORTS:
            message = f"{self.sort_by[:64]!r} is not one of {', '.join(_SORTS)}"
            raise RefusedError(UNSUPPORTED_SORT, message, "sort_by")
        criteria = filter_by(self.filters).intersect(self._build_other_conditions())
        question = JobFilter(
            projects=frozenset({project}),
            states=criteria.states or frozenset(),
            workspaces=_workspaces(self.workspace_id),
            conditions=criteria.conditions,
            sort=_SORTS[self.sort_by],
            descending=self.order == "desc",
            offset=self.offset * self.limit,
            limit=self.limit,
        )
        page = JobPage([], 0)
        if criteria.states != frozenset():
            page = yield from ask(question)
        everything = yield from ask(JobFilter(projects=frozenset({project}), limit=1))
        items = []
        for job in page.jobs:
            view = yield from _view(job)
            items.append(make_job_body(view, self.context.now_ms, self._hosts()))
        envelope = {
            "total": everything.total,
            "count": page.total,
            "limit": self.limit,
            "offset": self.offset,
            "sort_by": self.sort_by,
            "order": self.order,
            "group_by": self.group_by,
            "workspace_id": self.workspace_id or DEFAULT_WORKSPACE,
            "ai_project": "default-ai-project",
            **({"train_type": self.train_type} if self.train_type else {}),
        }
        return answer({**envelope, "items": items}, self.context)

    def _build_other_conditions(self) -> SearchFilter:
        """Return the conditions of the fields besides ``filters``."""
        conditions = [_tag(tag) for tag in self.tags]
        hosts = self._hosts()
        if hosts:
            conditions.append(Condition("node", Operator.IN, hosts))
        if self.train_type:
            operator = Operator.IN if self.train_type == "ftjob" else Operator.NOT_IN
            conditions.append(Condition(f"extra.{NAME}.train_type", operator, ("ftjob",)))
        return SearchFilter(tuple(conditions))

    def _hosts(self) -> tuple[str, ...]:
        return tuple(filter(None, self.host_ips))


@operation("GET /v2/{project_id}/training-job-names", "jobs:read", by_resource=True)
class ValidateTrainingJobName(ModelArtsProjectRequest, frozen=True, kw_only=True):
    """`{is_duplicate}`: true if a job of that name exists."""

    job_name: Annotated[str, "1 to 64 letters, digits, hyphens and underscores."]
    workspace_id: Annotated[str, "Only in that workspace. Default: everywhere."] = ""

    def _steps(self) -> Steps:
        project = self.project
        if not _NAME.fullmatch(self.job_name):
            raise RefusedError(INVALID_QUERY, "it has 1 to 64 letters, digits, hyphens and underscores", "job_name")
        page = yield from ask(
            JobFilter(
                projects=frozenset({project}),
                workspaces=_workspaces(self.workspace_id),
                conditions=(Condition("name", Operator.IN, (self.job_name,), "id"),),
                limit=1,
            )
        )
        return answer({"is_duplicate": page.total > 0}, self.context)


def _view(job: Job) -> Generator[Question[Any], Any, JobView]:
    try:
        return (yield from ask(JobQuestion(JobRef(job.id, job.project))))
    except NotFoundError:  # deleted a moment ago
        return JobView(job=job, replicas=[], allocations=[])


def _workspaces(given: str) -> frozenset[str]:
    """Return the workspaces of a search; a job without one belongs to ModelArts' default workspace."""
    if not given:
        return frozenset()
    return frozenset({"", DEFAULT_WORKSPACE}) if given == DEFAULT_WORKSPACE else frozenset({given})


def _tag(tag: TagFilter) -> Condition:
    values = tuple(value for value in tag.values if value)
    field = f"labels.{tag.key}"
    # Every text contains the empty text: any value matches.
    return Condition(field, Operator.IN, values) if values else Condition(field, Operator.CONTAINS, ("",))

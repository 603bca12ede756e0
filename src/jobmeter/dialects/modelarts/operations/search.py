"""ListTrainingJobs and ValidateTrainingJobName.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ListTrainingJobs.html
"""

import re
from collections.abc import Generator, Mapping
from typing import Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, Parameter, Steps, execute
from jobmeter.dialects.modelarts.answers import answer
from jobmeter.dialects.modelarts.arguments import MAX_INTEGER, json_body, project_of, query_text
from jobmeter.dialects.modelarts.errors import INVALID_QUERY, UNSUPPORTED_SORT, RefusedError
from jobmeter.dialects.modelarts.filters import KEYS, Filter, SearchFilter, filter_by
from jobmeter.dialects.modelarts.job_body import DEFAULT_WORKSPACE, job_body
from jobmeter.dialects.modelarts.names import NAME
from jobmeter.dialects.modelarts.operations.common import operation
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import Condition, Job, JobFilter, JobPage, JobView, Operator
from jobmeter.model.question import Question
from jobmeter.query.request import JobQuestion, JobRef

MAX_PAGE = 50
MAX_TAGS = 10
MAX_HOSTS = 10
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
    """A tag that a job must have, with one of the values if any are given."""

    key: str
    values: list[str] = []


class SearchBody(msgspec.Struct):
    """The body of ListTrainingJobs."""

    offset: int | None = None
    limit: int | None = None
    sort_by: str | None = None
    order: str | None = None
    group_by: str | None = None
    workspace_id: str | None = None
    train_type: str | None = None
    tags: list[TagFilter] | None = None
    host_ips: list[str] | None = None
    filters: list[Filter] | None = None


def list_training_jobs(call: Call, context: Context) -> Steps:
    """Return one page of jobs. ``total`` counts every job of the project, ``count`` those that match."""
    project = project_of(call, context)
    body = json_body(call, SearchBody)
    limit = _within("limit", body.limit, MAX_PAGE, 1, MAX_PAGE)
    offset = _within("offset", body.offset, 0, 0, MAX_INTEGER)
    sort_by, order = body.sort_by or "create_time", (body.order or "desc").casefold()
    if sort_by not in _SORTS:
        raise RefusedError(UNSUPPORTED_SORT, f"{sort_by[:64]!r} is not one of {', '.join(_SORTS)}", "sort_by")
    if order not in {"asc", "desc"}:
        raise InvalidRequestError(f"{order[:64]!r} is neither asc nor desc", "order")
    criteria = filter_by(body.filters or ()).and_also(_besides(body))
    question = JobFilter(
        projects=frozenset({project}),
        states=criteria.states or frozenset(),
        workspaces=_workspaces(body.workspace_id),
        conditions=criteria.conditions,
        sort=_SORTS[sort_by],
        descending=order == "desc",
        offset=offset * limit,
        limit=limit,
    )
    page = JobPage([], 0)
    if criteria.states != frozenset():
        page = yield from execute(question)
    everything = yield from execute(JobFilter(projects=frozenset({project}), limit=1))
    items = []
    for job in page.jobs:
        view = yield from _view(job)
        items.append(job_body(view, context.now_ms, _hosts(body)))
    envelope = {
        "total": everything.total,
        "count": page.total,
        "limit": limit,
        "offset": offset,
        "sort_by": sort_by,
        "order": order,
        "group_by": body.group_by or "",
        "workspace_id": body.workspace_id or DEFAULT_WORKSPACE,
        "ai_project": "default-ai-project",
        **({"train_type": body.train_type} if body.train_type else {}),
    }
    return answer({**envelope, "items": items}, context)


def validate_training_job_name(call: Call, context: Context) -> Steps:
    """Check for an existing job of that name."""
    project = project_of(call, context)
    name = query_text(call, "job_name")
    if not _NAME.fullmatch(name):
        raise RefusedError(INVALID_QUERY, "it has 1 to 64 letters, digits, hyphens and underscores", "job_name")
    page = yield from execute(
        JobFilter(
            projects=frozenset({project}),
            workspaces=_workspaces(query_text(call, "workspace_id")),
            conditions=(Condition("name", Operator.IN, (name,), "id"),),
            limit=1,
        )
    )
    return answer({"is_duplicate": page.total > 0}, context)


def _view(job: Job) -> Generator[Question[Any], Any, JobView]:
    try:
        return (yield from execute(JobQuestion(JobRef(job.id, job.project))))
    except NotFoundError:  # deleted a moment ago
        return JobView(job=job, replicas=[], allocations=[])


def _workspaces(given: str | None) -> frozenset[str]:
    """Return the workspaces of a search; a job without one is in their default workspace."""
    if not given:
        return frozenset()
    return frozenset({"", DEFAULT_WORKSPACE}) if given == DEFAULT_WORKSPACE else frozenset({given})


def _besides(body: SearchBody) -> SearchFilter:
    """Return the conditions of the fields besides ``filters``."""
    conditions = [_tag(tag) for tag in _few(body.tags or [], MAX_TAGS, "tags")]
    hosts = _hosts(body)
    if hosts:
        conditions.append(Condition("node", Operator.IN, hosts))
    if body.train_type not in {None, "", "job", "ftjob"}:
        raise InvalidRequestError(f"{str(body.train_type)[:64]!r} is neither job nor ftjob", "train_type")
    if body.train_type:
        operator = Operator.IN if body.train_type == "ftjob" else Operator.NOT_IN
        conditions.append(Condition(f"extra.{NAME}.train_type", operator, ("ftjob",)))
    return SearchFilter(tuple(conditions))


def _hosts(body: SearchBody) -> tuple[str, ...]:
    return tuple(host for host in _few(body.host_ips or [], MAX_HOSTS, "host_ips") if host)


def _tag(tag: TagFilter) -> Condition:
    values = tuple(value for value in tag.values if value)
    field = f"labels.{tag.key}"
    # Every text contains the empty text: any value matches.
    return Condition(field, Operator.IN, values) if values else Condition(field, Operator.CONTAINS, ("",))


def _few(values: list[Any], most: int, field: str) -> list[Any]:
    if len(values) > most:
        raise InvalidRequestError(f"at most {most}, these are {len(values)}", field)
    return values


def _within(field: str, value: int | None, default: int, lowest: int, highest: int) -> int:
    if value is None:
        return default
    if not lowest <= value <= highest:
        raise InvalidRequestError(f"{value} is not between {lowest} and {highest}", field)
    return value


OPERATIONS = (
    operation(
        "ListTrainingJobs",
        "POST",
        "training-job-searches",
        list_training_jobs,
        (
            "A page of jobs in the shape of ShowTrainingJobDetails, as `items`. `total` counts every job of the "
            "project, `count` those that match."
        ),
        Parameter("offset", "body", "Which page, counted from 0. Default: 0."),
        Parameter("limit", "body", f"Jobs on a page, 1 to {MAX_PAGE}. Default: {MAX_PAGE}."),
        Parameter("sort_by", "body", f"{', '.join(f'`{name}`' for name in _SORTS)}. Default: `create_time`."),
        Parameter("order", "body", "`asc` or `desc`. Default: `desc`."),
        Parameter("group_by", "body", "Accepted and given back; changes nothing."),
        Parameter("workspace_id", "body", "`0`: jobs without a workspace. Default: all jobs."),
        Parameter("train_type", "body", '`ftjob`: jobs whose `extra["modelarts"]` says so; `job`: the others.'),
        Parameter("tags", "body", "`[{key, values}]`: jobs whose labels have one of the values (none: any)."),
        Parameter("host_ips", "body", "Jobs with a task on one of these nodes; `status.task_ips` names the tasks."),
        Parameter(
            "filters",
            "body",
            f"`[{{key, operator, value}}]`, all met. Keys: {', '.join(f'`{key}`' for key in KEYS)}. Operators: "
            "`like`, `in`, `not`; for `create_time` `between`, with milliseconds. Empty values filter nothing.",
        ),
        by_resource=True,
    ),
    operation(
        "ValidateTrainingJobName",
        "GET",
        "training-job-names",
        validate_training_job_name,
        "`{is_duplicate}`: whether a job of that name exists.",
        Parameter("job_name", "query", "1 to 64 letters, digits, hyphens and underscores.", required=True),
        Parameter("workspace_id", "query", "Only in that workspace. Default: everywhere."),
        by_resource=True,
    ),
)

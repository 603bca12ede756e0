"""One page of jobs out of a million: each filter and each order reads its own index.

A filter with several members (projects, states, types, ...) becomes one *branch* for each combination, a question of
equalities alone, which one index answers in order; the branches are disjoint, so their first rows are merged and
their counts added. Where there would be too many branches, the database is asked in one piece.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Job, JobFilter, JobPage, JobState
from jobmeter.registry.rows import ALIVE_MS, job_of
from jobmeter.registry.schema import SAMPLED, jobs, projects

MAX_BRANCHES = 64

_Condition = sa.ColumnElement[bool]
_column = jobs.c
_ORDERS: dict[str, tuple[sa.Column[Any], ...]] = {
    "created": (_column.created_sort, _column.id),
    "start": (_column.start_sort, _column.id),
    "end": (_column.end_sort, _column.id),
    "id": (_column.id,),
    "name": (_column.name, _column.id),
    "project": (_column.project, _column.created_sort, _column.id),
    "type": (_column.type, _column.created_sort, _column.id),
    "user": (_column.user, _column.created_sort, _column.id),
    "resource_group": (_column.resource_group, _column.created_sort, _column.id),
    "workspace": (_column.workspace, _column.created_sort, _column.id),
}
SORTS = (*_ORDERS, "state")
"""What a listing may be sorted by."""


def list_jobs(connection: sa.Connection, question: JobFilter, now_ms: int) -> JobPage:
    """See ``Registry.jobs``. Raises InvalidRequestError for a sort that is none of ``SORTS`` or a negative page."""
    if question.sort not in SORTS:
        raise InvalidRequestError(f"sort {question.sort[:64]!r} is none of {', '.join(SORTS)}", "sort")
    for field in ("offset", "limit"):
        if not 0 <= getattr(question, field) < 2**31:
            raise InvalidRequestError(f"{field} must be from 0 to 2147483647", field)
    if question.sort == "state":
        return _by_state(connection, question, now_ms)
    branches = _branches(connection, question, now_ms)
    common = _common(question)
    total = sum(_count(connection, [*branch, *common]) for branch in branches)
    if question.offset >= total or not question.limit:
        return JobPage([], total)
    rows = connection.execute(_page(question, branches, common))
    return JobPage([job_of(row, now_ms) for row in rows], total)


def _by_state(connection: sa.Connection, question: JobFilter, now_ms: int) -> JobPage:
    # A derived state has no index to sort by, but each single state is one to filter by.
    found: list[Job] = []
    total = 0
    wanted = question.states or frozenset(JobState)
    for state in sorted(wanted, reverse=question.descending):
        part = msgspec.structs.replace(
            question,
            sort="created",
            states=frozenset({state}),
            offset=max(0, question.offset - total),
            limit=question.limit - len(found),
        )
        page = list_jobs(connection, part, now_ms)
        found.extend(page.jobs)
        total += page.total
    return JobPage(found, total)


def _branches(connection: sa.Connection, question: JobFilter, now_ms: int) -> list[list[_Condition]]:
    names = _projects(connection) if question.projects is None else sorted(question.projects)
    axes = [[_column.project == name for name in names], *_choices(question)]
    if question.states:
        axes.append(list(_states(question.states, now_ms)))
    branches = [list(branch) for branch in product(*axes)]
    if len(branches) <= MAX_BRANCHES:
        return branches
    whole = [sa.or_(*axis) for axis in axes[1:]]
    return [whole if question.projects is None else [_column.project.in_(names), *whole]]


def _projects(connection: sa.Connection) -> Sequence[str]:
    # Every project that ever had a job has its row.
    return connection.scalars(sa.select(projects.c.name)).all()


def _choices(question: JobFilter) -> Iterable[list[_Condition]]:
    for column, values in (
        (_column.type, question.types),
        (_column.user, question.users),
        (_column.resource_group, question.resource_groups),
        (_column.workspace, question.workspaces),
    ):
        if values:
            yield [column == value for value in sorted(values)]


def _states(states: frozenset[JobState], now_ms: int) -> Iterable[_Condition]:
    for state in sorted(states):
        yield _column.status == state.value
    # Those whose state only samples tell: the living run, the others have succeeded.
    alive = _column.last_sample > now_ms - ALIVE_MS
    if JobState.RUNNING in states:
        yield sa.and_(_column.status == SAMPLED, alive)
    if JobState.SUCCEEDED in states:
        yield sa.and_(_column.status == SAMPLED, sa.not_(alive))


def _common(question: JobFilter) -> list[_Condition]:
    conditions: list[_Condition] = []
    if question.ids:
        conditions.append(_column.id.in_(question.ids))
    if question.name_contains:
        conditions.append(_column.search.contains(question.name_contains.casefold(), autoescape=True))
    if question.created_from is not None:
        conditions.append(_column.created_sort >= question.created_from)
    if question.created_to is not None:
        conditions.append(_column.created_sort < question.created_to)
    return conditions


def _count(connection: sa.Connection, conditions: Sequence[_Condition]) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(jobs).where(*conditions)) or 0


def _page(
    question: JobFilter, branches: Sequence[Sequence[_Condition]], common: Sequence[_Condition]
) -> sa.Select[Any]:
    columns = (*_ORDERS[question.sort], *(() if question.sort == "project" else (_column.project,)))
    last = question.offset + question.limit
    if len(branches) == 1:
        return _ordered(sa.select(jobs).where(*branches[0], *common), columns, question)
    firsts = [
        sa.select(
            _ordered(sa.select(*columns).where(*branch, *common), columns, question).limit(last).offset(0).subquery()
        )
        for branch in branches
    ]
    merged = sa.union_all(*firsts).subquery()
    keys = _ordered(sa.select(merged.c.project, merged.c.id), [merged.c[c.name] for c in columns], question).subquery()
    found = sa.select(jobs).join(keys, sa.and_(_column.project == keys.c.project, _column.id == keys.c.id))
    return found.order_by(*_directed(columns, question))


def _ordered(select: sa.Select[Any], columns: Iterable[sa.ColumnElement[Any]], question: JobFilter) -> sa.Select[Any]:
    return select.order_by(*_directed(columns, question)).limit(question.limit).offset(question.offset)


def _directed(columns: Iterable[sa.ColumnElement[Any]], question: JobFilter) -> list[sa.ColumnElement[Any]]:
    return [column.desc() if question.descending else column.asc() for column in columns]

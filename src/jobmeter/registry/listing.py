"""One page of jobs from the database: each filter and each order reads its own index.

A filter with several members (projects, states, types, ...) becomes one *branch* for each combination, a question of
equalities alone, which one index answers in order; the branches are disjoint, so their first rows are merged and
their counts added. Where there would be too many branches, the database is asked in one piece. Keys are found first,
whole rows are read for the page alone. A registry of very many jobs is listed from memory instead, see ``listings``.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Job, JobFilter, JobPage, JobState
from jobmeter.registry.conditions import conditions, duration
from jobmeter.registry.functions import clean, contains
from jobmeter.registry.nodes import every_project
from jobmeter.registry.rows import ALIVE_MS, job_of
from jobmeter.registry.schema import SAMPLED, jobs

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
    "updated": (_column.updated, _column.id),
}
SORTS = (*_ORDERS, "duration", "state")
"""What a listing may be sorted by."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """Conditions that are all met by its jobs. Their number is that of ``counted`` less that of ``but_for``."""

    page: tuple[_Condition, ...] = ()
    counted: tuple[_Condition, ...] = ()
    but_for: tuple[_Condition, ...] = ()

    def and_also(self, other: "_Branch") -> "_Branch":
        """Both; at most one of them has a ``but_for``."""
        but_for: tuple[_Condition, ...] = ()
        if self.but_for:
            but_for = (*self.but_for, *other.counted)
        elif other.but_for:
            but_for = (*self.counted, *other.but_for)
        return _Branch((*self.page, *other.page), (*self.counted, *other.counted), but_for)


def check(question: JobFilter, now_ms: int) -> None:
    """Raises InvalidRequestError for a sort that is none of ``SORTS``, a negative page or a condition that is none."""
    if question.sort not in SORTS:
        raise InvalidRequestError(f"sort {question.sort[:64]!r} is none of {', '.join(SORTS)}", "sort")
    for field in ("offset", "limit"):
        if not 0 <= getattr(question, field) < 2**31:
            raise InvalidRequestError(f"{field} must be from 0 to 2147483647", field)
    conditions(question.conditions, now_ms)


def list_jobs(connection: sa.Connection, question: JobFilter, now_ms: int) -> JobPage:
    """See ``Registry.jobs``. The caller has checked the question."""
    if question.sort == "state":
        return _by_state(connection, question, now_ms)
    branches = _branches(connection, question, now_ms)
    total = sum(_count(connection, branch) for branch in branches)
    if question.offset >= total or not question.limit:
        return JobPage([], total)
    rows = connection.execute(_page(question, branches, now_ms))
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


def _branches(connection: sa.Connection, question: JobFilter, now_ms: int) -> list[_Branch]:
    names = every_project(connection) if question.projects is None else sorted(question.projects)
    axes = [[_plain(_column.project == name) for name in names], *_choices(question)]
    if question.states:
        axes.append(list(_states(question.states, now_ms)))
    common = _plain(*_common(question), *conditions(question.conditions, now_ms))
    if math.prod(map(len, axes)) <= MAX_BRANCHES:
        return [reduce(_Branch.and_also, branch, common) for branch in product(*axes)]
    if question.projects is not None:
        axes[0] = [_plain(_column.project.in_(names))]
    whole = [sa.or_(*(sa.and_(*choice.page) for choice in axis)) for axis in axes[question.projects is None :]]
    return [_plain(*whole).and_also(common)]


def _plain(*conditions: _Condition) -> _Branch:
    return _Branch(conditions, conditions)


def _choices(question: JobFilter) -> Iterable[list[_Branch]]:
    for column, values in (
        (_column.type, question.types),
        (_column.user, question.users),
        (_column.resource_group, question.resource_groups),
        (_column.workspace, question.workspaces),
    ):
        if values:
            yield [_plain(column == clean(value)) for value in sorted(values)]


def _states(states: frozenset[JobState], now_ms: int) -> Iterable[_Branch]:
    for state in sorted(states):
        yield _plain(_column.status == state.value)
    # Those whose state only samples tell: the living run, of the others nobody knows.
    sampled = _column.status == SAMPLED
    if {JobState.RUNNING, JobState.UNKNOWN} <= states:
        yield _plain(sampled)
    elif JobState.RUNNING in states:
        yield _plain(sampled, _column.last_sample > now_ms - ALIVE_MS)
    elif JobState.UNKNOWN in states:
        # Nearly all of them: found in the order of their creation (the sum keeps the other index out of it), counted
        # as all but the few living ones.
        ended = _column.last_sample + 0 <= now_ms - ALIVE_MS
        yield _Branch((sampled, ended), (sampled,), (sampled, _column.last_sample > now_ms - ALIVE_MS))


def _common(question: JobFilter) -> list[_Condition]:
    found: list[_Condition] = []
    if question.ids:
        found.append(_column.id.in_([clean(name) for name in question.ids]))
    if question.name_contains:
        found.append(contains(_column.search, clean(question.name_contains).casefold()))
    if question.created_from is not None:
        found.append(_column.created_sort >= question.created_from)
    if question.created_to is not None:
        found.append(_column.created_sort < question.created_to)
    return found


def _count(connection: sa.Connection, branch: _Branch) -> int:
    counted = sa.select(sa.func.count()).select_from(jobs)
    total = connection.scalar(counted.where(*branch.counted)) or 0
    return total - (connection.scalar(counted.where(*branch.but_for)) or 0 if branch.but_for else 0)


def _order(question: JobFilter, now_ms: int) -> tuple[sa.ColumnElement[Any], ...]:
    if question.sort == "duration":
        return (duration(now_ms).label("duration"), _column.id)
    return _ORDERS[question.sort]


def _page(question: JobFilter, branches: Sequence[_Branch], now_ms: int) -> sa.Select[Any]:
    order = _order(question, now_ms)
    columns = (*order, *(() if question.sort == "project" else (_column.project,)))
    page = _keys(question, branches, columns).limit(question.limit).offset(question.offset).subquery()
    found = sa.select(jobs).join(page, sa.and_(_column.project == page.c.project, _column.id == page.c.id))
    return _ordered(found, columns, question)


def _keys(question: JobFilter, branches: Sequence[_Branch], columns: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    """The keys of the jobs in order, as far as the page reaches at least."""
    if len(branches) == 1:
        # One index in the right order: what is passed over is neither kept nor sorted again.
        return _ordered(sa.select(_column.project, _column.id).where(*branches[0].page), columns, question)
    # Of each branch, as many keys as the page may need; of all these, the page.
    last = question.offset + question.limit
    firsts = [
        sa.select(_ordered(sa.select(*columns).where(*branch.page), columns, question).limit(last).subquery())
        for branch in branches
    ]
    merged = sa.union_all(*firsts).subquery()
    return _ordered(sa.select(merged.c.project, merged.c.id), [merged.c[c.name] for c in columns], question)


def _ordered(select: sa.Select[Any], columns: Iterable[sa.ColumnElement[Any]], question: JobFilter) -> sa.Select[Any]:
    return select.order_by(*(column.desc() if question.descending else column.asc() for column in columns))

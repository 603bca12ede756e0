"""Filters the rows of a listing: each condition is one operation on a column."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.job import JobFilter, JobState, Operator
from jobmeter.model.time import TimeRange
from jobmeter.registry.columns.dictionary_column import Mask
from jobmeter.registry.columns.table import TEXTS, JobTable
from jobmeter.registry.conditions import RELATED, TIMES, Predicate
from jobmeter.registry.rows import ALIVE_MS
from jobmeter.registry.schema import SAMPLED
from jobmeter.registry.statements import clean_text

ORDERS: dict[str, tuple[str, ...]] = {
    **{name: (name, "created_sort", "id", "project") for name in TEXTS if name not in {"project", "status"}},
    **{name: (column, "id", "project") for name, column in TIMES.items()},
    **{name: (name, "id", "project") for name in ("name", "updated", "duration")},
    "id": ("id", "project"),
    "project": ("project", "created_sort", "id"),
    **{name: (name, "created_sort", "id", "project") for name in ("state", "active")},
}
"""Columns of each sort, in order of significance."""

Rows = NDArray[np.int32]
Lookup = Callable[[Predicate, Mask], Mask]
"""Marks the jobs that meet a predicate, before negation. Jobs outside of the mask may be left out."""


class Demand(msgspec.Struct, frozen=True, eq=False):
    """A condition on some jobs.

    ``found`` marks the jobs that meet the predicate, before negation; None if the columns lack its field. ``otherwise``
    applies to the jobs that are not ``present``.
    """

    predicate: Predicate
    found: Mask | None
    present: "Demand | None" = None
    otherwise: "Demand | None" = None

    def mark_jobs(self, left: Mask, lookup: Lookup) -> Mask:
        """Mark the jobs that meet the condition. The result is undefined outside of ``left``."""
        found = lookup(self.predicate, left) if self.found is None else self.found
        if self.present is not None and self.otherwise is not None:
            there = self.present.mark_jobs(left, lookup)
            found = (there & found) | (~there & self.otherwise.mark_jobs(left, lookup))
        return ~found if self.predicate.negated else found

    @property
    def open(self) -> bool:
        """True if part of it must be looked up in the database."""
        return self.found is None or any(one.open for one in (self.present, self.otherwise) if one is not None)


class MatchingRows(NamedTuple):
    """The rows that meet every condition on columns, and the conditions that must be looked up."""

    rows: Rows
    demands: Sequence[Demand]


def find_matching(table: JobTable, question: JobFilter, predicates: Iterable[Predicate], now_ms: int) -> MatchingRows:
    """Return the rows of the jobs that may meet every condition; ``predicates`` are the query's conditions."""
    found = table.there.copy()
    for mask in _masks(table, question, now_ms):
        found &= mask
    demands = [_demand(table, one, now_ms) for one in predicates]
    for one in demands:
        if not one.open:
            found &= one.mark_jobs(found, lambda _, left: left)  # never called
    rows = np.flatnonzero(found).astype(np.int32)
    return MatchingRows(rows, [_restrict_demand(one, rows) for one in demands if one.open])


def find_grouped(table: JobTable, projects: frozenset[str] | None) -> NDArray[np.int32]:
    """Return the rows of the jobs that name a resource group."""
    found = table.there & ~_mark_among(table, "resource_group", [""])
    if projects is not None:
        found &= _mark_among(table, "project", projects)
    return np.flatnonzero(found).astype(np.int32)


def find_living(
    table: JobTable, projects: frozenset[str] | None, group: str | None, span: TimeRange
) -> NDArray[np.int32]:
    """Return the rows of the jobs of a resource group (None: of all groups) that overlap the span."""
    found = table.there if group is None else table.there & _mark_among(table, "resource_group", [group])
    if projects is not None:
        found = found & _mark_among(table, "project", projects)
    start, end = (table.times[name].get_first(table.count) for name in ("start_sort", "end_sort"))
    status = table.texts["status"]
    sampled = status.mark_among([SAMPLED], table.count)
    # A job lives on between two samples.
    found = (
        found
        & (start < span.end_ms)
        & ((end == -1) | (end >= span.start_ms) | (sampled & (end >= span.start_ms - ALIVE_MS)))
    )
    return np.flatnonzero(found).astype(np.int32)


def compute_durations(table: JobTable, rows: NDArray[np.int32], now_ms: int) -> NDArray[np.int64]:
    """Return the duration of each job in ms, until now if it runs; -1 if it has not started."""
    start, length = (table.sort_values(name, rows) for name in ("start_sort", "end_sort"))
    length[length < 0] = now_ms
    length -= start
    np.maximum(length, 0, out=length)
    length[start < 0] = -1
    return length


def rank_states(table: JobTable, rows: NDArray[np.int32], now_ms: int) -> NDArray[np.int64]:
    """Return the sort keys of the rows' states: the rank of each state's name."""
    places = {state.value: place for place, state in enumerate(sorted(JobState))}
    status = table.texts["status"]
    by_number = np.array([places.get(value, -1) for value in status.values], np.int64)
    ranks = by_number[status.get_numbers(table.count)[rows]]
    alive = table.sort_values("last_sample", rows) > now_ms - ALIVE_MS
    sampled = np.where(alive, places[JobState.RUNNING.value], places[JobState.UNKNOWN.value])
    return np.where(ranks < 0, sampled, ranks)


def rank_active(table: JobTable, rows: NDArray[np.int32], now_ms: int) -> NDArray[np.int64]:
    """Return 2 for each row of a running job, 1 for a queued one, else 0."""
    places = sorted(JobState)
    ranks = np.zeros(len(places), np.int64)
    ranks[places.index(JobState.QUEUED)], ranks[places.index(JobState.RUNNING)] = 1, 2
    return ranks[rank_states(table, rows, now_ms)]


def _has(table: JobTable, one: Predicate) -> bool:
    """Return True if the columns have the field of a predicate; ``otherwise`` is ignored."""
    name = one.field[0]
    return name not in RELATED and (table.fields.stores(one.field) if len(one.field) > 1 else table.stores(name))


def _masks(table: JobTable, question: JobFilter, now_ms: int) -> Iterable[Mask]:
    count = table.count
    if question.projects is not None:
        yield _mark_among(table, "project", question.projects)
    for name, values in (
        ("type", question.types),
        ("user", question.users),
        ("resource_group", question.resource_groups),
        ("workspace", question.workspaces),
    ):
        if values:
            yield _mark_among(table, name, map(clean_text, values))
    if question.states:
        yield _states(table, question.states, now_ms)
    if question.ids:
        yield table.names["id"].mark_among([clean_text(name) for name in question.ids], count)
    if question.name_contains:
        part = clean_text(question.name_contains).casefold()
        yield table.names["name"].mark_holding([part], count) | table.names["id"].mark_holding([part], count)
    created = table.times["created_sort"].get_first(count)
    if question.created_from is not None:
        yield created >= question.created_from
    if question.created_to is not None:
        yield created < question.created_to


def _mark_among(table: JobTable, name: str, values: Iterable[str]) -> Mask:
    return table.texts[name].mark_among(values, table.count)


def _states(table: JobTable, states: frozenset[JobState], now_ms: int) -> Mask:
    status = table.texts["status"]
    found = status.mark_among((state.value for state in states), table.count)
    sampled = status.mark_among([SAMPLED], table.count)
    alive = table.times["last_sample"].get_first(table.count) > now_ms - ALIVE_MS
    if JobState.RUNNING in states:
        found |= sampled & alive
    if JobState.UNKNOWN in states:
        found |= sampled & ~alive
    return found


def _demand(table: JobTable, one: Predicate, now_ms: int) -> Demand:
    """Return the condition for a predicate on all rows, with its result if the columns have the field."""
    found = _mark_by_columns(table, one, now_ms) if _has(table, one) else None
    if one.otherwise is None:
        return Demand(one, found)
    return Demand(one, found, _demand(table, one.presence, now_ms), _demand(table, one.otherwise, now_ms))


def _restrict_demand(one: Demand, rows: Rows) -> Demand:
    """Copy a condition for some rows only, independent of the columns."""
    return Demand(
        one.predicate,
        None if one.found is None else one.found[rows],
        None if one.present is None else _restrict_demand(one.present, rows),
        None if one.otherwise is None else _restrict_demand(one.otherwise, rows),
    )


def _mark_by_columns(table: JobTable, one: Predicate, now_ms: int) -> Mask:
    name = one.field[0]
    if len(one.field) > 1:
        return table.fields.mark_meeting(one, table.count)
    if name in TIMES:
        return _mark_by_number(one, table.times[TIMES[name]].get_first(table.count))
    if name == "duration":
        return _mark_by_number(one, compute_durations(table, np.arange(table.count, dtype=np.int32), now_ms))
    column = table.get_column(name)
    return (column.mark_holding if one.operator is Operator.CONTAINS else column.mark_among)(one.texts, table.count)


def _mark_by_number(one: Predicate, numbers: NDArray[np.int64]) -> Mask:
    # An unknown time is -1.
    found = numbers >= 0
    if one.operator is Operator.IN:
        found &= np.isin(numbers, np.array(one.numbers, np.int64))
        return found
    low, high = one.numbers
    if low is not None:
        found &= numbers >= low
    if high is not None:
        found &= numbers <= high
    return found

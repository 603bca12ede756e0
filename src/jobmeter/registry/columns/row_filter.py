"""Which rows a listing means: each of its demands is one operation on a column."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.job import JobFilter, JobState, Operator
from jobmeter.model.time import TimeRange
from jobmeter.registry.columns.dictionary_column import Mask
from jobmeter.registry.columns.table import TEXTS, Table
from jobmeter.registry.conditions import RELATED, TIMES, Predicate
from jobmeter.registry.rows import ALIVE_MS
from jobmeter.registry.schema import SAMPLED
from jobmeter.registry.statements import clean

ORDERS: dict[str, tuple[str, ...]] = {
    **{name: (name, "created_sort", "id", "project") for name in TEXTS if name not in {"project", "status"}},
    **{name: (column, "id", "project") for name, column in TIMES.items()},
    **{name: (name, "id", "project") for name in ("name", "updated", "duration")},
    "id": ("id", "project"),
    "project": ("project", "created_sort", "id"),
    "state": ("state", "created_sort", "id", "project"),
}
"""The columns of each sort, the first one first."""

Rows = NDArray[np.int32]
Lookup = Callable[[Predicate, Rows], Iterable[int]]
"""Which of those rows meet a predicate, before it is negated, on what the columns do not have."""


def matching(
    table: Table, question: JobFilter, predicates: Iterable[Predicate], now_ms: int, lookup: Lookup
) -> NDArray[np.int32]:
    """The rows of the jobs that meet every demand; ``predicates`` are the question's conditions."""
    found = table.there.copy()
    for mask in _masks(table, question, now_ms):
        found &= mask
    # What has to be looked up is so for the jobs that are left.
    for one in sorted(predicates, key=lambda one: not _has(table, one)):
        found &= _met(table, one, now_ms, found, lookup)
    return np.flatnonzero(found).astype(np.int32)


def grouped(table: Table, projects: frozenset[str] | None) -> NDArray[np.int32]:
    """The rows of the jobs that name a resource group."""
    found = table.there & ~_among(table, "resource_group", [""])
    if projects is not None:
        found &= _among(table, "project", projects)
    return np.flatnonzero(found).astype(np.int32)


def living(table: Table, projects: frozenset[str] | None, group: str, span: TimeRange) -> NDArray[np.int32]:
    """The rows of the jobs of a resource group whose life meets the span."""
    found = table.there & _among(table, "resource_group", [group])
    if projects is not None:
        found &= _among(table, "project", projects)
    start, end = (table.times[name].first(table.count) for name in ("start_sort", "end_sort"))
    status = table.texts["status"]
    sampled = status.among([SAMPLED], table.count)
    # Between two samples a job lives on.
    found &= (start < span.end_ms) & (
        (end == -1) | (end >= span.start_ms) | (sampled & (end >= span.start_ms - ALIVE_MS))
    )
    return np.flatnonzero(found).astype(np.int32)


def durations(table: Table, rows: NDArray[np.int32], now_ms: int) -> NDArray[np.int64]:
    """How long each of those jobs took, or has taken until now, in ms; -1 for one that has not started."""
    start, length = (table.sort_values(name, rows) for name in ("start_sort", "end_sort"))
    length[length < 0] = now_ms
    length -= start
    np.maximum(length, 0, out=length)
    length[start < 0] = -1
    return length


def state_ranks(table: Table, rows: NDArray[np.int32], now_ms: int) -> NDArray[np.int64]:
    """What rows are sorted by for their states: the place of its name among those of all states."""
    places = {state.value: place for place, state in enumerate(sorted(JobState))}
    status = table.texts["status"]
    by_number = np.array([places.get(value, -1) for value in status.values], np.int64)
    ranks = by_number[status.numbers(table.count)[rows]]
    alive = table.sort_values("last_sample", rows) > now_ms - ALIVE_MS
    sampled = np.where(alive, places[JobState.RUNNING.value], places[JobState.UNKNOWN.value])
    return np.where(ranks < 0, sampled, ranks)


def _has(table: Table, one: Predicate) -> bool:
    """Whether the columns have what a predicate is about, ``otherwise`` aside."""
    name = one.field[0]
    return name not in RELATED and (table.fields.stores(one.field) if len(one.field) > 1 else table.stores(name))


def _masks(table: Table, question: JobFilter, now_ms: int) -> Iterable[Mask]:
    count = table.count
    if question.projects is not None:
        yield _among(table, "project", question.projects)
    for name, values in (
        ("type", question.types),
        ("user", question.users),
        ("resource_group", question.resource_groups),
        ("workspace", question.workspaces),
    ):
        if values:
            yield _among(table, name, map(clean, values))
    if question.states:
        yield _states(table, question.states, now_ms)
    if question.ids:
        yield table.names["id"].among([clean(name) for name in question.ids], count)
    if question.name_contains:
        part = clean(question.name_contains).casefold()
        yield table.names["name"].holding([part], count) | table.names["id"].holding([part], count)
    created = table.times["created_sort"].first(count)
    if question.created_from is not None:
        yield created >= question.created_from
    if question.created_to is not None:
        yield created < question.created_to


def _among(table: Table, name: str, values: Iterable[str]) -> Mask:
    return table.texts[name].among(values, table.count)


def _states(table: Table, states: frozenset[JobState], now_ms: int) -> Mask:
    status = table.texts["status"]
    found = status.among((state.value for state in states), table.count)
    sampled = status.among([SAMPLED], table.count)
    alive = table.times["last_sample"].first(table.count) > now_ms - ALIVE_MS
    if JobState.RUNNING in states:
        found |= sampled & alive
    if JobState.UNKNOWN in states:
        found |= sampled & ~alive
    return found


def _met(table: Table, one: Predicate, now_ms: int, candidates: Mask, lookup: Lookup) -> Mask:
    """Which rows meet it. True or false of rows that are no candidates."""
    found = _plain(table, one, now_ms, candidates, lookup)
    if one.otherwise is not None:
        there = _met(table, one.presence, now_ms, candidates, lookup)
        found = (there & found) | (~there & _met(table, one.otherwise, now_ms, candidates, lookup))
    return ~found if one.negated else found


def _plain(table: Table, one: Predicate, now_ms: int, candidates: Mask, lookup: Lookup) -> Mask:
    name = one.field[0]
    if not _has(table, one):
        found = np.zeros(table.count, np.bool_)
        found[list(lookup(one, np.flatnonzero(candidates).astype(np.int32)))] = True
        return found
    if len(one.field) > 1:
        return table.fields.meeting(one, table.count)
    if name in TIMES:
        return _of_number(one, table.times[TIMES[name]].first(table.count))
    if name == "duration":
        return _of_number(one, durations(table, np.arange(table.count, dtype=np.int32), now_ms))
    column = table.column(name)
    return (column.holding if one.operator is Operator.CONTAINS else column.among)(one.texts, table.count)


def _of_number(one: Predicate, numbers: NDArray[np.int64]) -> Mask:
    # A time that is unknown is -1.
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

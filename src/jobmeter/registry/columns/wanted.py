"""Which rows a listing means: each of its demands is one operation on a column."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.job import Condition, JobFilter, JobState, Operator
from jobmeter.model.time import TimeRange
from jobmeter.registry.columns.coded import Mask
from jobmeter.registry.columns.names import Names
from jobmeter.registry.columns.table import LONG, NAMES, TEXTS, Table
from jobmeter.registry.conditions import both, extra_values, number_values, text_values
from jobmeter.registry.functions import clean
from jobmeter.registry.rows import ALIVE_MS
from jobmeter.registry.schema import SAMPLED

_NUMBERS = {"created": "created_sort", "start": "start_sort", "end": "end_sort"}

ORDERS: dict[str, tuple[str, ...]] = {
    **{name: (name, "created_sort", "id", "project") for name in TEXTS if name not in {"project", "status"}},
    **{name: (column, "id", "project") for name, column in _NUMBERS.items()},
    **{name: (name, "id", "project") for name in ("name", "updated", "duration")},
    "id": ("id", "project"),
    "project": ("project", "created_sort", "id"),
    "state": ("state", "created_sort", "id", "project"),
}
"""What each sort goes by, first things first."""

Nodes = Callable[[Sequence[str]], Iterable[tuple[str, str]]]
"""The keys of the jobs that have a replica on one of those nodes."""


def answers(table: Table, question: JobFilter) -> bool:
    """False for a question with a demand on something that the columns do not have."""
    return "\n" not in question.name_contains and all(
        _answers(table, field) for one in question.conditions for field in (one.field, one.otherwise) if field
    )


def matching(table: Table, question: JobFilter, now_ms: int, nodes: Nodes) -> NDArray[np.int32]:
    """The rows of the jobs that meet every demand. The caller has checked ``answers``, and that they can be meant."""
    found = table.there.copy()
    for mask in _masks(table, question, now_ms):
        found &= mask
    for one in question.conditions:
        found &= _condition(table, one, now_ms, nodes)
    return np.flatnonzero(found).astype(np.int32)


def living(table: Table, projects: frozenset[str] | None, group: str, span: TimeRange) -> NDArray[np.int32]:
    """The rows of the jobs of a resource group whose life meets the span, as ``groups`` has it."""
    found = table.there & _among(table, "resource_group", [group])
    if projects is not None:
        found &= _among(table, "project", projects)
    start, end = (table.times[name].first(table.count) for name in ("start_sort", "end_sort"))
    status = table.texts["status"]
    sampled = status.among(status.known([SAMPLED]), table.count)
    # Between two samples a job lives on.
    found &= (start < span.end_ms) & (
        (end == -1) | (end >= span.start_ms) | (sampled & (end >= span.start_ms - ALIVE_MS))
    )
    return np.flatnonzero(found).astype(np.int32)


def durations(table: Table, rows: NDArray[np.int32], now_ms: int) -> NDArray[np.int64]:
    """How long each of those jobs took, as ``conditions.duration`` has it."""
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


def _answers(table: Table, field: str) -> bool:
    if field in LONG:
        return table.keeps(field)
    kind, _, name = field.partition(".")
    if kind == "extra" and "/" in name:
        return False
    return kind not in {"labels", "extra"} or table.fields.keeps(_field(kind, name))


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
    column = table.texts[name]
    return column.among(column.known(values), table.count)


def _states(table: Table, states: frozenset[JobState], now_ms: int) -> Mask:
    status = table.texts["status"]
    found = status.among(status.known(state.value for state in states), table.count)
    sampled = status.among(status.known([SAMPLED]), table.count)
    alive = table.times["last_sample"].first(table.count) > now_ms - ALIVE_MS
    if JobState.RUNNING in states:
        found |= sampled & alive
    if JobState.UNKNOWN in states:
        found |= sampled & ~alive
    return found


def _condition(table: Table, one: Condition, now_ms: int, nodes: Nodes) -> Mask:
    if one.otherwise:
        fits, there, other = (_condition(table, part, now_ms, nodes) for part in both(one))
        found = (there & fits) | (~there & other)
        return ~found if one.operator is Operator.NOT_IN else found
    if one.field in _NUMBERS:
        return _of_number(one, table.times[_NUMBERS[one.field]].first(table.count))
    if one.field == "duration":
        return _of_number(one, durations(table, np.arange(table.count, dtype=np.int32), now_ms))
    kind, _, name = one.field.partition(".")
    if kind in {"labels", "extra"}:
        found = _of_field(table, one, _field(kind, name))
    elif one.field == "node":
        found = np.zeros(table.count, np.bool_)
        rows = (table.row(project, job) for project, job in nodes(text_values(one)))
        found[[row for row in rows if row is not None]] = True
    else:
        found = _of_text(table, one)
    return ~found if one.operator is Operator.NOT_IN else found


def _of_field(table: Table, one: Condition, field: tuple[str, ...]) -> Mask:
    values = extra_values(one)
    operator = Operator.IN if one.operator is Operator.NOT_IN else one.operator
    return table.fields.meeting(field, operator, values, table.count)


def _of_text(table: Table, one: Condition) -> Mask:
    values = text_values(one)
    column = table.names[one.field] if one.field in NAMES else table.texts[one.field]
    if isinstance(column, Names):
        if one.operator is Operator.CONTAINS:
            return column.holding([value.casefold() for value in values], table.count)
        return column.among(values, table.count)
    if one.operator is Operator.CONTAINS:
        return column.among(column.holding(value.casefold() for value in values), table.count)
    return column.among(column.known(values), table.count)


def _of_number(one: Condition, numbers: NDArray[np.int64]) -> Mask:
    # A time that is not known is -1.
    known = numbers >= 0
    values = number_values(one)
    if one.operator is Operator.BETWEEN:
        low, high = values
        if low is not None:
            known &= numbers >= low
        if high is not None:
            known &= numbers <= high
        return known
    inside = known & np.isin(numbers, np.array([value for value in values if value is not None], np.int64))
    return ~inside if one.operator is Operator.NOT_IN else inside


def _field(kind: str, name: str) -> tuple[str, ...]:
    if kind == "labels":
        return kind, clean(name)
    dialect, _, key = name.partition(".")
    return kind, clean(dialect), clean(key)

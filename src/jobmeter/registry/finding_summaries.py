"""Summaries of the findings of many jobs for a listing, from the events of findings; see ``finding_filter``."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.model.event import LEVEL_OF
from jobmeter.model.finding import (
    FindingMessage,
    FindingSummary,
    Severity,
    count_subjects,
    rank_severity,
    read_message,
    read_start,
)
from jobmeter.registry.finding_filter import ENDED, FOUND
from jobmeter.registry.schema import events
from jobmeter.registry.statements import iterate_chunks, iterate_job_chunks

MOST = 200
"""Most findings, and ends of findings, read for a job."""
_HEAD = 300
"""Characters read from a message: its rule and its subject."""
_TAIL = len(" (since 2026-01-01T00:00:00Z)")
"""Characters read from the end of a message: the time at which its fault began."""
_IDLE = "gpu_idle_allocated"
_column = events.c
SEVERITIES = {level.value: severity for severity, level in LEVEL_OF.items()}
_BY_SEVERITY = sa.case(*((_column.level == LEVEL_OF[one].value, rank) for rank, one in enumerate(Severity)), else_=-1)

_Key = tuple[str, str]
"""A rule and its subject."""


class _Found(msgspec.Struct, frozen=True):
    """An event of a finding: its place in the table, and whether the finding is open.

    ``order`` is its place among the findings of its job.
    """

    row: int
    severity: Severity
    open: bool
    order: tuple[object, ...]


def read_finding_summaries(connection: sa.Connection, jobs: Iterable[tuple[str, str]]) -> list[FindingSummary]:
    """Return the findings of each job that has any."""
    return [one for project, ids in iterate_job_chunks(jobs) for one in _summarise_project(connection, project, ids)]


def _summarise_project(connection: sa.Connection, project: str, ids: Sequence[str]) -> Iterator[FindingSummary]:
    ends = _ends(connection, project, ids)
    # A finding that closed and opened again counts once, with its worst severity.
    found: dict[str, dict[_Key, _Found]] = {}
    for row in connection.execute(_select_worst(project, ids)):
        read = read_message(row.head, row.subject)
        if read is not None:
            key = read.rule, read.subject
            is_open = bool(row.subject) and ends.get((row.job, *key), -1) < row.time
            own = found.setdefault(row.job, {})
            if key not in own or (is_open and not own[key].open):
                own[key] = _place_finding(row, read, is_open=is_open)
    ordered = {job: sorted(own.items(), key=lambda one: one[1].order) for job, own in found.items()}
    idle = {
        job: [one.row for (rule, _), one in findings if rule == _IDLE and one.open] for job, findings in ordered.items()
    }
    wanted = [findings[0][1].row for findings in ordered.values()]
    messages = _messages(connection, [*wanted, *(row for rows in idle.values() for row in rows)])
    for job, findings in ordered.items():
        first = findings[0][1]
        sentence, start = messages.get(first.row, ("", None))
        yield FindingSummary(
            id=job,
            project=project,
            severity=first.severity,
            count=len(findings),
            rules=list(dict.fromkeys(rule for (rule, _), _ in findings)),
            sentence=sentence,
            start=start,
            open=sum(one.open for _, one in findings),
            idle_devices=sum(count_subjects(messages[row][0]) for row in idle[job] if row in messages),
        )


def _place_finding(row: sa.Row[Any], read: FindingMessage, *, is_open: bool) -> _Found:
    """Return a finding with its sort key, which has the row number: an ended job's findings are stored in order."""
    severity, reported = SEVERITIES.get(row.level, Severity.INFO), bool(row.subject)
    start = read_start(row.tail)
    known = rank_severity(
        severity, passed=not is_open, reported=reported, start=row.time if start is None else start, rule=read.rule
    )
    return _Found(row.id, severity, is_open, (known[:4], known[4:] if reported else (), row.id))


def _select_worst(project: str, ids: Sequence[str]) -> sa.Select[Any]:
    """Select the findings of each job, worst first, then newest first."""
    order = (_BY_SEVERITY.desc(), _column.time.desc(), _column.id.desc())
    place = sa.func.row_number().over(partition_by=_column.job, order_by=order).label("place")
    head = sa.func.substr(_column.message, 1, _HEAD).label("head")
    tail = sa.func.substr(_column.message, sa.func.length(_column.message) - _TAIL + 1).label("tail")
    mine = sa.select(_column.id, _column.job, _column.level, _column.time, _column.subject, head, tail, place)
    listed = mine.where(FOUND, _column.project == project, _column.job.in_(ids)).subquery()
    return sa.select(listed).where(listed.c.place <= MOST).order_by(listed.c.job, listed.c.place)


def _ends(connection: sa.Connection, project: str, ids: Sequence[str]) -> dict[tuple[str, str, str], int]:
    """Return the last time at which each finding of these jobs ended, by job, rule and subject."""
    place = sa.func.row_number().over(partition_by=_column.job, order_by=_column.time.desc()).label("place")
    head = sa.func.substr(_column.message, 1, _HEAD).label("head")
    mine = sa.select(_column.job, _column.subject, _column.time, head, place)
    listed = mine.where(ENDED, _column.project == project, _column.job.in_(ids)).subquery()
    found: dict[tuple[str, str, str], int] = {}
    for row in connection.execute(sa.select(listed).where(listed.c.place <= MOST)):
        read = read_message(row.head, row.subject)
        if read is not None:
            key = row.job, read.rule, read.subject
            found[key] = max(row.time, found.get(key, row.time))
    return found


def _messages(connection: sa.Connection, rows: Sequence[int]) -> dict[int, tuple[str, int | None]]:
    """Return the sentence of each event that is a finding, and the time at which its fault began, else the event's."""
    found: dict[int, tuple[str, int | None]] = {}
    for some in iterate_chunks(sorted(set(rows))):
        columns = (_column.id, _column.message, _column.subject, _column.time)
        for row in connection.execute(sa.select(*columns).where(_column.id.in_(some))):
            read = read_message(row.message, row.subject)
            if read is not None:
                found[row.id] = read.sentence, row.time if read.start is None else read.start
    return found

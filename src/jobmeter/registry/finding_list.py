"""Findings of all jobs, the newest first, from the events of findings; see ``finding_filter``."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.model.finding import FindingMessage, ListedFinding, Severity, read_message
from jobmeter.registry.finding_filter import FOUND, is_open, match_findings, select_jobs
from jobmeter.registry.finding_summaries import SEVERITIES
from jobmeter.registry.schema import events
from jobmeter.registry.statements import iterate_job_chunks, match_names

MOST_EVENTS = 20_000
"""Most events that a statement reads."""
_CHUNK = 200
_LONGEST = 2_000
_column = events.c
_OPEN = is_open().label("open")
_COLUMNS = (_column.project, _column.job, _column.subject, _column.level, _column.time)
_MESSAGE = sa.func.substr(_column.message, 1, _LONGEST).label("message")


class EventsOfFindings(msgspec.Struct, frozen=True, kw_only=True):
    """Question for findings of these projects (None: all) with one of the ``values`` of a condition (empty: any).

    With ``jobs``, (project, id), only open findings of these jobs. ``count`` is the number of findings to return at
    most.
    """

    count: int
    projects: frozenset[str] | None = None
    values: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    jobs: tuple[tuple[str, str], ...] | None = None


def read_findings(connection: sa.Connection, question: EventsOfFindings) -> list[ListedFinding]:
    """Return the newest findings: each once, with its last report.

    Reads at most ``MOST_EVENTS`` events. For named jobs, the limit applies to each ``CHUNK`` of them.
    """
    found: dict[tuple[str, str, str, str], ListedFinding] = {}
    with closing(_rows(connection, question)) as rows:
        for row in rows:
            read = read_message(row.message, row.subject)
            if read is None:
                continue
            found.setdefault((row.project, row.job, read.rule, read.subject), _make_listed(row, read))
            if question.jobs is None and len(found) >= question.count:
                break
    ordered = sorted(found.values(), key=lambda one: one.time, reverse=True)
    return ordered[: question.count]


def _make_listed(row: sa.Row[Any], read: FindingMessage) -> ListedFinding:
    return ListedFinding(
        project=row.project,
        job=row.job,
        rule=read.rule,
        severity=SEVERITIES.get(row.level, Severity.INFO),
        sentence=read.sentence,
        start=row.time if read.start is None else min(read.start, row.time),
        time=row.time,
        open=bool(row.open),
    )


def _rows(connection: sa.Connection, question: EventsOfFindings) -> Generator[sa.Row[Any], None, None]:
    for conditions in _groups(question):
        statement = sa.select(*_COLUMNS, _MESSAGE, _OPEN).where(FOUND, *conditions)
        newest = statement.order_by(_column.time.desc(), _column.id.desc()).limit(MOST_EVENTS)
        with closing(connection.execute(newest, execution_options={"yield_per": _CHUNK})) as result:
            yield from result


def _groups(question: EventsOfFindings) -> Iterator[Sequence[sa.ColumnElement[bool]]]:
    """Yield the conditions of each statement: one for all jobs, or one for each run of named jobs."""
    common = [match_names(_column.project, question.projects)]
    if question.values:
        common.append(match_findings(question.values))
    if question.start is not None:
        common.append(_column.time >= question.start)
    if question.end is not None:
        common.append(_column.time < question.end)
    if question.jobs is None:
        yield common
        return
    for project, ids in iterate_job_chunks(question.jobs):
        yield [*common, is_open(), *select_jobs(project, ids)]

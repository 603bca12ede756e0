"""Summaries of the findings of many jobs for a listing, from the events of findings; see ``finding_filter``."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.event import LEVEL_OF
from jobmeter.model.finding import FindingSummary, Severity
from jobmeter.registry.finding_filter import FOUND
from jobmeter.registry.schema import events
from jobmeter.registry.statements import job_chunks

MOST = 200
"""Most findings read for a job."""
_HEAD = 300
"""Characters read from a message: its rule and its subject."""
_RULE = re.compile(r"[a-z0-9_]+")
_column = events.c
_SEVERITIES = {level.value: severity for severity, level in LEVEL_OF.items()}
_BY_SEVERITY = sa.case(*((_column.level == LEVEL_OF[one].value, rank) for rank, one in enumerate(Severity)), else_=-1)


def finding_summaries(connection: sa.Connection, jobs: Iterable[tuple[str, str]]) -> list[FindingSummary]:
    """Return the findings of each job that has any."""
    return [one for project, ids in job_chunks(jobs) for one in _of_project(connection, project, ids)]


def _of_project(connection: sa.Connection, project: str, ids: Sequence[str]) -> Iterator[FindingSummary]:
    # A finding that closed and opened again counts once, with its worst severity.
    found: dict[str, dict[str, Severity]] = {}
    for row in connection.execute(_worst(project, ids)):
        if _RULE.match(row.head):
            subject = row.head.partition("): ")[0]
            found.setdefault(row.job, {}).setdefault(subject, _SEVERITIES.get(row.level, Severity.INFO))
    for job, findings in found.items():
        rules = dict.fromkeys(name[0] for name in map(_RULE.match, findings) if name)
        severity = next(iter(findings.values()))
        yield FindingSummary(id=job, project=project, severity=severity, count=len(findings), rules=list(rules))


def _worst(project: str, ids: Sequence[str]) -> sa.Select[Any]:
    """Select the findings of each job, worst first, then newest first."""
    order = (_BY_SEVERITY.desc(), _column.time.desc(), _column.id.desc())
    place = sa.func.row_number().over(partition_by=_column.job, order_by=order).label("place")
    head = sa.func.substr(_column.message, 1, _HEAD).label("head")
    mine = sa.select(_column.job, _column.level, head, place)
    listed = mine.where(FOUND, _column.project == project, _column.job.in_(ids)).subquery()
    return sa.select(listed).where(listed.c.place <= MOST).order_by(listed.c.job, listed.c.place)

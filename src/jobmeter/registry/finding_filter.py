"""Finds jobs by the rule and severity of their stored findings.

A finding is stored as an event of the job (reason ``Finding``). Its message begins with the rule's name and its level
follows from its severity. A condition on ``finding`` has values of the form ``SEVERITY/RULE``; an empty part matches
any. A job matches if one of its findings fits one of the values.
"""

import string
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.model.event import FINDING, FINDING_ENDED, LEVEL_OF, EventSource
from jobmeter.model.finding import Severity
from jobmeter.registry.schema import events

_column = events.c
_NAMES = f"{string.ascii_lowercase}{string.digits}_"
"""Letters of the names of rules."""


def _is(reason: sa.ColumnElement[str], text: str) -> sa.ColumnElement[bool]:
    return reason == sa.literal_column(f"'{text}'")  # as the condition of its index has it


FOUND = sa.and_(_is(_column.reason, FINDING), _column.source != EventSource.STATE.value)
"""Selects the rows of findings. A client's event may have that reason; the server's own state changes cannot."""
ENDED = sa.and_(_is(_column.reason, FINDING_ENDED), _column.subject != "")
"""Selects the rows of ends of a running job's findings."""


def make_values(severities: Iterable[Severity], rules: Iterable[str]) -> tuple[str, ...]:
    """Return the values of a condition for severities and rules, each empty for any; no values if both are empty."""
    which, names = [str(severity) for severity in sorted(severities)], sorted(rules)
    if not which and not names:
        return ()
    return tuple(f"{severity}/{name}" for severity in which or [""] for name in names or [""])


def select_keys(given: Iterable[str]) -> sa.Select[tuple[str, str]]:
    """Select project and id of each job with a matching finding; ``conditions`` has checked the values."""
    return sa.select(_column.project, _column.job).where(FOUND, match_findings(given)).distinct()


def open_keys(given: Iterable[str]) -> sa.Select[tuple[str, str]]:
    """Select project and id of each job with an open matching finding."""
    return sa.select(_column.project, _column.job).where(FOUND, is_open(), match_findings(given)).distinct()


def is_open() -> sa.ColumnElement[bool]:
    """Return the condition of an open finding: reported while its job runs, and not ended since."""
    return sa.and_(_column.subject != "", ~_has_ended_since())


def match_findings(given: Iterable[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a finding has one of these values."""
    return sa.or_(sa.false(), *map(_match_value, given))


def select_jobs(project: str, ids: Sequence[str]) -> Sequence[sa.ColumnElement[bool]]:
    """Return the conditions that narrow ``open_keys`` to some jobs of a project."""
    return _column.project == project, _column.job.in_(ids)


def _has_ended_since() -> sa.Exists:
    """Return the condition that an event ended the finding: the same rule and subject, no earlier."""
    end = events.alias("finding_end").c
    same = (end.project == _column.project, end.job == _column.job, end.subject == _column.subject)
    rule = _rule(end.message) == _rule(_column.message)
    return sa.exists().where(_is(end.reason, FINDING_ENDED), *same, end.time + 0 >= _column.time, rule)


def _rule(message: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
    """Return the rule at the beginning of a message; both databases have these functions."""
    return sa.func.substr(message, 1, sa.func.length(message) - sa.func.length(sa.func.ltrim(message, _NAMES)))


def _match_value(value: str) -> sa.ColumnElement[bool]:
    severity, _, rule = value.partition("/")
    parts: list[sa.ColumnElement[bool]] = [sa.true()]
    if severity:
        parts.append(_column.level == LEVEL_OF[Severity(severity)].value)
    if rule:
        parts.append(sa.func.substr(_column.message, 1, len(rule) + 1) == f"{rule} ")
    return sa.and_(*parts)

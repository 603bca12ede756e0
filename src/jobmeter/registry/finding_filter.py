"""Finds jobs by the rule and severity of their stored findings.

A finding is stored as an event of the job (reason ``Finding``). Its message begins with the rule's name and its level
follows from its severity. A condition on ``finding`` has values of the form ``SEVERITY/RULE``; an empty part matches
any. A job matches if one of its findings fits one of the values.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from jobmeter.model.event import FINDING, LEVEL_OF, EventSource
from jobmeter.model.finding import Severity
from jobmeter.registry.schema import events

_column = events.c
FOUND = sa.and_(_column.reason == sa.literal_column(f"'{FINDING}'"), _column.source != EventSource.STATE.value)
"""Selects the rows of findings. A client's event may have that reason; the server's own state changes cannot."""


def values(severities: Iterable[Severity], rules: Iterable[str]) -> tuple[str, ...]:
    """Return the values of a condition for severities and rules, each empty for any; no values if both are empty."""
    which, names = [str(severity) for severity in sorted(severities)], sorted(rules)
    if not which and not names:
        return ()
    return tuple(f"{severity}/{name}" for severity in which or [""] for name in names or [""])


def keys(given: Iterable[str]) -> sa.Select[tuple[str, str]]:
    """Select project and id of each job with a matching finding; ``conditions`` has checked the values."""
    fits = [_fits(value) for value in given]
    return sa.select(_column.project, _column.job).where(FOUND, sa.or_(sa.false(), *fits)).distinct()


def _fits(value: str) -> sa.ColumnElement[bool]:
    severity, _, rule = value.partition("/")
    parts: list[sa.ColumnElement[bool]] = [sa.true()]
    if severity:
        parts.append(_column.level == LEVEL_OF[Severity(severity)].value)
    if rule:
        parts.append(sa.func.substr(_column.message, 1, len(rule) + 1) == f"{rule} ")
    return sa.and_(*parts)

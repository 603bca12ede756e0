"""Jobs by their stored findings: which rule found something, and how severe that was.

A finding is stored as an event of the job (reason ``Finding``) whose message begins with the rule's name and whose
level follows from its severity. A condition on ``finding`` has values of the form ``SEVERITY/RULE``, either part empty
where any will do; the job has to have one finding that fits one of the values.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from jobmeter.model.event import FINDING, LEVEL_OF, EventSource
from jobmeter.model.finding import Severity
from jobmeter.registry.schema import events

_column = events.c
FOUND = sa.and_(_column.reason == sa.literal_column(f"'{FINDING}'"), _column.source != EventSource.STATE.value)
"""The rows of findings. A client's event may have that reason; the server's own state changes cannot."""


def values(severities: Iterable[Severity], rules: Iterable[str]) -> tuple[str, ...]:
    """The values of a condition for those severities and rules, each empty for any; nothing where both are."""
    which, names = [str(severity) for severity in sorted(severities)], sorted(rules)
    if not which and not names:
        return ()
    return tuple(f"{severity}/{name}" for severity in which or [""] for name in names or [""])


def keys(given: Iterable[str]) -> sa.Select[tuple[str, str]]:
    """Project and id of each job that has such a finding; ``conditions`` has checked the values."""
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

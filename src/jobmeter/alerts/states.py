"""Computes the next states of a rule's alerts from the current series of its expression."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from jobmeter.alerts.rules import AlertRule
from jobmeter.model.alert import ALERT_NAME, Alert, AlertState
from jobmeter.model.time import MINUTE
from jobmeter.promql.labels import Labels, drop_name
from jobmeter.promql.numbers import format_number

RESOLVED_MS = 15 * MINUTE
"""Time for which an alert remains after it was resolved, so that its end can be reported."""
PROJECT = "project"


class EvaluationError(ValueError):
    """A rule whose expression has too many series, or the same labels twice."""


def advance_states(
    rule: AlertRule, before: Mapping[str, Alert], series: Sequence[tuple[Labels, float]], now_ms: int, most: int
) -> dict[str, Alert]:
    """Return the alerts of a rule by fingerprint; ``before`` has the alerts of the last evaluation.

    Each series has a pending alert, which fires when the series has lasted ``hold_ms``. A firing alert without its
    series is resolved after ``keep_ms``; a pending one disappears. Raises EvaluationError.
    """
    if len(series) > most:
        raise EvaluationError(f"the expression has {len(series)} series; the limit is {most}")
    found: dict[str, Alert] = {}
    for labels, value in series:
        alert = _alert(rule, labels, value, now_ms)
        if alert.fingerprint in found:
            raise EvaluationError("two series have the same labels once the rule's labels are applied")
        found[alert.fingerprint] = _continue_alert(rule, alert, before.get(alert.fingerprint), now_ms)
    for fingerprint, old in before.items():
        if fingerprint not in found and (ended := _end_alert(rule, old, now_ms)) is not None:
            found[fingerprint] = ended
    return found


def _alert(rule: AlertRule, labels: Labels, value: float, now_ms: int) -> Alert:
    own = dict(labels)
    final = dict(drop_name(labels))
    final |= {name: template.render(own, value) for name, template in rule.labels.items()}
    final = {name: text for name, text in sorted({**final, ALERT_NAME: rule.name}.items()) if text}
    return Alert(
        fingerprint=compute_fingerprint(rule.id, final),
        rule=rule.id,
        project=own.get(PROJECT, ""),
        labels=final,
        annotations={name: template.render(own, value) for name, template in rule.annotations.items()},
        state=AlertState.PENDING,
        value=format_number(value),
        started=now_ms,
        updated=now_ms,
    )


def compute_fingerprint(rule: str, labels: Mapping[str, str]) -> str:
    """Return the identity of an alert: 16 hexadecimal digits."""
    return blake2b(msgspec.json.encode([rule, sorted(labels.items())]), digest_size=8).hexdigest()


def _continue_alert(rule: AlertRule, alert: Alert, old: Alert | None, now_ms: int) -> Alert:
    if old is not None and old.state is not AlertState.RESOLVED:
        # A time in the future comes from a clock that was set back: waits count from now.
        fired = None if old.fired is None else min(old.fired, now_ms)
        alert = replace(alert, state=old.state, started=min(old.started, now_ms), fired=fired)
    if alert.state is AlertState.PENDING and now_ms - alert.started >= rule.hold_ms:
        return replace(alert, state=AlertState.FIRING, fired=now_ms)
    return alert


def _end_alert(rule: AlertRule, old: Alert, now_ms: int) -> Alert | None:
    match old.state:
        case AlertState.PENDING:
            return None
        case AlertState.RESOLVED:
            return None if is_over(old, now_ms) else old
        case AlertState.FIRING:
            missing = now_ms if old.missing is None else min(old.missing, now_ms)
            if rule.keep_ms and now_ms - missing < rule.keep_ms:
                return replace(old, missing=missing)
            return resolve(old, now_ms)


def resolve(alert: Alert, now_ms: int) -> Alert:
    """Return the alert as resolved now."""
    return replace(alert, state=AlertState.RESOLVED, resolved=now_ms, missing=None, updated=now_ms)


def is_over(alert: Alert, now_ms: int) -> bool:
    """Return True if an alert was resolved so long ago that it is deleted. A time in the future is long ago."""
    return alert.resolved is not None and not 0 <= now_ms - alert.resolved < RESOLVED_MS


def limit_alerts(alerts: dict[str, Alert], most: int) -> dict[str, Alert]:
    """Return at most ``most`` alerts by fingerprint. The alerts resolved longest ago are dropped first."""
    if len(alerts) <= most:
        return alerts
    order = sorted(alerts.values(), key=lambda one: (one.resolved is not None, -(one.resolved or 0)))
    return {one.fingerprint: one for one in order[: max(most, 0)]}

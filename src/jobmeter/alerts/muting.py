"""Silences and inhibitions: both suppress the messages of firing alerts."""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.alert import POSTED, Alert, AlertPage, LabelMatcher, Silence
from jobmeter.model.grouping import group_pairs
from jobmeter.promql.regex import match_texts

MOST_SILENCES, MOST_MATCHERS, MOST_TEXT = 1_000, 32, 1_000
"""Most silences of a server, matchers of a silence, and characters of its texts."""
_MATCHER = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


class Inhibition(msgspec.Struct, frozen=True):
    """Rule that mutes alerts of ``target`` while an alert of ``source`` with the same values of ``equal`` fires."""

    source: tuple[LabelMatcher, ...]
    target: tuple[LabelMatcher, ...]
    equal: tuple[str, ...]


CASCADES = Inhibition((LabelMatcher("role", "root"),), (LabelMatcher("role", "cascade"),), ("project", "job_id"))
"""Mutes findings that follow from another finding while their root cause fires."""


def fulfils(matchers: Iterable[LabelMatcher], labels: Mapping[str, str]) -> bool:
    """Return True if labels fulfil all matchers. A missing label counts as an empty text."""
    return all(_fulfils(one, labels.get(one.name, "")) for one in matchers)


def _fulfils(matcher: LabelMatcher, text: str) -> bool:
    if not matcher.is_regex:
        return (text == matcher.value) is matcher.is_equal
    return bool(match_texts(matcher.value, [text])[0]) is matcher.is_equal


def select_fulfilling(matchers: Iterable[LabelMatcher], alerts: Sequence[Alert]) -> Sequence[Alert]:
    """Return the alerts whose labels fulfil all matchers, as ``fulfils``; each expression is searched once for all."""
    for one in matchers:
        if not alerts:
            break
        texts = [alert.labels.get(one.name, "") for alert in alerts]
        found = match_texts(one.value, texts).tolist() if one.is_regex else [text == one.value for text in texts]
        alerts = [alert for alert, is_match in zip(alerts, found, strict=True) if is_match is one.is_equal]
    return alerts


def check_matcher(matcher: LabelMatcher) -> LabelMatcher:
    """Return the matcher. Raises InvalidRequestError for an invalid name or regular expression."""
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", matcher.name[:MOST_TEXT]) or len(matcher.value) > MOST_TEXT:
        raise InvalidRequestError(f"{matcher.name[:64]!r} is not a label, or its value is too long", "matchers")
    _fulfils(matcher, "")
    return matcher


def parse_matcher(text: str) -> LabelMatcher:
    """Parse a text such as ``severity=~"critical|warning"``. Raises InvalidRequestError."""
    found = _MATCHER.fullmatch(text.strip())
    if found is None:
        raise InvalidRequestError(f"{text[:64]!r} is not a matcher such as severity=critical", "filter")
    name, operator, value = found.groups()
    if len(value) > 1 and value[0] == value[-1] == '"':
        try:
            value = msgspec.json.decode(value, type=str)
        except msgspec.DecodeError:
            value = value[1:-1]
    return check_matcher(LabelMatcher(name, value, operator.endswith("~"), operator[0] == "="))


def mute_alerts(
    alerts: Sequence[Alert], silences: Sequence[Silence], inhibitions: Sequence[Inhibition], now_ms: int
) -> AlertPage:
    """Return the alerts with the silences and alerts that mute each of them."""
    by_project = group_pairs((alert.project, alert) for alert in alerts)
    silenced: dict[str, list[str]] = {}
    for silence in silences:
        if silence.start <= now_ms < silence.end:
            covered = by_project.get(silence.project, []) if silence.project else alerts
            for alert in select_fulfilling(silence.matchers, covered):
                silenced.setdefault(alert.fingerprint, []).append(silence.id)
    inhibited: dict[str, list[str]] = {}
    for rule in inhibitions:
        found = select_fulfilling(rule.source, alerts)
        causes: dict[tuple[str, ...], str] = {}
        for alert in found:
            if alert.firing:
                # A writer of one project must not mute alerts of another project.
                project = alert.project if alert.rule == POSTED else ""
                causes.setdefault((project, *_values(rule, alert)), alert.fingerprint)
        # An alert that is source and target at once is muted by none, so that it does not mute itself.
        own = {one.fingerprint for one in found}
        for alert in select_fulfilling(rule.target, alerts) if causes else ():
            values = _values(rule, alert)
            cause = causes.get(("", *values)) or causes.get((alert.project, *values))
            if cause and alert.fingerprint not in own:
                inhibited.setdefault(alert.fingerprint, []).append(cause)
    return AlertPage(alerts, silenced, inhibited)


def _values(rule: Inhibition, alert: Alert) -> tuple[str, ...]:
    return tuple(alert.labels.get(name, "") for name in rule.equal)

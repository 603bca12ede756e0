"""Silences and inhibitions: firing alerts that send no messages."""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.alert import Alert, AlertPage, LabelMatcher, Silence
from jobmeter.promql.regex import full_matches

MOST_SILENCES, MOST_MATCHERS, MOST_TEXT = 1_000, 32, 1_000
"""Most silences of a server, matchers of one, and characters of their texts."""
_MATCHER = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


class Inhibition(msgspec.Struct, frozen=True):
    """A rule that mutes alerts of ``target`` while one of ``source`` fires with the same values of ``equal``."""

    source: tuple[LabelMatcher, ...]
    target: tuple[LabelMatcher, ...]
    equal: tuple[str, ...]


CASCADES = Inhibition((LabelMatcher("role", "root"),), (LabelMatcher("role", "cascade"),), ("project", "job_id"))
"""Findings that follow from another one are silent while their root cause fires."""


def fulfils(matchers: Iterable[LabelMatcher], labels: Mapping[str, str]) -> bool:
    """Return whether labels fulfil all matchers; a missing label is an empty text."""
    return all(_fulfils(one, labels.get(one.name, "")) for one in matchers)


def _fulfils(matcher: LabelMatcher, text: str) -> bool:
    if not matcher.is_regex:
        return (text == matcher.value) is matcher.is_equal
    return bool(full_matches(matcher.value, [text])[0]) is matcher.is_equal


def check_matcher(matcher: LabelMatcher) -> LabelMatcher:
    """Return a matcher. Raises InvalidRequestError for a name or a regular expression that is not valid."""
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", matcher.name[:MOST_TEXT]) or len(matcher.value) > MOST_TEXT:
        raise InvalidRequestError(f"{matcher.name[:64]!r} is not a label, or its value is too long", "matchers")
    _fulfils(matcher, "")
    return matcher


def parse_matcher(text: str) -> LabelMatcher:
    """Return the matcher of a text such as ``severity=~"critical|warning"``. Raises InvalidRequestError."""
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


def format_matcher(matcher: LabelMatcher) -> str:
    """Return a matcher as a text."""
    operator = ("=" if matcher.is_equal else "!") + ("~" if matcher.is_regex else "" if matcher.is_equal else "=")
    return f"{matcher.name}{operator}{msgspec.json.encode(matcher.value).decode()}"


def silence_covers(silence: Silence, alert: Alert, now_ms: int) -> bool:
    """Return whether a silence mutes an alert now."""
    inside = not silence.project or silence.project == alert.project
    return inside and silence.start <= now_ms < silence.end and fulfils(silence.matchers, alert.labels)


def muted(
    alerts: Sequence[Alert], silences: Sequence[Silence], inhibitions: Sequence[Inhibition], now_ms: int
) -> AlertPage:
    """Return the alerts with the silences and alerts that mute each of them."""
    active = [one for one in silences if one.start <= now_ms < one.end]
    silenced: dict[str, list[str]] = {}
    for alert in alerts:
        if found := [one.id for one in active if silence_covers(one, alert, now_ms)]:
            silenced[alert.fingerprint] = found
    inhibited: dict[str, list[str]] = {}
    for rule in inhibitions:
        sources: dict[tuple[str, ...], list[Alert]] = {}
        for alert in alerts:
            if alert.firing and fulfils(rule.source, alert.labels):
                sources.setdefault(_values(rule, alert), []).append(alert)
        for alert in alerts if sources else ():
            causes = sources.get(_values(rule, alert), ())
            # An alert that is source and target at once is muted by none, so that it does not mute itself.
            if causes and fulfils(rule.target, alert.labels) and not fulfils(rule.source, alert.labels):
                inhibited.setdefault(alert.fingerprint, []).append(causes[0].fingerprint)
    return AlertPage(alerts, silenced, inhibited)


def _values(rule: Inhibition, alert: Alert) -> tuple[str, ...]:
    return tuple(alert.labels.get(name, "") for name in rule.equal)

"""Decides which destinations get a message now: groups of alerts, their waits and their repetitions."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from jobmeter.alerts.config import ALL, AlertConfig, AlertRoute, Destination
from jobmeter.alerts.messages import ReportedAlert, write_message
from jobmeter.alerts.muting import select_fulfilling
from jobmeter.model.alert import Alert, AlertPage, AlertState, Message, NotificationGroup
from jobmeter.model.time import DAY, MINUTE

RESEND_MS = MINUTE
"""Interval at which firing alerts are sent to an Alertmanager again, which would otherwise resolve them."""
REMEMBER_MS = 90 * DAY
"""Time for which the server remembers that an owner got a message."""
_JOB, _PROJECT = "job_id", "project"


class Decision(msgspec.Struct, frozen=True):
    """Messages to send, and the groups to remember and to forget."""

    messages: list[Message]
    groups: list[NotificationGroup]
    forgotten: list[str]


class _Group(msgspec.Struct):
    key: str
    destination: Destination
    route: AlertRoute
    labels: dict[str, str]
    alerts: list[Alert]


def decide(
    config: AlertConfig, page: AlertPage, groups: Mapping[str, NotificationGroup], now_ms: int, url: str
) -> Decision:
    """Return the messages to send now. ``page`` has every alert; ``url`` is the address of this server for links."""
    made = Decision([], [], [])
    found = _group_alerts(config, page)
    for group in found.values():
        _decide(group, groups.get(group.key), now_ms, url, made)
    for key, old in groups.items():
        is_old = now_ms - old.sent > REMEMBER_MS
        if key not in found and (is_old if old.forever else AlertState.FIRING not in old.states.values() or is_old):
            made.forgotten.append(key)
    return made


def _group_alerts(config: AlertConfig, page: AlertPage) -> dict[str, _Group]:
    found: dict[str, _Group] = {}
    muted = page.silenced.keys() | page.inhibited.keys()
    reported = [
        one for one in page.alerts if one.state is AlertState.RESOLVED or (one.firing and one.fingerprint not in muted)
    ]
    for place, route, alerts in _routes(config.route, reported, "0"):
        for destination in config.destinations:
            for alert in alerts if destination.receiver == route.receiver else ():
                group = _group(place, route, destination, alert)
                found.setdefault(group.key, group).alerts.append(alert)
    return found


def _routes(
    route: AlertRoute | None, alerts: Sequence[Alert], place: str
) -> Iterator[tuple[str, AlertRoute, Sequence[Alert]]]:
    """Yield the deepest matching routes with their positions. Alerts go to a next sibling only after ``continue``."""
    if route is None or not (alerts := select_fulfilling(route.matchers, alerts)):
        return
    waiting, unmatched = alerts, alerts
    for number, child in enumerate(route.routes):
        names = _names(found := select_fulfilling(child.matchers, waiting))
        yield from _routes(child, found, f"{place}.{number}")
        unmatched = [one for one in unmatched if one.fingerprint not in names]
        if not child.goes_on:
            waiting = [one for one in waiting if one.fingerprint not in names]
    if unmatched:
        yield place, route, unmatched


def find_receivers(config: AlertConfig, alerts: Sequence[Alert]) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Return the receivers of each alert by its fingerprint, with the labels of the alert's group there."""
    found: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for _, route, some in _routes(config.route, alerts, "0"):
        for one in some:
            found.setdefault(one.fingerprint, []).append((route.receiver, _group_labels(route, one)))
    return found


def _group_labels(route: AlertRoute, alert: Alert) -> dict[str, str]:
    names = alert.labels if ALL in route.group_by else route.group_by
    return {name: alert.labels[name] for name in sorted(names) if name in alert.labels}


def _group(place: str, route: AlertRoute, destination: Destination, alert: Alert) -> _Group:
    labels = _group_labels(route, alert)
    if destination.kind == "owner":
        place = ""  # once, whatever route an alert takes
        labels = {name: alert.labels.get(name, "") for name in (_PROJECT, _JOB)} | {"alertname": alert.name}
    key = msgspec.json.encode([place, destination.name, *labels.items()]).decode()
    return _Group(key, destination, route, labels, [])


def _decide(group: _Group, old: NotificationGroup | None, now_ms: int, url: str, made: Decision) -> None:
    if group.route.is_muted(now_ms):
        return
    states = {one.fingerprint: one.state for one in group.alerts}
    fresh, ended = _changes(group, old)
    firing = [one for one in group.alerts if one.firing]
    if group.destination.kind == "owner":
        if old is not None or not firing or not group.labels[_JOB]:
            return
        reported = firing[:1]
    elif not _is_due(group, old, now_ms, changed=bool(fresh or (ended and group.destination.send_resolved))):
        if old is not None and ended and not group.destination.send_resolved:
            rest = {name: state for name, state in old.states.items() if name not in _names(ended)}
            made.groups.append(msgspec.structs.replace(old, states=rest))
        return
    else:
        reported = [*firing, *(ended if group.destination.send_resolved else ())]
    kept = {name: state for name, state in states.items() if state is AlertState.FIRING or name in _names(ended)}
    body = write_message(ReportedAlert(group.destination, group.key, group.labels, reported), now_ms, url)
    made.messages.append(Message(destination=group.destination.name, body=body, created=now_ms))
    made.groups.append(
        NotificationGroup(key=group.key, sent=now_ms, states=kept, forever=group.destination.kind == "owner")
    )


def _changes(group: _Group, old: NotificationGroup | None) -> tuple[list[Alert], list[Alert]]:
    """Return the alerts that began to fire, and those that ended, since the last message."""
    before = {} if old is None else old.states
    firing = [name for name, state in before.items() if state is AlertState.FIRING]
    sent = 0 if old is None else old.sent
    fresh = [one for one in group.alerts if one.firing and (one.fingerprint not in firing or (one.fired or 0) > sent)]
    ended = [one for one in group.alerts if one.state is AlertState.RESOLVED and one.fingerprint in firing]
    return fresh, ended


def _names(alerts: Sequence[Alert]) -> set[str]:
    return {one.fingerprint for one in alerts}


def _is_due(group: _Group, old: NotificationGroup | None, now_ms: int, *, changed: bool) -> bool:
    firing = [one for one in group.alerts if one.firing]
    continuous = group.destination.kind == "alertmanager"
    if old is None or AlertState.FIRING not in old.states.values():
        if not firing:
            return False
        since = min(one.fired or one.started for one in firing)
        return continuous or _has_passed(group.route.wait_ms, since, now_ms)
    if changed:
        return continuous or _has_passed(group.route.interval_ms, old.sent, now_ms)
    return bool(firing) and _has_passed(RESEND_MS if continuous else group.route.repeat_ms, old.sent, now_ms)


def _has_passed(length_ms: int, since_ms: int, now_ms: int) -> bool:
    """Return True if a time is over. A start in the future (a clock was set back) counts as over."""
    return not 0 <= now_ms - since_ms < length_ms

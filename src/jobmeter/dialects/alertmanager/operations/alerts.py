"""Firing alerts, alone or in the groups of their receivers."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import msgspec

from jobmeter.alerts.messages import choose_link
from jobmeter.alerts.muting import select_fulfilling
from jobmeter.dialects.alertmanager.requests import API, SHOWN, FilterRequest, answer, operation
from jobmeter.dialects.base import Answer, Steps, ask
from jobmeter.dialects.base.request import Request
from jobmeter.errors import InvalidRequestError
from jobmeter.model.alert import Alert, AlertPage, AlertsQuestion, PostAlerts, PostedAlert
from jobmeter.model.time import MINUTE, format_iso, parse_time
from jobmeter.promql.regex import match_texts

_LASTS_MS = 4 * MINUTE
_NEVER = "0001-"


class SelectionRequest(FilterRequest, frozen=True, kw_only=True):
    """A request that selects alerts."""

    receiver: Annotated[str, "A regular expression that the name of a receiver matches whole."] = ""
    active: Annotated[bool, SHOWN, "`false` leaves out active alerts."] = True
    silenced: Annotated[bool, SHOWN, "`false` leaves out silenced alerts."] = True
    inhibited: Annotated[bool, SHOWN, "`false` leaves out inhibited alerts."] = True

    def select(self, page: AlertPage) -> Iterator[Alert]:
        """Yield the firing alerts that the parameters select."""
        matches = _pattern(self.receiver)
        for one in select_fulfilling(self.matchers, page.alerts):
            silenced, inhibited = one.fingerprint in page.silenced, one.fingerprint in page.inhibited
            hidden = (
                (not self.active and not silenced and not inhibited)
                or (not self.silenced and silenced)
                or (not self.inhibited and inhibited)
            )
            names = [name for name, _ in page.receivers.get(one.fingerprint, ())]
            if one.firing and not hidden and matches(names):
                yield one


@operation(f"GET {API}/alerts", "alerts:read", name="getAlerts")
class GetAlerts(SelectionRequest, frozen=True, kw_only=True):
    """Returns the firing alerts."""

    def _steps(self) -> Steps:
        page = yield from ask(AlertsQuestion())
        return answer([_alert(page, one) for one in self.select(page)])


class _Posted(msgspec.Struct, rename={"start": "startsAt", "end": "endsAt", "address": "generatorURL"}):
    """An alert as clients post it."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    start: str | None = None
    end: str | None = None
    address: str | None = None


@operation(f"POST {API}/alerts", "alerts:write", name="postAlerts")
class PostedAlertsRequest(Request, frozen=True, kw_only=True):
    """Stores alerts of other programs: Prometheus, vmalert, amtool.

    They are grouped, routed, silenced and inhibited like the alerts of rules. They belong to the key's project; if the
    key is for all projects, the label `project` names the project. An alert ends at `endsAt`. Without `endsAt` it ends
    after `resolve_timeout` (5 minutes by default) unless it is sent again.
    """

    body: Annotated[
        bytes,
        "A list of alerts: `labels`, `annotations`, `startsAt`, `endsAt`, `generatorURL`.",
    ]

    def _steps(self) -> Steps:
        try:
            posted = msgspec.json.decode(self.call.body, type=list[_Posted])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(f"the body is not a list of alerts: {error}", "body") from error
        alerts = tuple(
            PostedAlert(
                labels=one.labels,
                annotations=one.annotations,
                start=_time(one.start, "startsAt"),
                end=_time(one.end, "endsAt"),
                address=one.address or "",
            )
            for one in posted
        )
        yield from ask(PostAlerts(alerts=alerts))
        return Answer(200, b"")


def _time(text: str | None, field: str) -> int | None:
    """Return a time in ms; None without a text, and for the year 1, which Go programs send for a missing time."""
    return None if not text or text.startswith(_NEVER) else parse_time(text, field)


@operation(f"GET {API}/alerts/groups", "alerts:read", name="getAlertGroups")
class GetAlertGroups(SelectionRequest, frozen=True, kw_only=True):
    """Returns the firing alerts by receiver and group."""

    def _steps(self) -> Steps:
        page = yield from ask(AlertsQuestion())
        found: dict[tuple[str, tuple[tuple[str, str], ...]], list[dict[str, Any]]] = {}
        for one in self.select(page):
            for receiver, labels in page.receivers.get(one.fingerprint, ()):
                found.setdefault((receiver, tuple(sorted(labels.items()))), []).append(_alert(page, one))
        return answer(
            [
                {"labels": dict(labels), "receiver": {"name": receiver}, "alerts": some}
                for (receiver, labels), some in sorted(found.items(), key=lambda one: one[0])
            ]
        )


def _pattern(text: str) -> Callable[[Sequence[str]], bool]:
    """Return a function that tests whether one of the names matches the whole pattern; an empty one matches all."""
    if not text:
        return lambda _: True
    matches = cache(lambda name: bool(match_texts(text, [name])[0]))
    matches("")
    return lambda names: any(map(matches, names))


def _alert(page: AlertPage, one: Alert) -> dict[str, Any]:
    silenced, inhibited = page.silenced.get(one.fingerprint, []), page.inhibited.get(one.fingerprint, [])
    return {
        "annotations": one.annotations,
        "endsAt": format_iso(one.updated + _LASTS_MS if one.ends is None else one.ends),
        "fingerprint": one.fingerprint,
        "receivers": [{"name": name} for name, _ in page.receivers.get(one.fingerprint, ())],
        "startsAt": format_iso(one.fired or one.started),
        "status": {
            "inhibitedBy": inhibited,
            "silencedBy": silenced,
            "state": "suppressed" if silenced or inhibited else "active",
        },
        "updatedAt": format_iso(one.updated),
        "generatorURL": choose_link(one, page.url),
        "labels": one.labels,
    }

"""The operations: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from jobmeter import __version__
from jobmeter.access.call import Call
from jobmeter.alerts.messages import link
from jobmeter.alerts.muting import MOST_MATCHERS, fulfilling, fulfils, parse_matcher
from jobmeter.dialects.base import Answer, Context, Operation, Parameter, Steps, execute
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError
from jobmeter.model.alert import (
    Alert,
    AlertingQuestion,
    AlertPage,
    AlertsQuestion,
    ExpireSilence,
    LabelMatcher,
    PutSilence,
    Silence,
    SilencesQuestion,
)
from jobmeter.model.time import MINUTE, iso, parse_time
from jobmeter.promql.regex import full_matches

_LASTS_MS = 4 * MINUTE


def alerts(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """Answer the firing alerts that the parameters select."""
    page = yield from execute(AlertsQuestion())
    return _json([_alert(page, one) for one in _selected(call, page)])


def alert_groups(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """Answer the firing alerts by receiver and group."""
    page = yield from execute(AlertsQuestion())
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[dict[str, Any]]] = {}
    for one in _selected(call, page):
        for receiver, labels in page.receivers.get(one.fingerprint, ()):
            found.setdefault((receiver, tuple(sorted(labels.items()))), []).append(_alert(page, one))
    return _json(
        [
            {"labels": dict(labels), "receiver": {"name": receiver}, "alerts": some}
            for (receiver, labels), some in sorted(found.items(), key=lambda one: one[0])
        ]
    )


def _selected(call: Call, page: AlertPage) -> Iterator[Alert]:
    receiver = _pattern(call.parameter("receiver") or "")
    shown = {name: _flag(call, name) for name in ("active", "silenced", "inhibited")}
    for one in fulfilling(_filters(call), page.alerts):
        silenced, inhibited = one.fingerprint in page.silenced, one.fingerprint in page.inhibited
        hidden = (
            (not shown["active"] and not silenced and not inhibited)
            or (not shown["silenced"] and silenced)
            or (not shown["inhibited"] and inhibited)
        )
        names = [name for name, _ in page.receivers.get(one.fingerprint, ())]
        if one.firing and not hidden and receiver(names):
            yield one


def _pattern(text: str) -> Callable[[Sequence[str]], bool]:
    """Return a function that tests whether one of the names matches the whole pattern; an empty one matches all."""
    if not text:
        return lambda _: True
    matches = cache(lambda name: bool(full_matches(text, [name])[0]))
    matches("")
    return lambda names: any(map(matches, names))


def _filters(call: Call) -> list[LabelMatcher]:
    texts = [value for name, value in call.parameters if name == "filter"]
    if len(texts) > MOST_MATCHERS:
        raise LimitExceededError(f"a call may have {MOST_MATCHERS} filters", "filter")
    return [parse_matcher(text) for text in texts]


def _flag(call: Call, name: str) -> bool:
    value = call.parameter(name)
    if value not in {None, "", "true", "false"}:
        raise InvalidRequestError(f"{name} must be true or false", name)
    return value != "false"


def _alert(page: AlertPage, one: Alert) -> dict[str, Any]:
    silenced, inhibited = page.silenced.get(one.fingerprint, []), page.inhibited.get(one.fingerprint, [])
    return {
        "annotations": one.annotations,
        "endsAt": iso(one.updated + _LASTS_MS),
        "fingerprint": one.fingerprint,
        "receivers": [{"name": name} for name, _ in page.receivers.get(one.fingerprint, ())],
        "startsAt": iso(one.fired or one.started),
        "status": {
            "inhibitedBy": inhibited,
            "silencedBy": silenced,
            "state": "suppressed" if silenced or inhibited else "active",
        },
        "updatedAt": iso(one.updated),
        "generatorURL": link(one, page.url),
        "labels": one.labels,
    }


def silences(call: Call, context: Context) -> Steps:
    """Answer the silences that match all filters on their own matchers."""
    wanted = _filters(call)
    found = yield from execute(SilencesQuestion())
    return _json([_silence(one, context.now_ms) for one in found if _covers(one, wanted)])


def _covers(silence: Silence, wanted: Sequence[LabelMatcher]) -> bool:
    return fulfils(wanted, {one.name: one.value for one in silence.matchers})


def silence(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """Answer one silence."""
    found = yield from execute(SilencesQuestion())
    name = context.path["silenceID"]
    for one in found:
        if one.id == name:
            return _json(_silence(one, context.now_ms))
    raise NotFoundError(f"there is no silence {name[:64]!r}", "silence", name[:64])


def _silence(one: Silence, now_ms: int) -> dict[str, Any]:
    state = "expired" if one.end <= now_ms else "pending" if one.start > now_ms else "active"
    return {
        "id": one.id,
        "status": {"state": state},
        "updatedAt": iso(one.updated),
        "comment": one.comment,
        "createdBy": one.author,
        "startsAt": iso(one.start),
        "endsAt": iso(one.end),
        "matchers": [msgspec.to_builtins(matcher) for matcher in one.matchers],
    }


class _Posted(msgspec.Struct, rename={"start": "startsAt", "end": "endsAt", "author": "createdBy"}):
    """A silence as clients post it."""

    matchers: list[LabelMatcher]
    start: str
    end: str
    author: str
    comment: str
    id: str | None = None


def put_silence(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """Create or change a silence, and answer its id."""
    try:
        posted = msgspec.json.decode(call.body, type=_Posted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not a silence: {error}", "body") from error
    made = yield from execute(
        PutSilence(
            matchers=tuple(posted.matchers),
            start=parse_time(posted.start, "startsAt"),
            end=parse_time(posted.end, "endsAt"),
            author=posted.author,
            comment=posted.comment,
            id=posted.id or "",
        )
    )
    return _json({"silenceID": made.id})


def expire_silence(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """End a silence."""
    yield from execute(ExpireSilence(id=context.path["silenceID"]))
    return Answer(200, b"{}")


def receivers(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """Answer the names of the receivers."""
    found = yield from execute(AlertingQuestion())
    return _json([{"name": name} for name in found.receivers])


def status(call: Call, context: Context) -> Steps:  # noqa: ARG001 - as of every operation
    """Answer the version, and since when rules are evaluated."""
    found = yield from execute(AlertingQuestion())
    return _json(
        {
            "cluster": {"status": "disabled", "peers": []},
            "config": {"original": found.config},
            "uptime": iso(found.started),
            "versionInfo": {
                "branch": "",
                "buildDate": "",
                "buildUser": "",
                "goVersion": "",
                "revision": f"jobmeter-{__version__}",
                "version": "0.25.0",
            },
        }
    )


def _json(value: Any) -> Answer:  # noqa: ANN401 - the body
    return Answer(200, msgspec.json.encode(value))


_FILTER = Parameter("filter", "query", 'A matcher such as `severity="critical"`; may be repeated.')
_RECEIVER = Parameter("receiver", "query", "A regular expression that the name of a receiver matches whole.")
_FLAGS = tuple(
    Parameter(name, "query", f"`false` leaves out {name} alerts.") for name in ("active", "silenced", "inhibited")
)
_ID = Parameter("silenceID", "path", "The silence's id.", required=True)
_BODY = Parameter(
    "body", "body", "`matchers`, `startsAt`, `endsAt`, `createdBy`, `comment`, and `id` for a change.", required=True
)
_SELECTED = (_FILTER, _RECEIVER, *_FLAGS)

OPERATIONS = tuple(
    Operation(
        name=name, action=action, method=method, path=f"/api/v2/{path}", answer=answer, parameters=some, text=text
    )
    for name, action, method, path, answer, some, text in (
        ("getAlerts", "alerts:read", "GET", "alerts", alerts, _SELECTED, "Gives the firing alerts."),
        (
            "getAlertGroups",
            "alerts:read",
            "GET",
            "alerts/groups",
            alert_groups,
            _SELECTED,
            "Gives the firing alerts by receiver and group.",
        ),
        ("getSilences", "alerts:read", "GET", "silences", silences, (_FILTER,), "Gives the silences."),
        ("postSilences", "alerts:write", "POST", "silences", put_silence, (_BODY,), "Creates or changes a silence."),
        ("getSilence", "alerts:read", "GET", "silence/{silenceID}", silence, (_ID,), "Gives one silence."),
        ("deleteSilence", "alerts:write", "DELETE", "silence/{silenceID}", expire_silence, (_ID,), "Ends a silence."),
        ("getReceivers", "alerts:read", "GET", "receivers", receivers, (), "Gives the names of the receivers."),
        ("getStatus", "alerts:read", "GET", "status", status, (), "Gives the version and the receivers' names."),
    )
)

"""Alerts and silences of a server, by the APIs of Prometheus and of Alertmanager."""

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote

import msgspec

from jobmeter.client.transport import Response, Transport
from jobmeter.errors import JobmeterError
from jobmeter.model.alert import LabelMatcher

T = TypeVar("T")
_ALERTS, _FIRING = "/prometheus/api/v1/alerts", "/api/v2/alerts"
_SILENCES, _SILENCE = "/api/v2/silences", "/api/v2/silence"


class ShownAlert(msgspec.Struct, kw_only=True, rename={"active": "activeAt", "since": "keepFiringSince"}):
    """A pending or firing alert."""

    labels: dict[str, str]
    annotations: dict[str, str]
    state: str
    active: str
    value: str
    since: str = ""
    muted: list[str] = []
    """The silences and alerts that mute it."""


class ShownSilence(msgspec.Struct, kw_only=True, rename={"author": "createdBy", "start": "startsAt", "end": "endsAt"}):
    """A silence."""

    matchers: list[LabelMatcher]
    start: str
    end: str
    author: str
    comment: str
    id: str = ""
    status: dict[str, str] = {}


class _AlertList(msgspec.Struct):
    alerts: list[ShownAlert]


class _AlertAnswer(msgspec.Struct):
    data: _AlertList


class _Muting(msgspec.Struct, rename="camel"):
    silenced_by: list[str] = []
    inhibited_by: list[str] = []


class _Firing(msgspec.Struct):
    labels: dict[str, str]
    status: _Muting


class _Made(msgspec.Struct):
    silence: str = msgspec.field(name="silenceID")


def read_alerts(transport: Transport) -> list[ShownAlert]:
    """Read the pending and firing alerts."""
    found = _decode_answer(transport.request("GET", _ALERTS), _AlertAnswer).data.alerts
    muting = {
        tuple(sorted(one.labels.items())): [*one.status.silenced_by, *one.status.inhibited_by]
        for one in _decode_answer(transport.request("GET", _FIRING), list[_Firing])
    }
    for one in found:
        one.muted = muting.get(tuple(sorted(one.labels.items())), []) if one.state == "firing" else []
    return found


def read_silences(transport: Transport) -> list[ShownSilence]:
    """Read the silences."""
    return _decode_answer(transport.request("GET", _SILENCES), list[ShownSilence])


def add_silence(
    transport: Transport, matchers: Sequence[LabelMatcher], span: tuple[str, str], texts: tuple[str, str]
) -> str:
    """Create a silence from a start to an end (ISO 8601), with author and comment. Returns its id."""
    made = ShownSilence(matchers=list(matchers), start=span[0], end=span[1], author=texts[0], comment=texts[1])
    answer = transport.request("POST", _SILENCES, msgspec.json.encode(made), {"Content-Type": "application/json"})
    return _decode_answer(answer, _Made).silence


def expire_silence(transport: Transport, name: str) -> None:
    """End a silence."""
    transport.request("DELETE", f"{_SILENCE}/{quote(name, safe='')}")


def _decode_answer(answer: Response, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JobmeterError(f"the server's answer cannot be read: {error}") from error

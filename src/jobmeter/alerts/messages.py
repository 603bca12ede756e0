"""Messages about a group of alerts: Alertmanager's webhook and API, and mail."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from jobmeter.alerts.config import Destination, Email, Http
from jobmeter.diagnose.registry import list_rules
from jobmeter.model.alert import Alert
from jobmeter.model.time import MINUTE, format_iso

MOST_ALERTS = 100
"""Most alerts of a message."""
MOST_BYTES = 512 * 2**10
"""Most bytes of a message. Alerts that do not fit are only counted."""
_NEVER = "0001-01-01T00:00:00Z"
_LASTS_MS = 4 * MINUTE
"""Time after which an Alertmanager resolves a firing alert that is not sent again."""


class ReportedAlert(msgspec.Struct, frozen=True):
    """Alerts in one message to a destination, with the key and the common labels of their group."""

    destination: Destination
    key: str
    labels: dict[str, str]
    alerts: Sequence[Alert]


class Mail(msgspec.Struct, frozen=True):
    """A mail: ``to`` is empty if the recipient is the user of the job.

    ``rule`` is the diagnostic rule whose finding it is about; empty without one.
    """

    subject: str
    text: str
    to: str = ""
    project: str = ""
    job: str = ""
    rule: str = ""


def write_message(reported: ReportedAlert, now_ms: int, url: str) -> str:
    """Return the body for a destination, as JSON. ``url`` is the address of this server, empty if unknown."""
    some, target = list(reported.alerts), reported.destination.target
    most = min((target.most if isinstance(target, Http) else 0) or MOST_ALERTS, MOST_ALERTS)
    shown = some[:most]
    while True:
        body = _encode_message(msgspec.structs.replace(reported, alerts=shown), len(some) - len(shown), now_ms, url)
        if len(body) <= MOST_BYTES or len(shown) <= 1:
            return body.decode()
        shown = shown[: len(shown) // 2]


def _encode_message(reported: ReportedAlert, left_out: int, now_ms: int, url: str) -> bytes:
    match reported.destination.kind:
        case "alertmanager":
            return msgspec.json.encode([_describe_posted_alert(one, now_ms, url) for one in reported.alerts])
        case "webhook":
            return msgspec.json.encode(_webhook(reported, left_out, url))
        case _:
            return msgspec.json.encode(_mail(reported, left_out, url))


def _describe_posted_alert(alert: Alert, now_ms: int, url: str) -> dict[str, Any]:
    ends = alert.resolved if alert.resolved is not None else now_ms + _LASTS_MS
    return {
        "labels": alert.labels,
        "annotations": alert.annotations,
        "startsAt": format_iso(alert.fired or alert.started),
        "endsAt": format_iso(ends),
        "generatorURL": choose_link(alert, url),
    }


def make_alert_body(alert: Alert, url: str) -> dict[str, Any]:
    """Return an alert in the form of Alertmanager's webhook."""
    return {
        "status": "firing" if alert.firing else "resolved",
        "labels": alert.labels,
        "annotations": alert.annotations,
        "startsAt": format_iso(alert.fired or alert.started),
        "endsAt": _NEVER if alert.resolved is None else format_iso(alert.resolved),
        "generatorURL": choose_link(alert, url),
        "fingerprint": alert.fingerprint,
    }


def choose_link(alert: Alert, url: str) -> str:
    """Return the alert's own address, else the page of its job or of the server; empty if unknown."""
    if alert.address:
        return alert.address
    job, project = alert.labels.get("job_id"), alert.labels.get("project")
    if not url or not job:
        return url
    return f"{url}/#/jobs/{quote(job, safe='')}" + (f"?project={quote(project, safe='')}" if project else "")


def _webhook(reported: ReportedAlert, left_out: int, url: str) -> dict[str, Any]:
    return {
        "version": "4",
        "groupKey": reported.key,
        "truncatedAlerts": left_out,
        "status": _status(reported.alerts),
        "receiver": reported.destination.receiver,
        "groupLabels": reported.labels,
        "commonLabels": _intersect_labels(one.labels for one in reported.alerts),
        "commonAnnotations": _intersect_labels(one.annotations for one in reported.alerts),
        "externalURL": url,
        "alerts": [make_alert_body(one, url) for one in reported.alerts],
    }


def _status(alerts: Sequence[Alert]) -> str:
    return "firing" if any(one.firing for one in alerts) else "resolved"


def _intersect_labels(found: Iterable[Mapping[str, str]]) -> dict[str, str]:
    every = list(found)
    return {
        name: value
        for name, value in (every[0].items() if every else ())
        if all(one.get(name) == value for one in every)
    }


def _mail(reported: ReportedAlert, left_out: int, url: str) -> Mail:
    alerts, target = reported.alerts, reported.destination.target
    firing = sum(one.firing for one in alerts)
    status = f"FIRING:{firing}" if firing else "RESOLVED"
    first = alerts[0]
    head = first.annotations.get("summary", first.name) if len(alerts) + left_out == 1 else first.name
    more = f"\n\n{left_out} more alerts are left out." if left_out else ""
    return Mail(
        subject=f"[{status}] {head}",
        text="\n\n".join(_paragraph(one, url) for one in alerts) + more + "\n",
        to=target.to if isinstance(target, Email) else "",
        project=first.labels.get("project", ""),
        job=first.labels.get("job_id", ""),
        rule=_rule(first),
    )


def _rule(alert: Alert) -> str:
    return alert.labels.get("rule") or alert.labels.get("cause") or ""


def _paragraph(alert: Alert, url: str) -> str:
    """Return an alert as text: its annotations, the advice of its diagnostic rule, and a link."""
    lines = [f"{alert.name}: {'firing' if alert.firing else 'resolved'} since {_format_alert_time(alert)}"]
    lines += [f"{name}: {text}" for name, text in alert.annotations.items()]
    rule = _rule(alert)
    advice = next((one.advice for one in list_rules() if one.name == rule), "")
    lines += [f"advice: {advice}"] if advice else []
    lines.append("labels: " + ", ".join(f"{name}={text}" for name, text in alert.labels.items()))
    address = choose_link(alert, url)
    return "\n".join([*lines, *([address] if address else [])])


def _format_alert_time(alert: Alert) -> str:
    return format_iso(alert.resolved if alert.resolved is not None else (alert.fired or alert.started))

"""Alerts that other programs post: Prometheus, vmalert, amtool. They end at a time, or if they are not repeated."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from jobmeter.alerts.rules import MOST_LABELS
from jobmeter.alerts.states import PROJECT, compute_fingerprint, is_over, resolve
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.alert import POSTED, Alert, AlertState, PostedAlert

MOST_POSTED, MOST_OF_PROJECT, MOST_OF_REQUEST = 5_000, 1_000, 1_000
"""Most alerts of other programs: of all projects, of one project, and in one request."""
MOST_TEXT, MOST_ADDRESS = 2_000, 2_000
"""Most characters of a label or an annotation, and of an address."""
MOST_OF_ALERT = 16_000
"""Most characters of all labels and annotations of an alert, with their names."""
_EXPORTED = "exported_project"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,255}")
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+|")


def check_posted(posted: Sequence[PostedAlert]) -> None:
    """Raise InvalidRequestError for an alert that is not valid, LimitExceededError for too many."""
    if len(posted) > MOST_OF_REQUEST:
        raise LimitExceededError(f"a request may have at most {MOST_OF_REQUEST} alerts, not {len(posted)}", "alerts")
    for one in posted:
        if not any(one.labels.values()):
            raise InvalidRequestError("an alert needs at least one label with a value", "labels")
        _check_texts(one)
        if len(one.address) > MOST_ADDRESS or not _ADDRESS.fullmatch(one.address):
            raise InvalidRequestError("generatorURL must be an address of http or https", "generatorURL")
        if one.start is not None and one.end is not None and one.end < one.start:
            raise InvalidRequestError("endsAt is before startsAt", "endsAt")


def _check_texts(alert: PostedAlert) -> None:
    size = 0
    for field, texts in (("labels", alert.labels), ("annotations", alert.annotations)):
        if len(texts) > MOST_LABELS or any(len(text) > MOST_TEXT for text in texts.values()):
            raise InvalidRequestError(
                f"an alert may have at most {MOST_LABELS} {field} with {MOST_TEXT} characters each", field
            )
        for name, text in texts.items():
            if not _LABEL.fullmatch(name):
                raise InvalidRequestError(f"{name[:64]!r} is not a name of {field}", field)
            size += len(name) + len(text)
    if size > MOST_OF_ALERT:
        raise InvalidRequestError(
            f"an alert may have at most {MOST_OF_ALERT} characters in all labels and annotations, this one has {size}",
            "annotations",
        )


def merge_posted(
    old: Mapping[str, Alert], posted: Sequence[PostedAlert], project: str | None, now_ms: int, timeout_ms: int
) -> dict[str, Alert]:
    """Return the alerts that change, by fingerprint; ``old`` are all alerts of other programs.

    ``project`` is the project of the caller's key, None for a key of all projects: then the label names the project.
    An alert without an end ends after ``timeout_ms``. Raises LimitExceededError.
    """
    found: dict[str, Alert] = {}
    for one in posted:
        made = _alert(one, project, now_ms, timeout_ms)
        before = found.get(made.fingerprint) or old.get(made.fingerprint)
        if before is not None and before.firing:
            starts = min(before.started, made.started)
            made = replace(made, started=starts, fired=starts)
        elif not made.firing:
            continue  # an alert that ended before it was known
        found[made.fingerprint] = made
    new = [one for name, one in found.items() if name not in old]
    if len(old) + len(new) > MOST_POSTED:
        raise LimitExceededError(f"there are {MOST_POSTED} alerts of other programs: let some end", "alerts")
    counts = Counter(one.project for one in (*old.values(), *new))
    if any(counts[one.project] > MOST_OF_PROJECT for one in new):
        raise LimitExceededError(f"a project may have at most {MOST_OF_PROJECT} alerts of other programs", "alerts")
    return found


def _alert(one: PostedAlert, project: str | None, now_ms: int, timeout_ms: int) -> Alert:
    labels = {name: text for name, text in one.labels.items() if text}
    if project is not None:
        sent = labels.get(PROJECT, project)
        labels |= {PROJECT: project} | ({_EXPORTED: sent} if sent != project else {})
    labels = dict(sorted(labels.items()))
    ends = now_ms + timeout_ms if one.end is None else one.end
    starts = min(now_ms if one.start is None else one.start, ends, now_ms)
    alert = Alert(
        fingerprint=compute_fingerprint(POSTED, labels),
        rule=POSTED,
        project=labels.get(PROJECT, ""),
        labels=labels,
        annotations={name: text for name, text in one.annotations.items() if text},
        state=AlertState.FIRING,
        value="1",
        started=starts,
        fired=starts,
        updated=now_ms,
        ends=ends,
        address=one.address,
    )
    return resolve(alert, now_ms) if ends <= now_ms else alert


def end_alerts(alerts: Mapping[str, Alert], now_ms: int) -> tuple[list[Alert], list[str]]:
    """Return the alerts that end now, and the fingerprints of the alerts to delete."""
    over = [resolve(one, now_ms) for one in alerts.values() if one.firing and (one.ends or 0) <= now_ms]
    return over, [one.fingerprint for one in alerts.values() if is_over(one, now_ms)]

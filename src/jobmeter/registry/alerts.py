"""Alerts, silences, and messages to receivers. Alerts are few: they are read and written whole, as JSON."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

import msgspec
import sqlalchemy as sa

from jobmeter.model.alert import Alert, AlertState, Message, NotificationGroup, Silence
from jobmeter.model.event import ALERT_FIRING, ALERT_RESOLVED, Event, EventSource, Level
from jobmeter.model.series import MAX_NAME
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.events import add_events, make_row
from jobmeter.registry.schema import alert_messages, alerts, jobs, notification_groups, silences
from jobmeter.registry.statements import clean_text, insert, iterate_chunks

T = TypeVar("T")
MOST_MESSAGES = 1_000
"""Most messages that wait for one destination. The oldest are dropped first."""
MOST_TEXT = 1_000
"""Most characters of the message of an event about an alert."""
_LEVELS = {"critical": Level.ERROR, "warning": Level.WARNING}
_message = alert_messages.c


class AlertTable:
    """Alerts and what is sent about them. Every method is one transaction; see ``Registry``.

    ``drop`` counts events that were deleted from jobs with too many.
    """

    def __init__(self, database: Database, drop: Callable[[int], None]) -> None:
        self._database = database
        self._drop = drop

    def list_alerts(self, since: int = 0) -> list[Alert]:
        """Return the alerts stored at or after ``since``, epoch ms, in the order of their starts."""
        changed = sa.select(alerts.c.body).where(alerts.c.updated >= since)
        with self._database.read(SHORT_SECONDS) as connection:
            found = [msgspec.json.decode(body, type=Alert) for body in connection.scalars(changed)]
        return sorted(found, key=lambda one: (one.started, one.fingerprint))

    def put(self, changed: Iterable[Alert], removed: Collection[str] = ()) -> None:
        """Store alerts, and delete others by their fingerprints.

        An alert that begins to fire or ends, compared with the stored one, adds an event to its job. States and events
        are one transaction: after a restart, or on another server, a change adds no second event.
        """
        put = list(changed)
        rows = [(one.fingerprint, one.updated, one) for one in put]
        with self._database.write() as connection:
            events = _events(connection, put)
            _put(connection, alerts, rows)
            _remove(connection, alerts, removed)
            dropped = add_events(connection, [make_row(one) for one in events])
        self._drop(dropped)

    def list_silences(self) -> list[Silence]:
        """Return every silence, the newest end first."""
        return sorted(self._read(silences, Silence), key=lambda one: (-one.end, one.id))

    def put_silence(self, silence: Silence, removed: Collection[str] = ()) -> None:
        """Store a silence, and delete others by their ids."""
        with self._database.write() as connection:
            _put(connection, silences, [(silence.id, silence.updated, silence)])
            _remove(connection, silences, removed)

    def list_groups(self) -> list[NotificationGroup]:
        """Return every group of alerts that was reported."""
        return list(self._read(notification_groups, NotificationGroup))

    def decide(
        self, groups: Iterable[NotificationGroup], removed: Collection[str], messages: Sequence[Message], now_ms: int
    ) -> int:
        """Store messages, and replace the groups that they report. Return the number of messages dropped."""
        rows = [(one.key, now_ms, one) for one in groups]
        with self._database.write() as connection:
            _put(connection, notification_groups, rows)
            _remove(connection, notification_groups, removed)
            if messages:
                connection.execute(
                    sa.insert(alert_messages),
                    [
                        {
                            "destination": one.destination,
                            "body": clean_text(one.body),
                            "created": one.created,
                            "tries": 0,
                            "next_try": one.next_try,
                        }
                        for one in messages
                    ],
                )
            return sum(_trim(connection, name) for name in {one.destination for one in messages})

    def list_waiting(self) -> list[Message]:
        """Return the oldest message of each destination."""
        first = sa.select(sa.func.min(_message.id)).group_by(_message.destination)
        with self._database.read(SHORT_SECONDS) as connection:
            rows = connection.execute(sa.select(alert_messages).where(_message.id.in_(first)).order_by(_message.id))
            return [msgspec.convert(row, Message, from_attributes=True) for row in rows]

    def delete_message(self, message: int) -> None:
        """Delete a message that its receiver has."""
        with self._database.write(SHORT_SECONDS) as connection:
            connection.execute(sa.delete(alert_messages).where(_message.id == message))

    def retry(self, message: int, next_try: int, error: str) -> None:
        """Store a failed attempt to deliver a message, and the time of the next."""
        values = {"tries": _message.tries + 1, "next_try": next_try, "error": clean_text(error)}
        with self._database.write(SHORT_SECONDS) as connection:
            connection.execute(sa.update(alert_messages).where(_message.id == message).values(values))

    def _read(self, table: sa.Table, kind: type[T]) -> Sequence[T]:
        with self._database.read(SHORT_SECONDS) as connection:
            return [msgspec.json.decode(body, type=kind) for body in connection.scalars(sa.select(table.c.body))]


def _events(connection: sa.Connection, changed: Iterable[Alert]) -> list[Event]:
    """Return the events of alerts whose state differs from the stored one, for jobs that exist."""
    about = {one.fingerprint: one for one in changed if one.project and one.labels.get("job_id")}
    before: dict[str, AlertState] = {}
    for some in iterate_chunks(sorted(about)):
        # Locked: of two servers that store one change, the second reads the state of the first.
        stored = sa.select(alerts.c.fingerprint, alerts.c.body).where(alerts.c.fingerprint.in_(some))
        for fingerprint, body in connection.execute(stored.order_by(alerts.c.fingerprint).with_for_update()):
            before[fingerprint] = msgspec.json.decode(body, type=Alert).state
    firing = AlertState.FIRING
    found = [
        _event(one)
        for name, one in about.items()
        if (one.state is firing) is not (before.get(name) is firing)
        and (one.state is firing or one.resolved is not None)
    ]
    known: set[tuple[str, str]] = set()
    for some in iterate_chunks(sorted({one.job for one in found})):
        known.update(map(tuple, connection.execute(sa.select(jobs.c.project, jobs.c.id).where(jobs.c.id.in_(some)))))
    return [one for one in found if (one.project, one.job) in known]


def _event(alert: Alert) -> Event:
    severity, summary = alert.labels.get("severity", ""), alert.annotations.get("summary", "")
    message = ": ".join(filter(None, [f"{alert.name} ({severity})" if severity else alert.name, summary]))
    return Event(
        time=(alert.fired if alert.firing else alert.resolved) or alert.started,
        project=clean_text(alert.project),
        job=clean_text(alert.labels["job_id"]),
        source=EventSource.SERVER,
        level=_LEVELS.get(severity, Level.INFO) if alert.firing else Level.INFO,
        reason=ALERT_FIRING if alert.firing else ALERT_RESOLVED,
        message=message if len(message) <= MOST_TEXT else f"{message[: MOST_TEXT - 1]}…",
        subject=f"alert {alert.fingerprint}",
        replica=_name(alert, "replica"),
        node=_name(alert, "node"),
    )


def _name(alert: Alert, label: str) -> str:
    """Return the name in a label; empty if the text is too long for a name."""
    text = clean_text(alert.labels.get(label, ""))
    return text if len(text) <= MAX_NAME else ""


def _put(connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[str, int, object]]) -> None:
    if not rows:
        return
    key = next(iter(table.primary_key)).name
    statement = insert(connection, table)
    changes = {name: statement.excluded[name] for name in ("updated", "body")}
    values = [
        {key: name, "updated": updated, "body": clean_text(msgspec.json.encode(one).decode())}
        for name, updated, one in rows
    ]
    connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=changes), values)


def _remove(connection: sa.Connection, table: sa.Table, names: Collection[str]) -> None:
    key = next(iter(table.primary_key))
    for some in iterate_chunks(sorted(names)):
        connection.execute(sa.delete(table).where(key.in_(some)))


def _trim(connection: sa.Connection, destination: str) -> int:
    """Delete the oldest messages of a destination beyond the limit. Return their number."""
    newest = sa.select(_message.id).where(_message.destination == destination).order_by(_message.id.desc())
    last = connection.execute(newest.offset(MOST_MESSAGES).limit(1)).scalar()
    if last is None:
        return 0
    gone = sa.delete(alert_messages).where(_message.destination == destination, _message.id <= last)
    return int(connection.execute(gone).rowcount)

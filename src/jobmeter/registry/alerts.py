"""Alerts, silences, and messages to receivers. Alerts are few: they are read and written whole, as JSON."""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import msgspec
import sqlalchemy as sa

from jobmeter.model.alert import Alert, Message, NotificationGroup, Silence
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.schema import alert_messages, alerts, notification_groups, silences
from jobmeter.registry.statements import chunks, clean, insert

T = TypeVar("T")
MOST_MESSAGES = 1_000
"""Most messages that wait for one destination. The oldest are dropped first."""
_message = alert_messages.c


class AlertTable:
    """Alerts and what is sent about them. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Alert]:
        """Return every alert, by the time at which it started."""
        return sorted(self._read(alerts, Alert), key=lambda one: (one.started, one.fingerprint))

    def changed_since(self, time_ms: int) -> list[Alert]:
        """Return the alerts that were stored at or after a time, in any order."""
        changed = sa.select(alerts.c.body).where(alerts.c.updated >= time_ms)
        with self._database.read(SHORT_SECONDS) as connection:
            return [msgspec.json.decode(body, type=Alert) for body in connection.scalars(changed)]

    def put(self, changed: Iterable[Alert], removed: Collection[str] = ()) -> None:
        """Store alerts, and delete others by their fingerprints."""
        rows = [(one.fingerprint, one.updated, one) for one in changed]
        with self._database.write() as connection:
            _put(connection, alerts, rows)
            _remove(connection, alerts, removed)

    def silences(self) -> list[Silence]:
        """Return every silence, the newest end first."""
        return sorted(self._read(silences, Silence), key=lambda one: (-one.end, one.id))

    def put_silence(self, silence: Silence, removed: Collection[str] = ()) -> None:
        """Store a silence, and delete others by their ids."""
        with self._database.write() as connection:
            _put(connection, silences, [(silence.id, silence.updated, silence)])
            _remove(connection, silences, removed)

    def groups(self) -> list[NotificationGroup]:
        """Return every group of alerts that was reported."""
        return list(self._read(notification_groups, NotificationGroup))

    def decide(
        self, groups: Iterable[NotificationGroup], removed: Collection[str], messages: Sequence[Message], now_ms: int
    ) -> int:
        """Store messages together with the groups that they report. Return the number of messages dropped."""
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
                            "body": clean(one.body),
                            "created": one.created,
                            "tries": 0,
                            "next_try": one.next_try,
                        }
                        for one in messages
                    ],
                )
            return sum(_trim(connection, name) for name in {one.destination for one in messages})

    def waiting(self) -> list[Message]:
        """Return the oldest message of each destination."""
        first = sa.select(sa.func.min(_message.id)).group_by(_message.destination)
        with self._database.read(SHORT_SECONDS) as connection:
            rows = connection.execute(sa.select(alert_messages).where(_message.id.in_(first)).order_by(_message.id))
            return [msgspec.convert(row, Message, from_attributes=True) for row in rows]

    def delivered(self, message: int) -> None:
        """Delete a message."""
        with self._database.write(SHORT_SECONDS) as connection:
            connection.execute(sa.delete(alert_messages).where(_message.id == message))

    def retry(self, message: int, next_try: int, error: str) -> None:
        """Store a failed attempt to deliver a message, and the time of the next."""
        values = {"tries": _message.tries + 1, "next_try": next_try, "error": clean(error)}
        with self._database.write(SHORT_SECONDS) as connection:
            connection.execute(sa.update(alert_messages).where(_message.id == message).values(values))

    def _read(self, table: sa.Table, kind: type[T]) -> Sequence[T]:
        with self._database.read(SHORT_SECONDS) as connection:
            return [msgspec.json.decode(body, type=kind) for body in connection.scalars(sa.select(table.c.body))]


def _put(connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[str, int, object]]) -> None:
    if not rows:
        return
    key = next(iter(table.primary_key)).name
    statement = insert(connection, table)
    changes = {name: statement.excluded[name] for name in ("updated", "body")}
    values = [
        {key: name, "updated": updated, "body": clean(msgspec.json.encode(one).decode())} for name, updated, one in rows
    ]
    connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=changes), values)


def _remove(connection: sa.Connection, table: sa.Table, names: Collection[str]) -> None:
    key = next(iter(table.primary_key))
    for some in chunks(sorted(names)):
        connection.execute(sa.delete(table).where(key.in_(some)))


def _trim(connection: sa.Connection, destination: str) -> int:
    """Delete the oldest messages of a destination beyond the limit. Return their number."""
    newest = sa.select(_message.id).where(_message.destination == destination).order_by(_message.id.desc())
    last = connection.execute(newest.offset(MOST_MESSAGES).limit(1)).scalar()
    if last is None:
        return 0
    gone = sa.delete(alert_messages).where(_message.destination == destination, _message.id <= last)
    return int(connection.execute(gone).rowcount)

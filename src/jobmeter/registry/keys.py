"""Keys in the database. What they mean is ``jobmeter.access``'s part."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from jobmeter.registry.base import StoredKey
from jobmeter.registry.schema import keys
from jobmeter.registry.statements import chunks

_FIELDS = StoredKey.__struct_fields__


def add(connection: sa.Connection, key: StoredKey) -> None:
    """See ``Registry.add_key``."""
    connection.execute(sa.insert(keys).values({name: getattr(key, name) for name in _FIELDS}))


def find(connection: sa.Connection, column: sa.Column[Any], value: object) -> StoredKey | None:
    """The key whose (unique) column has that value."""
    row = connection.execute(sa.select(keys).where(column == value)).one_or_none()
    return None if row is None else _key(row)


def every(connection: sa.Connection, projects: frozenset[str] | None) -> list[StoredKey]:
    """See ``Registry.keys``."""
    question = sa.select(keys).order_by(keys.c.created, keys.c.id)
    if projects is not None:
        question = question.where(keys.c.project.in_(sorted(projects)))
    return [_key(row) for row in connection.execute(question)]


def of_job(connection: sa.Connection, project: str, job: str) -> list[StoredKey]:
    """See ``Registry.links``."""
    own = (keys.c.project == project, keys.c.job == job, keys.c.job != "")
    return [_key(row) for row in connection.execute(sa.select(keys).where(*own).order_by(keys.c.created, keys.c.id))]


def delete(connection: sa.Connection, key_ids: Sequence[str]) -> None:
    """See ``Registry.delete_keys``."""
    for some in chunks(key_ids):
        connection.execute(sa.delete(keys).where(keys.c.id.in_(some)))


def revoke(connection: sa.Connection, key_id: str, now_ms: int) -> bool:
    """See ``Registry.revoke_key``."""
    statement = sa.update(keys).where(keys.c.id == key_id, keys.c.revoked.is_(None)).values(revoked=now_ms)
    return connection.execute(statement).rowcount > 0


def set_policies(connection: sa.Connection, key_id: str, policies: str) -> bool:
    """See ``Registry.set_policies``."""
    statement = sa.update(keys).where(keys.c.id == key_id, keys.c.revoked.is_(None)).values(policies=policies)
    return connection.execute(statement).rowcount > 0


def used(connection: sa.Connection, key_id: str, now_ms: int) -> None:
    """See ``Registry.key_used``."""
    later = sa.or_(keys.c.last_used.is_(None), keys.c.last_used < now_ms)
    connection.execute(sa.update(keys).where(keys.c.id == key_id, later).values(last_used=now_ms))


def _key(row: sa.Row[Any]) -> StoredKey:
    values = {name: getattr(row, name) for name in _FIELDS}
    return StoredKey(**{**values, "token_hash": bytes(row.token_hash), "sealed_secret": bytes(row.sealed_secret)})

"""Keys in the database. ``jobmeter.access`` interprets them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.schema import keys
from jobmeter.registry.statements import iterate_chunks, match_names
from jobmeter.registry.stored import StoredKey

_key = keys.c


class KeyTable:
    """The stored keys. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: StoredKey) -> None:
        """Store a new key."""
        with self._database.write() as connection:
            connection.execute(sa.insert(keys).values(msgspec.structs.asdict(key)))

    def list_keys(self, projects: frozenset[str] | None = None) -> list[StoredKey]:
        """Return keys by creation, revoked keys included."""
        return self._select(match_names(_key.project, projects))

    def list_links(self, project: str, job: str) -> list[StoredKey]:
        """Return the keys that open that job alone, by creation, expired keys included."""
        return self._select(_key.project == project, _key.job == job, _key.job != "")

    def _select(self, *conditions: sa.ColumnElement[bool]) -> list[StoredKey]:
        question = sa.select(keys).where(*conditions).order_by(_key.created, _key.id)
        with self._database.read() as connection:
            return [_make_stored_key(row) for row in connection.execute(question)]

    def delete(self, key_ids: Sequence[str]) -> None:
        """Delete keys; a no-op for unknown ids."""
        with self._database.write() as connection:
            for some in iterate_chunks(key_ids):
                connection.execute(sa.delete(keys).where(_key.id.in_(some)))

    def find_by_token(self, token_hash: bytes) -> StoredKey | None:
        """Return the key with that token digest, revoked or not; None for an unknown digest."""
        return self._find(_key.token_hash == token_hash)

    def find_by_access_key(self, access_key_id: str) -> StoredKey | None:
        """Return the key with that access key id, revoked or not; None for an unknown id."""
        return self._find(_key.access_key_id == access_key_id)

    def _find(self, condition: sa.ColumnElement[bool]) -> StoredKey | None:
        with self._database.read(SHORT_SECONDS) as connection:
            row = connection.execute(sa.select(keys).where(condition)).one_or_none()
        return None if row is None else _make_stored_key(row)

    def revoke(self, key_id: str, now_ms: int) -> bool:
        """Revoke a key. Return False if there is no valid key of that id."""
        return self._change_valid(key_id, revoked=now_ms)

    def set_policies(self, key_id: str, policies: str) -> bool:
        """Replace the policies of a key, in the form of ``StoredKey``.

        Return False if there is no valid key of that id.
        """
        return self._change_valid(key_id, policies=policies)

    def _change_valid(self, key_id: str, **values: object) -> bool:
        changed = sa.update(keys).where(_key.id == key_id, _key.revoked.is_(None)).values(values)
        with self._database.write() as connection:
            return connection.execute(changed).rowcount > 0

    def mark_used(self, key_id: str, now_ms: int) -> None:
        """Store the time of a key's last use, unless a later one is stored."""
        later = sa.or_(_key.last_used.is_(None), _key.last_used < now_ms)
        with self._database.write(SHORT_SECONDS) as connection:
            connection.execute(sa.update(keys).where(_key.id == key_id, later).values(last_used=now_ms))


def _make_stored_key(row: sa.Row[Any]) -> StoredKey:
    values = {name: getattr(row, name) for name in StoredKey.__struct_fields__}
    return StoredKey(**{**values, "token_hash": bytes(row.token_hash), "sealed_secret": bytes(row.sealed_secret)})

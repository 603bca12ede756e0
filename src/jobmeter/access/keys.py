"""Keys: one principal with a token and a key pair."""

import hashlib
import secrets
from base64 import b32encode
from collections.abc import Sequence
from dataclasses import dataclass, field

from jobmeter.access.principal import Role
from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.series import check_name, check_project
from jobmeter.model.time import Clock
from jobmeter.registry.base import Registry, StoredKey

TOKEN_PREFIX = "jm_"  # noqa: S105 - what every token begins with, so that a scanner finds a leaked one
ACCESS_KEY_PREFIX = "JMAK"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedKey:
    """A new key with its secrets: the only time that they are seen."""

    id: str
    token: str = field(repr=False)
    access_key_id: str
    access_key_secret: str = field(repr=False)
    role: Role
    project: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo:
    """A key without its secrets. Times in epoch milliseconds."""

    id: str
    name: str
    role: Role
    project: str | None
    access_key_id: str
    created: int
    revoked: int | None
    last_used: int | None


def create_key(
    registry: Registry, vault: Vault, clock: Clock, name: str, role: Role | str, project: str | None = None
) -> CreatedKey:
    """Make and keep a key. Raises InvalidRequestError naming ``name``, ``role`` or ``project``."""
    check_name(name, "name")
    if project is not None:
        check_project(project)
    if role not in set(Role):
        raise InvalidRequestError(f"role {str(role)[:64]!r} is none of {', '.join(Role)}", "role")
    created = CreatedKey(
        id=f"key-{secrets.token_hex(5)}",
        token=TOKEN_PREFIX + secrets.token_urlsafe(32),
        access_key_id=ACCESS_KEY_PREFIX + b32encode(secrets.token_bytes(10)).decode(),
        access_key_secret=secrets.token_hex(32),
        role=Role(role),
        project=project,
    )
    registry.add_key(
        StoredKey(
            id=created.id,
            name=name,
            role=created.role.value,
            project=project,
            token_hash=token_hash(created.token),
            access_key_id=created.access_key_id,
            sealed_secret=vault.seal(created.access_key_secret, created.access_key_id),
            created=clock.now_ms(),
        )
    )
    return created


def list_keys(registry: Registry, projects: frozenset[str] | None = None) -> Sequence[KeyInfo]:
    """The keys of those projects (None: every key), revoked ones included, by creation."""
    return [
        KeyInfo(
            id=key.id,
            name=key.name,
            role=Role(key.role),
            project=key.project,
            access_key_id=key.access_key_id,
            created=key.created,
            revoked=key.revoked,
            last_used=key.last_used,
        )
        for key in registry.keys(projects)
    ]


def revoke_key(registry: Registry, clock: Clock, key_id: str, projects: frozenset[str] | None = None) -> None:
    """End a key at once. Raises NotFoundError when those projects (None: all) have no such key that still holds."""
    known = projects is None or any(key.id == key_id for key in registry.keys(projects))
    if not known or not registry.revoke_key(key_id, clock.now_ms()):
        raise NotFoundError(f"there is no key {key_id[:64]!r} that still holds", "key", key_id[:64])


def token_hash(token: str) -> bytes:
    """How the registry knows a token. It is random enough that a plain digest gives nothing away."""
    return hashlib.sha256(token.encode()).digest()

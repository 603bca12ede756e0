"""Keys: one principal with a token and a key pair."""

import secrets
from base64 import b32encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jobmeter.access.authenticate import hash_token
from jobmeter.access.policy import decode_documents
from jobmeter.access.principal import Role
from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.series import check_name, check_project
from jobmeter.model.time import Clock
from jobmeter.registry.base import Registry
from jobmeter.registry.emit import emit
from jobmeter.registry.stored import StoredKey

TOKEN_PREFIX = "jm_"  # noqa: S105 - what every token begins with, so that a scanner finds a leaked one
ACCESS_KEY_PREFIX = "JMAK"


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """New key with its secrets, which are never shown again."""

    id: str
    token: str
    access_key_id: str
    access_key_secret: str
    role: Role
    project: str | None

    def __repr__(self) -> str:
        """Leaves out the secrets."""
        return f"CreatedKey({self.id!r}, {self.access_key_id!r}, {self.role!r}, {self.project!r})"


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Key without its secrets. Times in epoch milliseconds."""

    id: str
    name: str
    role: Role
    project: str | None
    access_key_id: str
    created: int
    revoked: int | None
    last_used: int | None
    policies: tuple[str, ...] = ()
    """Names of the attached policies."""


def create_key(
    registry: Registry,
    vault: Vault,
    clock: Clock,
    name: str,
    role: Role | str,
    project: str | None = None,
    policies: str = "",
    *,
    actor: str = "",
) -> CreatedKey:
    """Create and store a key; ``policies`` as returned by ``jobmeter.access.policy.attached``, ``actor`` as in events.

    Raises InvalidRequestError naming ``name``, ``role`` or ``project``.
    """
    check_name(name, "name")
    if project is not None:
        check_project(project)
    if role not in set(Role):
        raise InvalidRequestError(f"role {str(role)[:64]!r} is not one of {', '.join(Role)}", "role")
    created = CreatedKey(
        id=f"key-{secrets.token_hex(5)}",
        token=TOKEN_PREFIX + secrets.token_urlsafe(32),
        access_key_id=ACCESS_KEY_PREFIX + b32encode(secrets.token_bytes(10)).decode(),
        access_key_secret=secrets.token_hex(32),
        role=Role(role),
        project=project,
    )
    key = StoredKey(
        id=created.id,
        name=name,
        role=created.role.value,
        project=project,
        token_hash=hash_token(created.token),
        access_key_id=created.access_key_id,
        sealed_secret=vault.seal(created.access_key_secret, created.access_key_id),
        created=clock.now_ms(),
        policies=policies,
    )
    registry.keys.add(key)
    _emit(registry, key, "KeyCreated", f"was made{_name_policies(policies)}", clock, actor)
    return created


def list_keys(registry: Registry, projects: frozenset[str] | None = None) -> Sequence[KeyInfo]:
    """List the keys of those projects (None: all) by creation, including revoked ones but no links."""
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
            policies=tuple(policy for policy, _ in decode_documents(key.policies)),
        )
        for key in registry.keys.list_keys(projects)
        if not key.job
    ]


def list_policies(
    registry: Registry, key_id: str, projects: frozenset[str] | None = None
) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """List the policies of a key by name, with documents, in order.

    Raises NotFoundError when those projects (None: all) have no such key.
    """
    key = _find(registry, key_id, projects)
    if key is None or key.job:
        raise NotFoundError(f"there is no key {key_id[:64]!r}", "key", key_id[:64])
    return decode_documents(key.policies)


def revoke_key(
    registry: Registry, clock: Clock, key_id: str, projects: frozenset[str] | None = None, *, actor: str = ""
) -> None:
    """Revoke a key. Raises NotFoundError when those projects (None: all) have no such valid key."""
    key = _find(registry, key_id, projects)
    if key is None or not registry.keys.revoke(key_id, clock.now_ms()):
        raise NotFoundError(f"there is no valid key {key_id[:64]!r}", "key", key_id[:64])
    _emit(registry, key, "KeyRevoked", "was revoked", clock, actor)


def change_policies(
    registry: Registry,
    clock: Clock,
    key_id: str,
    policies: str,
    projects: frozenset[str] | None = None,
    *,
    actor: str = "",
) -> KeyInfo:
    """Replace the policies of a key; ``policies`` as returned by ``jobmeter.access.policy.attached``.

    Raises InvalidRequestError for an empty list, because then only the key's role would decide. Raises NotFoundError
    when those projects (None: all) have no such valid key.
    """
    if not policies:
        raise InvalidRequestError(
            "a key without policies may do everything that its role allows: give at least one policy", "policies"
        )
    key = _find(registry, key_id, projects)
    if key is None or not registry.keys.set_policies(key_id, policies):
        raise NotFoundError(f"there is no valid key {key_id[:64]!r}", "key", key_id[:64])
    before = ", ".join(name for name, _ in decode_documents(key.policies)) or "none"
    _emit(
        registry,
        key,
        "KeyPoliciesChanged",
        f"has other policies{_name_policies(policies)}; before: {before}",
        clock,
        actor,
    )
    return next(one for one in list_keys(registry, projects) if one.id == key_id)


def _find(registry: Registry, key_id: str, projects: frozenset[str] | None) -> StoredKey | None:
    return next((key for key in registry.keys.list_keys(projects) if key.id == key_id), None)


def _emit(registry: Registry, key: StoredKey, reason: str, what: str, clock: Clock, actor: str) -> None:
    message = f"Key {key.name} of role {key.role} {what}."
    emit(registry, clock.now_ms(), reason, message, subject=f"key {key.id}", project=key.project, actor=actor)


def _name_policies(policies: str) -> str:
    names = ", ".join(name for name, _ in decode_documents(policies))
    return f", with the policies {names}" if names else ""

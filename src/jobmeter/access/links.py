"""Links whose holder may read the page of one job, until they expire or are revoked.

A link is a key of role ``reader`` for one job: it is looked up, expires and is revoked like a key. Its token is
encrypted in the registry, so that a user who may share the job can copy the link again.
"""

import secrets
from collections.abc import Sequence

import msgspec

from jobmeter.access.authenticate import hash_token
from jobmeter.access.principal import Principal, Role
from jobmeter.access.share import MAX_LIFE_SECONDS
from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError
from jobmeter.model.series import check_job_id, check_project
from jobmeter.model.time import SECOND, Clock
from jobmeter.registry.base import Registry
from jobmeter.registry.emit import emit
from jobmeter.registry.stored import StoredKey

PREFIX = "jml_"
MOST_LINKS = 100
"""Valid links of one job at a time."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Valid link. Times in epoch milliseconds; ``by`` is the name of the key that created it."""

    id: str
    token: str
    by: str
    created: int
    expires: int
    last_used: int | None

    def __repr__(self) -> str:
        """Leaves out the token."""
        return f"Link({self.id!r}, by {self.by!r}, {self.created} to {self.expires})"


def create_link(
    registry: Registry, vault: Vault, clock: Clock, project: str, job: str, by: Principal, life_seconds: int
) -> Link:
    """Create a link to a job. Raises InvalidRequestError naming the field, LimitExceededError."""
    check_project(project)
    check_job_id(job)
    if not 1 <= life_seconds <= MAX_LIFE_SECONDS:
        raise InvalidRequestError(f"expires_in must be from 1 to {MAX_LIFE_SECONDS} seconds", "expires_in")
    now_ms = clock.now_ms()
    found = registry.keys.list_links(project, job)
    if sum(_is_valid(key, now_ms) for key in found) >= MOST_LINKS:
        raise LimitExceededError(f"job {job} has {MOST_LINKS} valid links: revoke some of them first")
    registry.keys.delete([key.id for key in found if not _is_valid(key, now_ms)])
    token, access_key_id = PREFIX + secrets.token_urlsafe(24), f"JMLK{secrets.token_hex(10)}"
    key = StoredKey(
        id=f"link-{secrets.token_hex(5)}",
        name=by.name,
        role=Role.READER.value,
        project=project,
        token_hash=hash_token(token),
        access_key_id=access_key_id,
        sealed_secret=vault.seal(token, access_key_id),
        created=now_ms,
        job=job,
        expires=now_ms + life_seconds * SECOND,
    )
    registry.keys.add(key)
    message = f"A link that opens job {job} was created."
    emit(registry, now_ms, "KeyCreated", message, subject=f"key {key.id}", project=project, actor=by.id)
    return open_link(vault, key)


def list_valid_links(registry: Registry, now_ms: int, project: str, job: str) -> Sequence[StoredKey]:
    """List the keys of the valid links to a job, newest first."""
    return [key for key in reversed(registry.keys.list_links(project, job)) if _is_valid(key, now_ms)]


def end_link(registry: Registry, clock: Clock, project: str, job: str, link_id: str, actor: str) -> None:
    """Revoke a link. Raises NotFoundError when the job has no such valid link."""
    now_ms = clock.now_ms()
    key = next((one for one in registry.keys.list_links(project, job) if one.id == link_id), None)
    if key is None or not _is_valid(key, now_ms) or not registry.keys.revoke(link_id, now_ms):
        raise NotFoundError(f"job {job} has no valid link {link_id[:64]!r}", "link", link_id[:64])
    message = f"A link to job {job} was revoked."
    emit(registry, now_ms, "KeyRevoked", message, subject=f"key {link_id}", project=project, actor=actor)


def forget_links(registry: Registry, project: str, job: str) -> list[str]:
    """Delete every link to a deleted job, so that none opens a later job of that id. Returns their ids."""
    ids = [key.id for key in registry.keys.list_links(project, job)]
    registry.keys.delete(ids)
    return ids


def _is_valid(key: StoredKey, now_ms: int) -> bool:
    return key.revoked is None and (key.expires is None or key.expires > now_ms)


def open_link(vault: Vault, key: StoredKey) -> Link:
    """Return the link of a key, with its decrypted token."""
    return Link(
        id=key.id,
        token=vault.open(key.sealed_secret, key.access_key_id),
        by=key.name,
        created=key.created,
        expires=key.expires or 0,
        last_used=key.last_used,
    )

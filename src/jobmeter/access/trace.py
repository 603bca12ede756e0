"""Trace tokens: a program uses one to send spans and log records to a project, on behalf of the key that requested it.

A token carries its content, encrypted by the vault, so that it needs no storage. It is valid until it expires or its
key is revoked.
"""

from dataclasses import replace

import msgspec

from jobmeter.access.decide import write_project
from jobmeter.access.principal import Principal
from jobmeter.access.sealed import seal, unseal
from jobmeter.access.signatures.tokens import TRACE_PREFIX
from jobmeter.access.vault import Vault
from jobmeter.errors import ForbiddenError
from jobmeter.model.time import DAY

LIFE_MS = 7 * DAY
"""Lifetime of a token in milliseconds."""
ACTIONS = frozenset({"traces:write"})
"""Actions of its holder."""
_USE = "trace token"


class TraceGrant(msgspec.Struct, frozen=True):
    """Content of a token: the key that requested it, and the project to write to."""

    access_key_id: str
    project: str

    def narrowed(self, principal: Principal) -> Principal:
        """Return the principal of the token, which may do less than the key."""
        return replace(principal, project=self.project, actions=ACTIONS)


def issue(vault: Vault, principal: Principal, now_ms: int) -> tuple[str, int]:
    """Create a token for the caller's own project.

    Returns the token and its expiry (epoch ms). Raises ForbiddenError.
    """
    project = write_project(principal)
    if not principal.access_key_id:
        raise ForbiddenError("only the holder of a key may request a trace token")
    expires_ms = now_ms + LIFE_MS
    return TRACE_PREFIX + seal(vault, _USE, principal.access_key_id, project, expires_ms=expires_ms), expires_ms


def read(vault: Vault, token: str, now_ms: int) -> TraceGrant:
    """Return the content of a token. Raises UnauthenticatedError: ``malformed``, ``bad-signature`` or ``expired``."""
    (access_key_id, project), _ = unseal(vault, _USE, token.removeprefix(TRACE_PREFIX), "trace token", now_ms)
    return TraceGrant(access_key_id, project)

"""Trace tokens: a program uses one to send spans and log records to a project, on behalf of the key that requested it.

With a job a token is a run token: it writes and reads the runs of MLflow in that job, and nothing else.
A token carries its content, encrypted by the vault, so that it needs no storage. It is valid until it expires or its
key is revoked.
"""

from dataclasses import replace
from urllib.parse import quote, unquote

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
RUN_LIFE_MS = 365 * DAY
"""Lifetime of a run token in milliseconds: a long training must not lose it."""
ACTIONS = frozenset({"traces:write"})
"""Actions of its holder."""
RUN_ACTIONS = frozenset({"runs:read", "runs:write"})
"""Actions of the holder of a run token."""
_USE = "trace token"


class TraceGrant(msgspec.Struct, frozen=True):
    """Content of a token: the key that requested it, the project to write to, and the job of a run token."""

    access_key_id: str
    project: str
    job: str = ""

    def narrow(self, principal: Principal) -> Principal:
        """Return the principal of the token, which may do less than the key."""
        if self.job:
            return replace(principal, project=self.project, actions=RUN_ACTIONS, run_job=self.job)
        return replace(principal, project=self.project, actions=ACTIONS)


def issue(vault: Vault, principal: Principal, now_ms: int, job: str = "", named: str | None = None) -> tuple[str, int]:
    """Create a token for the caller's own project, else the ``named`` one; with ``job``, a run token.

    Returns the token and its expiry (epoch ms). Raises ForbiddenError.
    """
    project = write_project(principal, named)
    if not principal.access_key_id:
        raise ForbiddenError("only the holder of a key may request a trace token")
    expires_ms = now_ms + (RUN_LIFE_MS if job else LIFE_MS)
    words = (principal.access_key_id, project, *([quote(job)] if job else []))
    return TRACE_PREFIX + seal(vault, _USE, *words, expires_ms=expires_ms), expires_ms


def read(vault: Vault, token: str, now_ms: int) -> TraceGrant:
    """Return the content of a token. Raises UnauthenticatedError: ``malformed``, ``bad-signature`` or ``expired``."""
    words, _ = unseal(vault, _USE, token.removeprefix(TRACE_PREFIX), "trace token", now_ms)
    return TraceGrant(*map(unquote, words))

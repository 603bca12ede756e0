"""Page tokens: a position in the answer to one query, signed by the vault, valid for a limited time."""

import msgspec

from jobmeter.access.sealed import sign, verify_content
from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import HOUR

LIFE_MS = HOUR
"""Lifetime of a token in milliseconds."""
MAX_TOKEN = 8_192
"""Longest token, in characters."""
_PURPOSE = b"page 1\0"


class _Content(msgspec.Struct, frozen=True, array_like=True):
    expires_ms: int
    place: bytes


def seal(vault: Vault, question: bytes, place: bytes, now_ms: int) -> str:
    """Make a token for a position in the answer to a query."""
    content = msgspec.msgpack.encode(_Content(now_ms + LIFE_MS, place))
    return sign(vault, content, _bound(question))


def unseal(vault: Vault, question: bytes, token: str, now_ms: int, field: str) -> bytes:
    """Read the position from a token.

    Raises InvalidRequestError naming ``field`` for a token that was changed, belongs to another query, or has expired.
    """
    content = verify_content(vault, token, _bound(question)) if len(token) <= MAX_TOKEN else None
    if content is None:
        raise InvalidRequestError(f"{field} is not from this query: start again with the first page", field)
    found = msgspec.msgpack.decode(content, type=_Content)
    if found.expires_ms <= now_ms:
        raise InvalidRequestError(f"{field} has expired: start again with the first page", field)
    return found.place


def _bound(question: bytes) -> bytes:
    return _PURPOSE + len(question).to_bytes(4, "big") + question

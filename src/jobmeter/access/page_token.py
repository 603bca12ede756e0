"""Tokens of next pages: a position in the answer to one query, signed by the vault, valid for a limited time."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as EncodingError

import msgspec

from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import HOUR

LIFE_MS = HOUR
"""How long a token is valid."""
MAX_TOKEN = 8_192
"""Longest token, in characters."""
_PURPOSE = b"page 1\0"
_SEAL_BYTES = 16


class _Content(msgspec.Struct, frozen=True, array_like=True):
    expires_ms: int
    place: bytes


def seal(vault: Vault, question: bytes, place: bytes, now_ms: int) -> str:
    """A token for that position in the answer to a query."""
    content = msgspec.msgpack.encode(_Content(now_ms + LIFE_MS, place))
    data = content + vault.sign(_signed(question, content))
    return urlsafe_b64encode(data).decode().rstrip("=")


def unseal(vault: Vault, question: bytes, token: str, now_ms: int, field: str) -> bytes:
    """The position in a token.

    Raises InvalidRequestError naming ``field`` for one that was changed, is of another query, or has expired.
    """
    wrong = InvalidRequestError(f"{field} is not one that was given for this question", field)
    if len(token) > MAX_TOKEN:
        raise wrong
    try:
        data = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
    except (EncodingError, UnicodeEncodeError) as error:
        raise wrong from error
    content, mark = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    exact = urlsafe_b64encode(data).decode().rstrip("=") == token
    if not exact or not hmac.compare_digest(vault.sign(_signed(question, content)), mark):
        raise wrong
    found = msgspec.msgpack.decode(content, type=_Content)
    if found.expires_ms <= now_ms:
        raise InvalidRequestError(f"{field} has expired: start again with the first page", field)
    return found.place


def _signed(question: bytes, content: bytes) -> bytes:
    return _PURPOSE + len(question).to_bytes(4, "big") + question + content

"""Cursors of listings: sealed texts, valid for one question of one caller for an hour."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as EncodingError
from hashlib import blake2b
from typing import Any

import msgspec

from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.time import HOUR
from jobmeter.server.native.endpoint import CallContext

_USE = "cursor of a listing"
_MOST = 2_048


class _Place(msgspec.Struct, array_like=True):
    question: str
    expires_ms: int
    at: list[Any]


def cursor_of(context: CallContext, at: list[Any]) -> str:
    """Make the cursor that continues after a place."""
    place = _Place(_question(context), context.services.clock.now_ms() + HOUR, at)
    sealed = context.services.vault.seal(msgspec.json.encode(place).decode(), _USE)
    return urlsafe_b64encode(sealed).decode().rstrip("=")


def place_of(context: CallContext) -> list[Any] | None:
    """Read the place after which the call continues; None for the first page.

    Raises InvalidRequestError (field ``cursor``) for a cursor that is invalid, belongs to another question or has
    expired.
    """
    text = context.arguments.text("cursor")
    if not text:
        return None
    try:
        sealed = urlsafe_b64decode(text[:_MOST].encode("ascii") + b"=" * (-len(text[:_MOST]) % 4))
        place = msgspec.json.decode(context.services.vault.open(sealed, _USE), type=_Place)
    except (EncodingError, ValueError, ConfigurationError, msgspec.DecodeError) as error:
        raise InvalidRequestError("the cursor is not valid on this server: start again without it", "cursor") from error
    if place.expires_ms <= context.services.clock.now_ms():
        raise InvalidRequestError("the cursor has expired: start again without it", "cursor")
    if place.question != _question(context):
        raise InvalidRequestError("the cursor belongs to another question: start again without it", "cursor")
    return place.at


def _question(context: CallContext) -> str:
    """Hash the question, without cursor and limit, and the caller."""
    given = sorted(pair for pair in context.call.parameters if pair[0] not in {"cursor", "limit"})
    text = msgspec.json.encode([context.principal.id, sorted(context.path.items()), given])
    return blake2b(text, digest_size=8).hexdigest()

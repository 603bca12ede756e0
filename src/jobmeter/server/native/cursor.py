"""Cursors of listings: page tokens for one question of one caller."""

from hashlib import blake2b
from typing import Any

import msgspec

from jobmeter.access.page_token import seal, unseal
from jobmeter.server.native.endpoint import CallContext


def cursor_of(context: CallContext, at: list[Any]) -> str:
    """Make the cursor that continues after a place."""
    services = context.services
    return seal(services.vault, _question(context), msgspec.msgpack.encode(at), services.clock.now_ms())


def place_of(context: CallContext) -> list[Any] | None:
    """Read the place after which the call continues; None for the first page.

    Raises InvalidRequestError (field ``cursor``) for a cursor that is invalid, belongs to another question or has
    expired.
    """
    text, services = context.arguments.text("cursor"), context.services
    if not text:
        return None
    place = unseal(services.vault, _question(context), text, services.clock.now_ms(), "cursor")
    return msgspec.msgpack.decode(place, type=list[Any])


def _question(context: CallContext) -> bytes:
    """Hash the question, without cursor and limit, and the caller."""
    given = sorted(pair for pair in context.call.parameters if pair[0] not in {"cursor", "limit"})
    text = msgspec.json.encode([context.principal.id, sorted(context.path.items()), given])
    return blake2b(text, digest_size=8).digest()

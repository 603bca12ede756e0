"""Parts of a call in the forms that signatures are made over. Everything is bytes: nothing is lost in decoding."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from urllib.parse import quote_from_bytes, unquote_to_bytes

from jobmeter.access.call import Call
from jobmeter.errors import UnauthenticatedError

MAX_NONCE = 256
Pairs = list[tuple[bytes, bytes]]
_ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")


def encode(value: bytes) -> str:
    """RFC 3986: all but ``A-Z a-z 0-9 - _ . ~`` as upper-case ``%XX``."""
    return quote_from_bytes(value, safe="~")


def raw(text: str) -> bytes:
    """The bytes of a text from the wire, which a ``Call`` has as Latin-1."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def encoded_path(raw_path: str) -> str:
    """Each segment decoded and encoded again: one form for whatever a client's HTTP library left unescaped.

    A ``%2F`` stays inside its segment, an empty segment stays.
    """
    return "/".join(encode(unquote_to_bytes(raw(segment))) for segment in raw_path.split("/")) or "/"


def unescaped_path(raw_path: str) -> bytes | None:
    """The path with every escape resolved; None where another path would have the same text.

    That is so where a segment has an escaped slash (``a%2Fb`` and ``a/b``) or an escaped escape (``a%252Fb`` and
    ``a%2Fb``): a signature over the text says nothing of which of the two was sent.
    """
    segments = [unquote_to_bytes(raw(segment)) for segment in raw_path.split("/")]
    path = b"/".join(segments)
    return None if _ESCAPE.search(path) or any(b"/" in segment for segment in segments) else path


def query_pairs(query: str) -> Pairs:
    """The parameters decoded form-style (``+`` is a space), in order; a bare name has an empty value."""
    pairs = [piece.partition("=") for piece in query.split("&") if piece]
    return [(_form_decoded(name), _form_decoded(value)) for name, _, value in pairs]


def sorted_by_name(pairs: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Sorted by name, stable: of repeated names readers take the first."""
    return sorted(pairs, key=lambda pair: pair[0])


def header_values(call: Call, name: str) -> list[str]:
    """Every value of a header, trimmed, in order."""
    return [value.strip() for key, value in call.headers if key == name]


def same(one: str, other: str) -> bool:
    """Equality that takes the same time wherever the texts differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def date_ms(text: str, form: str, wrong: str) -> int:
    """Epoch milliseconds of a time in UTC of a ``form`` of ``strptime``. Raises UnauthenticatedError with ``wrong``."""
    try:
        moment = datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError as error:
        raise UnauthenticatedError(wrong, "malformed") from error
    return int(moment.timestamp()) * 1000


def credential(
    call: Call, begins: tuple[str, ...], pattern: re.Pattern[str], form: str, hashes: Mapping[str, str]
) -> re.Match[str] | None:
    """The Authorization header that begins so, by a pattern with the group ``algorithm``; None for any other.

    Raises UnauthenticatedError where it is not of its ``form``, or the hash of its algorithm is not there.
    """
    text = call.header("authorization").strip()
    if not text.startswith(begins):
        return None
    match = pattern.fullmatch(text)
    if match is None:
        raise UnauthenticatedError(f"the Authorization header is not of the form {form}", "malformed")
    if hashes.get(match["algorithm"]) not in hashlib.algorithms_available:
        raise UnauthenticatedError(f"the signature algorithm {match['algorithm']} is not supported here", "malformed")
    return match


def _form_decoded(text: str) -> bytes:
    return unquote_to_bytes(raw(text).replace(b"+", b" "))

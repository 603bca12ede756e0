"""Parts of a call in the forms that signatures cover. Works on bytes, because decoding would lose information."""

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
    """Percent-encode by RFC 3986: all but ``A-Z a-z 0-9 - _ . ~`` as upper-case ``%XX``."""
    return quote_from_bytes(value, safe="~")


def encode_wire(text: str) -> bytes:
    """Return the bytes of a text from the wire, which a ``Call`` has as Latin-1."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def encode_path(raw_path: str) -> str:
    """Decode and encode each segment: one form for all variants that HTTP libraries leave unescaped.

    A ``%2F`` stays inside its segment; an empty segment stays.
    """
    return "/".join(encode(unquote_to_bytes(encode_wire(segment))) for segment in raw_path.split("/")) or "/"


def unescape_path(raw_path: str) -> bytes | None:
    """Return the path with every escape resolved; None if another path would give the same text.

    Ambiguous are an escaped slash (``a%2Fb`` and ``a/b``) and an escaped escape (``a%252Fb`` and ``a%2Fb``): a
    signature over the text does not tell which of the two was sent.
    """
    segments = [unquote_to_bytes(encode_wire(segment)) for segment in raw_path.split("/")]
    path = b"/".join(segments)
    return None if _ESCAPE.search(path) or any(b"/" in segment for segment in segments) else path


def query_pairs(query: str) -> Pairs:
    """Decode the parameters form-style (``+`` is a space), in order; a bare name has an empty value."""
    pairs = [piece.partition("=") for piece in query.split("&") if piece]
    return [(_form_decoded(name), _form_decoded(value)) for name, _, value in pairs]


def sort_by_name(pairs: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Sort by name, stable: of repeated names readers take the first."""
    return sorted(pairs, key=lambda pair: pair[0])


def list_headers(call: Call, name: str) -> list[str]:
    """Return every value of a header, trimmed, in order."""
    return [value.strip() for key, value in call.headers if key == name]


def is_same(one: str, other: str) -> bool:
    """Compare texts in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


def parse_date(text: str, form: str, wrong: str) -> int:
    """Parse a UTC time by a ``strptime`` form to epoch milliseconds. Raises UnauthenticatedError with ``wrong``."""
    try:
        moment = datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError as error:
        raise UnauthenticatedError(wrong, "malformed") from error
    return int(moment.timestamp()) * 1000


def match_credential(
    call: Call, begins: tuple[str, ...], pattern: re.Pattern[str], form: str, hashes: Mapping[str, str]
) -> re.Match[str] | None:
    """Match an Authorization header with that beginning by a pattern with a group ``algorithm``; None for any other.

    Raises UnauthenticatedError if the header does not match ``form`` or its hash algorithm is unavailable.
    """
    text = call.get_header("authorization").strip()
    if not text.startswith(begins):
        return None
    match = pattern.fullmatch(text)
    if match is None:
        raise UnauthenticatedError(f"the Authorization header must have the form {form}", "malformed")
    if hashes.get(match["algorithm"]) not in hashlib.algorithms_available:
        raise UnauthenticatedError(f"the signature algorithm {match['algorithm']} is not supported here", "malformed")
    return match


def _form_decoded(text: str) -> bytes:
    return unquote_to_bytes(encode_wire(text).replace(b"+", b" "))

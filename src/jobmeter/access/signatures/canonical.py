"""Parts of a call in the forms that signatures are made over. Everything is bytes: nothing is lost in decoding."""

import hmac
from collections.abc import Iterable
from urllib.parse import quote_from_bytes, unquote_to_bytes

from jobmeter.access.call import Call

Pairs = list[tuple[bytes, bytes]]


def encode(value: bytes) -> str:
    """RFC 3986: all but ``A-Z a-z 0-9 - _ . ~`` as upper-case ``%XX``."""
    return quote_from_bytes(value, safe="~")


def raw(text: str) -> bytes:
    """The bytes of a text from the wire, which a ``Call`` holds as Latin-1."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def encoded_path(raw_path: str) -> str:
    """Each segment decoded and encoded again: one form for whatever a client's HTTP library left unescaped.

    A ``%2F`` stays inside its segment, an empty segment stays.
    """
    return "/".join(encode(unquote_to_bytes(raw(segment))) for segment in raw_path.split("/")) or "/"


def decoded_path(raw_path: str) -> bytes:
    """The path with every escape resolved."""
    return unquote_to_bytes(raw(raw_path))


def query_pairs(query: str) -> Pairs:
    """The parameters decoded form-style (``+`` is a space), in order; a bare name has an empty value."""
    pairs = [piece.partition("=") for piece in query.split("&") if piece]
    return [(_form_decoded(name), _form_decoded(value)) for name, _, value in pairs]


def sorted_by_name(pairs: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """By name alone: repeated names keep their order, because whoever reads them takes the first."""
    return sorted(pairs, key=lambda pair: pair[0])


def header_values(call: Call, name: str) -> list[str]:
    """Every value of a header, trimmed, in order."""
    return [value.strip() for key, value in call.headers if key == name]


def same(one: str, other: str) -> bool:
    """Equality that takes the same time wherever the texts differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def _form_decoded(text: str) -> bytes:
    return unquote_to_bytes(raw(text).replace(b"+", b" "))

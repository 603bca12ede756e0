"""The older ROA signature, ``Authorization: acs ID:SIGNATURE``: Alibaba's legacy SDK core, and newer SDKs with ``v2``.

Implementations differ in writing the path, an empty parameter and the content type of an empty body; a signature that
is right in any of these forms is accepted. The scheme protects a body only by Content-MD5, and only if the client sends
one.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from itertools import product

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.access.signatures.canonical import (
    MAX_NONCE,
    encode_path,
    encode_wire,
    is_same,
    list_headers,
    query_pairs,
    sort_by_name,
    unescape_path,
)
from jobmeter.errors import UnauthenticatedError

_CREDENTIAL = re.compile(r"acs +(?P<key>[^:\s]{1,128}):(?P<signature>[A-Za-z0-9+/=]{1,128})")
_PLAIN = ("accept", "content-md5", "content-type", "date")


class Roa:
    """Scheme ROA. The legacy SDK core sends no nonce: only the date then limits a replay."""

    name = "roa"

    def claim(self, call: Call) -> Claim | None:
        """Return the claim."""
        match = _parse(call)
        if match is None:
            return None
        names = [name for name, _ in call.headers if name.startswith("x-acs-") or name in _PLAIN]
        if len(names) != len(set(names)):
            raise UnauthenticatedError("a signed header appears more than once", "malformed")
        method = call.get_header("x-acs-signature-method", "HMAC-SHA1").strip()
        if method.upper() != "HMAC-SHA1":
            raise UnauthenticatedError(f"the signature method {method[:64]!r} is not supported here", "malformed")
        nonce = call.get_header("x-acs-signature-nonce").strip()
        if len(nonce) > MAX_NONCE:
            raise UnauthenticatedError(f"x-acs-signature-nonce may have at most {MAX_NONCE} characters", "malformed")
        return Claim(
            kind=ClaimKind.ACCESS_KEY,
            value=match["key"],
            date_ms=_date(call.get_header("date").strip()),
            nonce=nonce,
        )

    def verify_headers(self, call: Call, secret: str) -> bool:
        """Verify the signature of the headers, including Content-MD5."""
        match = _parse(call)
        if match is None:
            return False
        key, expected = secret.encode(), match["signature"]
        good = False
        for text in iterate_strings_to_sign(call):
            signature = base64.b64encode(hmac.new(key, text, hashlib.sha1).digest()).decode()
            good |= is_same(signature, expected)
        return good

    def verify(self, call: Call, secret: str) -> bool:
        """Verify Content-MD5, if present, and the signature of the headers."""
        md5 = call.get_header("content-md5").strip()
        if md5 and not is_same(md5, _content_md5(call.body)):
            return False
        return self.verify_headers(call, secret)


def iterate_strings_to_sign(call: Call) -> Iterator[bytes]:
    """Generate each form in which a client may have signed the call, without duplicates."""
    types = dict.fromkeys((call.get_header("content-type").strip(), *(() if call.body else ("",))))
    # As sent; as generated, before the HTTP library unescaped parts of it; as written in the program, never escaped.
    forms = encode_wire(call.raw_path), encode_path(call.raw_path).encode(), unescape_path(call.raw_path)
    paths = dict.fromkeys(form for form in forms if form is not None)
    pairs = sort_by_name(query_pairs(call.query))
    queries = dict.fromkeys(_query(pairs, empty) for empty in (b"", b"="))
    extra = b"".join(
        encode_wire(f"{name}:{value}\n")
        for name, value in sorted((name, list_headers(call, name)[0]) for name, _ in call.headers)
        if name.startswith("x-acs-")
    )
    for content_type, path, query in product(types, paths, queries):
        values = {**{name: call.get_header(name).strip() for name in _PLAIN}, "content-type": content_type}
        head = encode_wire("\n".join((call.method, *(values[name] for name in _PLAIN))))
        yield head + b"\n" + extra + path + query


def _query(pairs: list[tuple[bytes, bytes]], empty: bytes) -> bytes:
    text = b"&".join(name + (b"=" + value if value else empty) for name, value in pairs)
    return b"?" + text if pairs else b""


def _parse(call: Call) -> re.Match[str] | None:
    text = call.get_header("authorization").strip()
    if text.partition(" ")[0] != "acs":
        return None
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise UnauthenticatedError("the Authorization header must have the form acs ID:SIGNATURE", "malformed")
    return match


def _content_md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def _date(text: str) -> int:
    if not text:
        raise UnauthenticatedError("the Date header is missing", "incomplete-signature")
    try:
        moment = parsedate_to_datetime(text)
    except ValueError as error:
        raise UnauthenticatedError("Date must be like Fri, 20 Nov 2026 15:33:58 GMT", "malformed") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()) * 1000


ROA = Roa()

"""Huawei Cloud's signatures: SDK-HMAC-SHA256 and four related algorithms, as made by its SDKs.

https://support.huaweicloud.com/intl/en-us/devg-apisign/api-sign-algorithm.html

The scheme has no nonce: a captured request may be sent again, unchanged, within 15 minutes of its date. The client
chooses the signed headers; they must include the date, and the token of a temporary key if the call has one.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator
from itertools import product

import msgspec

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.access.signatures.canonical import (
    encode,
    encode_path,
    encode_wire,
    is_same,
    match_credential,
    parse_date,
    query_pairs,
    sort_by_name,
)
from jobmeter.access.signatures.sdk_keys import derive_secret, verify_p256, verify_sm2
from jobmeter.errors import UnauthenticatedError

DATE_HEADER, TOKEN_HEADER = "x-sdk-date", "x-security-token"
UNSIGNED = "UNSIGNED-PAYLOAD"
V11 = "V11-HMAC-SHA256"

_HASHES = {
    "SDK-HMAC-SHA256": "sha256",
    "SDK-HMAC-SM3": "sm3",
    V11: "sha256",
    "SDK-ECDSA-P256-SHA256": "sha256",
    "SDK-SM2-SM3": "sm3",
}
_CONTENT_HEADERS = {"sha256": "x-sdk-content-sha256", "sm3": "x-sdk-content-sm3"}
_TOKEN = r"[a-z0-9!#$%&'*+.^_`|~-]"  # noqa: S105 - the characters of a header's name
_CREDENTIAL = re.compile(
    r"(?P<algorithm>(?:SDK|V11)-[A-Z0-9-]+) +(?:Access|Credential)=(?P<key>[^,/\s]{1,128})(?:/(?P<info>[^,\s]{1,256}))?"
    rf", *SignedHeaders=(?P<headers>{_TOKEN}+(?:;{_TOKEN}+)*), *Signature=(?P<signature>[0-9a-f]{{1,512}})"
)
_INFO = re.compile(r"(?P<day>[0-9]{8})/(?P<region>[^/]{1,64})/(?P<service>[^/]{1,64})")


class _Parsed(msgspec.Struct, frozen=True):
    algorithm: str
    key: str
    info: str
    headers: tuple[str, ...]
    signature: str

    @property
    def hash(self) -> str:
        return _HASHES[self.algorithm]


class SdkHmac:
    """Scheme ``Authorization: SDK-HMAC-SHA256 Access=ID, SignedHeaders=a;b, Signature=HEX`` and related ones."""

    name = "sdk-hmac"

    def claim(self, call: Call) -> Claim | None:
        """Return the claim. Each signed header must appear in the call once; a security token must be signed."""
        parsed = _parse(call)
        if parsed is None:
            return None
        present = [name for name, _ in call.headers]
        needed = {DATE_HEADER, TOKEN_HEADER} & {DATE_HEADER, *present}
        missing = {name for name in parsed.headers if name not in present} | needed.difference(parsed.headers)
        if missing:
            names = ", ".join(sorted(missing))
            raise UnauthenticatedError(f"not signed, or missing: {names}", "incomplete-signature")
        if any(present.count(name) > 1 for name in parsed.headers):
            raise UnauthenticatedError("a signed header appears more than once", "malformed")
        date = call.get_header(DATE_HEADER).strip()
        _check_info(parsed, date)
        moment = parse_date(date, "%Y%m%dT%H%M%SZ", "X-Sdk-Date must be like 20261120T153356Z")
        return Claim(kind=ClaimKind.ACCESS_KEY, value=parsed.key, date_ms=moment)

    def verify_headers(self, call: Call, secret: str) -> bool:
        """Verify the signature if a header names the body's hash; else return True: ``verify`` needs the body."""
        parsed = _parse(call)
        if parsed is None:
            return False
        payloads = _read_payload_hash(call, parsed)
        return not payloads or _any_matches(parsed, call, payloads, secret)

    def verify(self, call: Call, secret: str) -> bool:
        """Verify the signature with the hash of the body."""
        parsed = _parse(call)
        if parsed is None:
            return False
        return _any_matches(parsed, call, _payloads(call, parsed), secret)


def describe_canonical_request(call: Call) -> str:
    """Return the expected canonical request for the error message; empty for a malformed signature."""
    parsed = _parse(call)
    if parsed is None:
        return ""
    payloads = _read_payload_hash(call, parsed) or _payloads(call, parsed)
    return next((request.decode("utf-8", "replace") for request in _canonical_requests(call, parsed, payloads)), "")


def _any_matches(parsed: _Parsed, call: Call, payloads: tuple[str, ...], secret: str) -> bool:
    texts = (_string_to_sign(parsed, call, request) for request in _canonical_requests(call, parsed, payloads))
    return any(_matches(parsed, text, secret) for text in texts)


def _matches(parsed: _Parsed, text: bytes, secret: str) -> bool:
    if parsed.algorithm == "SDK-ECDSA-P256-SHA256":
        return verify_p256(parsed.key, secret, parsed.signature, text)
    if parsed.algorithm == "SDK-SM2-SM3":
        return verify_sm2(parsed.key, secret, parsed.signature, text)
    if parsed.algorithm == V11:
        secret = derive_secret(parsed.key, secret, parsed.info)
    return is_same(hmac.new(secret.encode(), text, parsed.hash).hexdigest(), parsed.signature)


def _string_to_sign(parsed: _Parsed, call: Call, request: bytes) -> bytes:
    lines = [parsed.algorithm, call.get_header(DATE_HEADER).strip()]
    if parsed.info:
        lines.append(parsed.info)
    return encode_wire("\n".join((*lines, _digest(parsed, request))))


def _canonical_requests(call: Call, parsed: _Parsed, payloads: tuple[str, ...]) -> Iterator[bytes]:
    """Generate each form in which a client may have signed the call: SDKs differ in query order and empty bodies."""
    # The SDKs unescape the whole path before they split it, so they sign `a%2Fb` as `a/b`. Accepting that would let one
    # request stand for another. No id has a slash, so an escaped slash stays in its segment here.
    path = encode_path(call.raw_path)
    path = path if path.endswith("/") else f"{path}/"
    pairs = query_pairs(call.query)
    queries = dict.fromkeys(
        "&".join(f"{encode(name)}={encode(value)}" for name, value in ordered)
        for ordered in (pairs, sort_by_name(pairs))
    )
    values = {name: encode_wire(value).strip(b" \t") for name, value in reversed(call.headers)}
    headers = b"".join(encode_wire(name) + b":" + values[name] + b"\n" for name in parsed.headers if name in values)
    for query, payload in product(queries, payloads):
        head = encode_wire(f"{call.method.upper()}\n{path}\n{query}\n")
        yield head + headers + encode_wire(f"\n{';'.join(parsed.headers)}\n{payload}")


def _payloads(call: Call, parsed: _Parsed) -> tuple[str, ...]:
    """Return the hashes that may stand for the body. A hash named by the client counts only if it is the body's."""
    hashed = _digest(parsed, call.body)
    named = call.get_header(_CONTENT_HEADERS[parsed.hash]).strip()
    if not named:
        return (hashed,)
    if named == UNSIGNED:
        return (UNSIGNED,) if call.body else (hashed, UNSIGNED)
    return (named,) if is_same(named.lower(), hashed) else ()


def _read_payload_hash(call: Call, parsed: _Parsed) -> tuple[str, ...]:
    """Return the hash that the header names, without reading the body; empty if none."""
    named = call.get_header(_CONTENT_HEADERS[parsed.hash]).strip()
    if named == UNSIGNED:
        return (UNSIGNED, _digest(parsed, b""))
    return (named,) if named else ()


def _parse(call: Call) -> _Parsed | None:
    match = match_credential(call, ("SDK-", "V11-"), _CREDENTIAL, "SDK-HMAC-SHA256 Access=...", _HASHES)
    if match is None:
        return None
    algorithm = match["algorithm"]
    if bool(match["info"]) != (algorithm == V11):
        raise UnauthenticatedError(
            f"Credential=ID/DAY/REGION/SERVICE must be used with {V11} and only with it", "malformed"
        )
    return _Parsed(algorithm, match["key"], match["info"] or "", tuple(match["headers"].split(";")), match["signature"])


def _check_info(parsed: _Parsed, date: str) -> None:
    if not parsed.info:
        return
    info = _INFO.fullmatch(parsed.info)
    if info is None or not date.startswith(info["day"]):
        raise UnauthenticatedError(
            "Credential must be ID/DAY/REGION/SERVICE, with the day of the request's date", "malformed"
        )


def _digest(parsed: _Parsed, data: bytes) -> str:
    return hashlib.new(parsed.hash, data).hexdigest()


SDK_HMAC = SdkHmac()

"""ACS3-HMAC-SHA256 and -SM3, the default of Alibaba's newer SDKs.

https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature
"""

import hashlib
import hmac
import re

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.access.signatures.canonical import (
    MAX_NONCE,
    encode,
    encode_path,
    encode_wire,
    is_same,
    list_headers,
    match_credential,
    parse_date,
    query_pairs,
    sort_by_name,
)
from jobmeter.errors import UnauthenticatedError

REQUIRED = frozenset(
    {"host", "x-acs-action", "x-acs-version", "x-acs-date", "x-acs-signature-nonce", "x-acs-content-sha256"}
)
"""Headers that must be signed, so that operation, body and date cannot be changed."""

_WRONG_DATE = "x-acs-date must be like 2026-11-20T15:33:56Z"
_HASHES = {"ACS3-HMAC-SHA256": "sha256", "ACS3-HMAC-SM3": "sm3"}
_CREDENTIAL = re.compile(
    r"(?P<algorithm>ACS3-[A-Z0-9-]+) +Credential=(?P<key>[^,\s]{1,128}), *"
    r"SignedHeaders=(?P<headers>[a-z0-9;_-]{1,4096}), *Signature=(?P<signature>[0-9a-f]{1,128})"
)


class Acs3:
    """Scheme ``Authorization: ACS3-... Credential=ID,SignedHeaders=a;b,Signature=HEX``."""

    name = "acs3"

    def claim(self, call: Call) -> Claim | None:
        """Return the claim; None for another scheme. Every ``x-acs-`` header of the call must be signed."""
        parsed = _parse(call)
        if parsed is None:
            return None
        signed = set(parsed["headers"].split(";"))
        present = {name for name, _ in call.headers}
        unsigned = (REQUIRED - (signed & present)) | {name for name in present - signed if name.startswith("x-acs-")}
        if unsigned:
            raise UnauthenticatedError(f"not signed, or missing: {', '.join(sorted(unsigned))}", "incomplete-signature")
        if any(len(list_headers(call, name)) > 1 for name in signed if name in REQUIRED):
            raise UnauthenticatedError("a header that must be signed appears more than once", "malformed")
        nonce = call.get_header("x-acs-signature-nonce").strip()
        if not 1 <= len(nonce) <= MAX_NONCE:
            raise UnauthenticatedError(f"x-acs-signature-nonce must have 1 to {MAX_NONCE} characters", "malformed")
        return Claim(
            kind=ClaimKind.ACCESS_KEY,
            value=parsed["key"],
            date_ms=parse_date(call.get_header("x-acs-date").strip(), "%Y-%m-%dT%H:%M:%SZ", _WRONG_DATE),
            nonce=nonce,
        )

    def verify_headers(self, call: Call, secret: str) -> bool:
        """Verify the signature of the headers."""
        parsed = _parse(call)
        if parsed is None:
            return False
        request = build_canonical_request(call, parsed["headers"], call.get_header("x-acs-content-sha256").strip())
        return is_same(sign(parsed["algorithm"], request, secret), parsed["signature"])

    def verify(self, call: Call, secret: str) -> bool:
        """Verify the signature of the headers and the hash of the body."""
        parsed = _parse(call)
        if parsed is None:
            return False
        hashed = _digest(parsed["algorithm"], call.body)
        return is_same(hashed, call.get_header("x-acs-content-sha256").strip()) and self.verify_headers(call, secret)


def build_canonical_request(call: Call, signed_headers: str, hashed_body: str) -> bytes:
    """Build the signed text: method, path, query, the named headers, their names, the body's hash."""
    query = "&".join(f"{encode(name)}={encode(value)}" for name, value in sort_by_name(query_pairs(call.query)))
    headers = "".join(f"{name}:{','.join(sorted(list_headers(call, name)))}\n" for name in signed_headers.split(";"))
    lines = (call.method, encode_path(call.raw_path), query, headers, signed_headers, hashed_body)
    return encode_wire("\n".join(lines))


def sign(algorithm: str, request: bytes, secret: str) -> str:
    """Sign a canonical request. Returns lower-case hexadecimal."""
    to_sign = f"{algorithm}\n{_digest(algorithm, request)}"
    return hmac.new(secret.encode(), to_sign.encode(), _HASHES[algorithm]).hexdigest()


def _parse(call: Call) -> re.Match[str] | None:
    return match_credential(call, ("ACS3-",), _CREDENTIAL, "ACS3-... Credential=,...", _HASHES)


def _digest(algorithm: str, data: bytes) -> str:
    return hashlib.new(_HASHES[algorithm], data).hexdigest()


ACS3 = Acs3()

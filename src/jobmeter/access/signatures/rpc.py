"""The older RPC signature, in the query of ``/``: Alibaba's legacy SDK cores, and newer SDKs with ``v2``.

It covers the method, the query and a form body, but neither the path nor any header. So the path must be ``/``, and
headers that name an operation or a security token must match the query.

https://www.alibabacloud.com/help/en/sdk/product-overview/rpc-mechanism.
"""

import base64
import hmac

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.access.signatures.canonical import (
    MAX_NONCE,
    Pairs,
    encode,
    is_same,
    parse_date,
    query_pairs,
    sort_by_name,
)
from jobmeter.errors import UnauthenticatedError

MAX_KEY = 128
_WRONG_DATE = "Timestamp must be like 2026-11-20T15:33:58Z"
_FORM = "application/x-www-form-urlencoded"
_HASHES = {"HMAC-SHA1": "sha1", "HMAC-SHA256": "sha256"}
_NEEDED = ("Action", "Version", "AccessKeyId", "Timestamp", "SignatureNonce")
_SIGNED = (*_NEEDED, "Signature", "SignatureMethod", "SecurityToken")
_ALSO_IN_HEADERS = (
    ("x-acs-action", "Action"),
    ("x-acs-version", "Version"),
    ("x-acs-security-token", "SecurityToken"),
)


class Rpc:
    """Scheme ``/?AccessKeyId=ID&Signature=BASE64&...``."""

    name = "rpc"

    def claim(self, call: Call) -> Claim | None:
        """Return the claim; None for a call with a bearer token in its query."""
        if call.get_parameter("Signature") is None or call.raw_path != "/" or call.get_header("authorization").strip():
            return None
        if (call.get_parameter("SignatureType") or "").strip().upper() == "BEARERTOKEN":
            return None
        _check_form(call)
        nonce, key = call.get_parameter("SignatureNonce") or "", call.get_parameter("AccessKeyId") or ""
        if len(nonce) > MAX_NONCE:
            raise UnauthenticatedError(f"SignatureNonce may have at most {MAX_NONCE} characters", "malformed")
        if len(key) > MAX_KEY:
            raise UnauthenticatedError(f"AccessKeyId may have at most {MAX_KEY} characters", "malformed")
        return Claim(
            kind=ClaimKind.ACCESS_KEY,
            value=key,
            date_ms=parse_date(call.get_parameter("Timestamp") or "", "%Y-%m-%dT%H:%M:%SZ", _WRONG_DATE),
            nonce=nonce,
        )

    def verify_headers(self, call: Call, secret: str) -> bool:
        """Verify the signature, unless the call has a form body, whose fields are signed too."""
        return _is_form(call) or self.verify(call, secret)

    def verify(self, call: Call, secret: str) -> bool:
        """Verify the signature of the query and the form body."""
        algorithm = _HASHES.get(_method(call))
        if algorithm is None or call.raw_path != "/":
            return False
        digest = hmac.new(f"{secret}&".encode(), build_string_to_sign(call), algorithm).digest()
        return is_same(base64.b64encode(digest).decode(), call.get_parameter("Signature") or "")


def build_string_to_sign(call: Call) -> bytes:
    """Build the signed text: ``METHOD&%2F&`` and all query and form parameters but the signature, by name."""
    pairs = [pair for pair in query_pairs(call.query) if pair[0] != b"Signature"] + _form(call)
    query = "&".join(f"{encode(name)}={encode(value)}" for name, value in sort_by_name(pairs))
    return f"{call.method}&%2F&{encode(query.encode())}".encode()


def _check_form(call: Call) -> None:
    missing = [name for name in _NEEDED if not call.get_parameter(name)]
    if missing:
        raise UnauthenticatedError(f"missing from the signed query: {', '.join(missing)}", "incomplete-signature")
    names = [name for name, _ in call.parameters]
    repeated = [name for name in _SIGNED if names.count(name) > 1]
    if repeated:
        raise UnauthenticatedError(f"more than once in the query: {', '.join(repeated)}", "malformed")
    if _method(call) not in _HASHES:
        raise UnauthenticatedError(f"the signature method {_method(call)[:64]!r} is not supported here", "malformed")
    for header, name in _ALSO_IN_HEADERS:
        if call.get_header(header) not in {"", call.get_parameter(name)}:
            raise UnauthenticatedError(f"{header} differs from the signed {name}", "malformed")


def _method(call: Call) -> str:
    return (call.get_parameter("SignatureMethod") or "HMAC-SHA1").strip().upper()


def _form(call: Call) -> Pairs:
    return query_pairs(call.body.decode("latin-1")) if call.body and _is_form(call) else []


def _is_form(call: Call) -> bool:
    return call.get_header("content-type").partition(";")[0].strip().lower() == _FORM


RPC = Rpc()

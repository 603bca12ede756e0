"""Checks beyond the parser's: other protocols, other versions, an invalid ``Host``."""

import re

VERSIONS = frozenset({"1.0", "1.1"})
_AUTHORITY = rb"(?:\[[0-9A-Fa-fv:._~!$&'()*+,;=-]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::[0-9]{0,5})?"
# Vendors' SDKs that get an endpoint with a scheme send it whole: `http://127.0.0.1:8400/`.
_HOST = re.compile(rb"(?:%b)?|https?://%b(?:/[!-~]*)?" % (_AUTHORITY, _AUTHORITY), re.IGNORECASE)


def is_host(value: bytes) -> bool:
    """True for a valid ``Host``: ``uri-host [":" port]``, empty or behind a scheme (RFC 9112, section 3.2)."""
    return _HOST.fullmatch(value) is not None


def is_http(head: bytes | bytearray, method: bytes, target: bytes, version: str) -> bool:
    """True if the request line with that method and target names HTTP. The parser takes RTSP and ICE for HTTP.

    ``head`` begins with the request, or a little before it.
    """
    if head.startswith(b"%b %b HTTP/%b" % (method, target, version.encode())):
        return True
    return re.search(rb"%b +%b +(?:RTSP|ICE)/" % (method, re.escape(target)), head) is None

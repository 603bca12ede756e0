"""What the parser lets through and HTTP/1.1 does not allow: other protocols, other versions, a wrong ``Host``."""

import re

VERSIONS = frozenset({"1.0", "1.1"})
_AUTHORITY = rb"(?:\[[0-9A-Fa-fv:._~!$&'()*+,;=-]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::[0-9]{0,5})?"
# SDKs of vendors that are given an endpoint with a scheme send it whole: `http://127.0.0.1:8400/`.
_HOST = re.compile(rb"(?:%b)?|https?://%b(?:/[!-~]*)?" % (_AUTHORITY, _AUTHORITY), re.IGNORECASE)


def is_host(value: bytes) -> bool:
    """True for a valid ``Host``: ``uri-host [":" port]``, empty too (RFC 9112, section 3.2), also behind a scheme."""
    return _HOST.fullmatch(value) is not None


def is_http(head: bytes | bytearray, method: bytes, target: bytes, version: str) -> bool:
    """True where the request line of that method and target names HTTP: the parser takes RTSP and ICE for HTTP.

    ``head`` is what came from the beginning of the request on, or a little before it.
    """
    if head.startswith(b"%b %b HTTP/%b" % (method, target, version.encode())):
        return True
    return re.search(rb"%b +%b +(?:RTSP|ICE)/" % (method, re.escape(target)), head) is None

"""Session cookie of the page, and the code of a sign-in link. Only our own API reads them.

A browser sends a cookie with a request from any page. A call that changes data must therefore come from our page: it
needs a header that no other site can add, and the browser must report the same origin.
https://cheatsheetseries.owasp.org/cheatsheets/Cross-Site_Request_Forgery_Prevention_Cheat_Sheet.html.
"""

from urllib.parse import urlsplit

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.access.signatures.tokens import TokenScheme
from jobmeter.errors import UnauthenticatedError

MAX_COOKIE = 1024
PAGE_HEADER = "x-jobmeter-page"
"""Header that the page sends with every call that changes data; any value."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_NAME = "jobmeter-session"
_SECURE = "__Host-"


def name_cookie(call: Call, *, secure: bool) -> str:
    """Name the cookie: all ports of a host share cookies, so each server needs another name.

    ``__Host-`` makes the browser refuse a cookie set by another host of the domain (RFC 6265bis, section 4.1.3.2).
    """
    port = urlsplit(f"//{_host(call)}").netloc.rpartition(":")[2]
    name = f"{_NAME}-{port}" if port.isdigit() else _NAME
    return f"{_SECURE}{name}" if secure else name


def _session(call: Call) -> Claim | None:
    """Return the sealed session in a cookie.

    Raises UnauthenticatedError (``cross-origin``) for a change from another site.
    """
    value = _cookie(call)
    if not value:
        return None
    if len(value) > MAX_COOKIE:
        raise UnauthenticatedError(f"a session may have at most {MAX_COOKIE} characters", "malformed")
    if call.method not in SAFE and not (call.get_header(PAGE_HEADER) and is_same_origin(call)):
        raise UnauthenticatedError("a session cannot change data on behalf of another site", "cross-origin")
    return Claim(kind=ClaimKind.SESSION, value=value)


def _link(call: Call) -> Claim | None:
    """Return the claim of ``Authorization: Link CODE``: the code of a one-time sign-in link."""
    scheme, _, code = call.get_header("authorization").strip().partition(" ")
    if scheme.lower() != "link":
        return None
    if not 1 <= len(code) <= MAX_COOKIE:
        raise UnauthenticatedError(f"a code has 1 to {MAX_COOKIE} characters", "malformed")
    return Claim(kind=ClaimKind.LINK, value=code)


def is_same_origin(call: Call) -> bool:
    """True if the browser reports that the call comes from a page of this server.

    Browsers add Sec-Fetch-Site if they trust the origin (TLS, or this machine), and Origin to every POST.
    """
    site = call.get_header("sec-fetch-site")
    if site:
        return site == "same-origin"
    host = _host(call)
    return bool(host) and urlsplit(call.get_header("origin")).netloc == host


def _host(call: Call) -> str:
    """Return the host and port that the browser used, at this server or at a trusted proxy in front of it."""
    return call.authority or call.get_header("host")


def is_over_tls(call: Call) -> bool:
    """True if the browser uses TLS, to this server or to a proxy in front of it."""
    return call.scheme == "https" or urlsplit(call.get_header("origin")).scheme == "https"


def _cookie(call: Call) -> str:
    """Return the session cookie.

    The cookie protected by TLS takes precedence: anybody on the network can set the other.
    """
    pairs = [part.strip().partition("=") for name, text in call.headers if name == "cookie" for part in text.split(";")]
    found = {name: value for name, _, value in reversed(pairs)}
    return found.get(name_cookie(call, secure=True)) or found.get(name_cookie(call, secure=False)) or ""


SESSION = TokenScheme("session", _session)
LINK = TokenScheme("link", _link)

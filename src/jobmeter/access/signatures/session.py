"""The page's session cookie, and the code of a link that begins one. Only our own API reads them.

A browser sends a cookie with a request from any page, so a call that changes something must also come from the page
itself: it has a header that no other site can add, and the browser says that it is of the same origin.
https://cheatsheetseries.owasp.org/cheatsheets/Cross-Site_Request_Forgery_Prevention_Cheat_Sheet.html
"""

from urllib.parse import urlsplit

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.access.signatures.tokens import TokenScheme
from jobmeter.errors import UnauthenticatedError

MAX_COOKIE = 1024
PAGE_HEADER = "x-jobmeter-page"
"""What the page sends with every call that changes something; any value."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_NAME = "jobmeter-session"
_SECURE = "__Host-"


def cookie_name(call: Call, *, secure: bool) -> str:
    """The cookie's name: cookies are shared by all ports of a host, so each server there needs another one.

    ``__Host-`` makes the browser refuse one that another host of the domain set (RFC 6265bis, section 4.1.3.2).
    """
    port = urlsplit(f"//{_host(call)}").netloc.rpartition(":")[2]
    name = f"{_NAME}-{port}" if port.isdigit() else _NAME
    return f"{_SECURE}{name}" if secure else name


def _session(call: Call) -> Claim | None:
    """The sealed session in a cookie. Raises UnauthenticatedError (``cross-origin``) for a change from another site."""
    value = _cookie(call)
    if not value:
        return None
    if len(value) > MAX_COOKIE:
        raise UnauthenticatedError(f"a session may have {MAX_COOKIE} characters", "malformed")
    if call.method not in SAFE and not (call.header(PAGE_HEADER) and same_origin(call)):
        raise UnauthenticatedError("a session changes nothing on behalf of another site", "cross-origin")
    return Claim(kind=ClaimKind.SESSION, value=value)


def _link(call: Call) -> Claim | None:
    """``Authorization: Link CODE``: the code of a link that signs in once."""
    scheme, _, code = call.header("authorization").strip().partition(" ")
    if scheme.lower() != "link":
        return None
    if not 1 <= len(code) <= MAX_COOKIE:
        raise UnauthenticatedError(f"a code has 1 to {MAX_COOKIE} characters", "malformed")
    return Claim(kind=ClaimKind.LINK, value=code)


def same_origin(call: Call) -> bool:
    """True when the browser says that the call comes from a page of this very server.

    Browsers add Sec-Fetch-Site where they trust the origin (TLS, or this machine), and Origin to every POST.
    """
    site = call.header("sec-fetch-site")
    if site:
        return site == "same-origin"
    host = _host(call)
    return bool(host) and urlsplit(call.header("origin")).netloc == host


def _host(call: Call) -> str:
    """The host and port that the browser named: to this server, or to a trusted proxy in front of it."""
    return call.authority or call.header("host")


def over_tls(call: Call) -> bool:
    """True when the browser speaks TLS, to this server or to one in front of it."""
    return call.scheme == "https" or urlsplit(call.header("origin")).scheme == "https"


def _cookie(call: Call) -> str:
    """The session's cookie. The one that TLS protects takes precedence: anybody on the network can set the other."""
    pairs = [part.strip().partition("=") for name, text in call.headers if name == "cookie" for part in text.split(";")]
    found = {name: value for name, _, value in reversed(pairs)}
    return found.get(cookie_name(call, secure=True)) or found.get(cookie_name(call, secure=False)) or ""


SESSION = TokenScheme("session", _session)
LINK = TokenScheme("link", _link)

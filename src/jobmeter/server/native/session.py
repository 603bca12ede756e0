"""``/session``: sign in to the page with a key or a one-time link, and sign out."""

import msgspec

from jobmeter.access.session import LIFE_MS
from jobmeter.access.signatures import LINK, SESSION, TOKENS
from jobmeter.access.signatures.session import is_over_tls, name_cookie
from jobmeter.dialects.base import Answer
from jobmeter.model.time import SECOND
from jobmeter.server.native.bodies import Deleted
from jobmeter.server.native.endpoint import CallContext, Endpoint

_PRIVATE = ("cache-control", "no-store")


class SessionBody(msgspec.Struct, frozen=True):
    """The signed-in key, and the end of the session."""

    id: str
    name: str
    role: str
    project: str | None
    expires: int


class SessionLink(msgspec.Struct, frozen=True):
    """A one-time sign-in code for the page's ``/#/open?code=CODE``, and its expiry.

    ``public_url`` is the server's public address, empty if not configured.
    """

    code: str
    expires: int
    public_url: str


HEADING = "session"


@Endpoint("signIn", "POST /session", "catalog:read", answer=SessionBody, schemes=(*TOKENS, LINK), lane="control")
def _sign_in(context: CallContext) -> Answer:
    """Sign in to the page.

    With a key's token, or with `Authorization: Link CODE`. The answer sets a cookie that only this API accepts and no
    script can read. The session ends after twelve hours, at sign-out, or with its key. Calls that change data with the
    cookie need the header `X-Jobmeter-Page` and must come from the same origin.
    """
    who = context.principal
    value, expires = context.services.sessions.begin(who.access_key_id)
    body = SessionBody(who.id, who.name, str(who.role), who.project, expires)
    return Answer(200, msgspec.json.encode(body), (_PRIVATE, _cookie(context, value, LIFE_MS // SECOND)))


@Endpoint("signOut", "DELETE /session", "catalog:read", answer=Deleted, schemes=(SESSION, *TOKENS), lane="control")
def _sign_out(context: CallContext) -> Answer:
    """Sign out.

    Ends the session and deletes the cookie.
    """
    claim = SESSION.claim(context.call)
    if claim is not None:
        context.services.sessions.end(claim.value)
    return Answer(200, msgspec.json.encode(Deleted(deleted=True)), (_PRIVATE, _cookie(context, "", 0)))


@Endpoint("makeSessionLink", "POST /session/link", "catalog:read", answer=SessionLink, schemes=TOKENS, lane="control")
def _link(context: CallContext) -> Answer:
    """Create a one-time link that signs in to the page.

    It signs in as the key that created it, once, within fifteen minutes.
    """
    services = context.services
    code, expires = services.sessions.create_link(context.principal.access_key_id)
    return Answer(200, msgspec.json.encode(SessionLink(code, expires, services.public_url)), (_PRIVATE,))


def _cookie(context: CallContext, value: str, seconds: int) -> tuple[str, str]:
    secure = is_over_tls(context.call)
    text = f"{name_cookie(context.call, secure=secure)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return ("set-cookie", f"{text}; Secure" if secure else text)

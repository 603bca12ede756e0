"""``/session``: signing in to the page with a key or a link that works once, and signing out."""

import msgspec

from jobmeter.access.session import LIFE_MS
from jobmeter.access.signatures import LINK, SESSION, TOKENS
from jobmeter.access.signatures.session import cookie_name, over_tls
from jobmeter.dialects.base import Answer
from jobmeter.model.time import SECOND
from jobmeter.server.native.bodies import Deleted
from jobmeter.server.native.endpoint import CallContext, Endpoint, tagged

_PRIVATE = ("cache-control", "no-store")


class SessionBody(msgspec.Struct, frozen=True):
    """Who is signed in, and when the session ends."""

    id: str
    name: str
    role: str
    project: str | None
    expires: int


class SessionLink(msgspec.Struct, frozen=True):
    """A code that signs in once, as ``/#/open?code=CODE`` of the page, and when it ends.

    ``public_url`` is the server's address for others, empty where the settings name none.
    """

    code: str
    expires: int
    public_url: str


def _sign_in(context: CallContext) -> Answer:
    """Sign in to the page.

    With a key's token, or with `Authorization: Link CODE`. The answer sets a cookie that only this API takes and no
    script reads. It ends after twelve hours, at sign-out, or with its key. A call that changes something by it needs
    the header `X-Jobmeter-Page` and has to come from the same origin.
    """
    who = context.principal
    value, expires = context.services.sessions.begin(who.access_key_id)
    body = SessionBody(who.id, who.name, str(who.role), who.project, expires)
    return Answer(200, msgspec.json.encode(body), (_PRIVATE, _cookie(context, value, LIFE_MS // SECOND)))


def _sign_out(context: CallContext) -> Answer:
    """Sign out: the cookie holds no longer."""
    claim = SESSION.claim(context.call)
    if claim is not None:
        context.services.sessions.end(claim.value)
    return Answer(200, msgspec.json.encode(Deleted(deleted=True)), (_PRIVATE, _cookie(context, "", 0)))


def _link(context: CallContext) -> Answer:
    """Make a link that signs in to the page once.

    It opens the page as the key that it was made with, once, within fifteen minutes.
    """
    services = context.services
    code, expires = services.sessions.link(context.principal.access_key_id)
    return Answer(200, msgspec.json.encode(SessionLink(code, expires, services.public_url)), (_PRIVATE,))


def _cookie(context: CallContext, value: str, seconds: int) -> tuple[str, str]:
    secure = over_tls(context.call)
    text = f"{cookie_name(context.call, secure=secure)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return ("set-cookie", f"{text}; Secure" if secure else text)


ENDPOINTS = tagged(
    "session",
    Endpoint(
        "signIn", "POST /session", "catalog:read", _sign_in, answer=SessionBody, schemes=(*TOKENS, LINK), lane="control"
    ),
    Endpoint(
        "signOut",
        "DELETE /session",
        "catalog:read",
        _sign_out,
        answer=Deleted,
        schemes=(SESSION, *TOKENS),
        lane="control",
    ),
    Endpoint(
        "makeSessionLink",
        "POST /session/link",
        "catalog:read",
        _link,
        answer=SessionLink,
        schemes=TOKENS,
        lane="control",
    ),
)

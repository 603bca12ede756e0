"""Schemes of bare tokens, each in its place. They carry no date, so nothing but TLS protects them on the way.

Share and trace tokens carry their own seal, which ``Authenticator`` checks; only dialects that list their schemes read
them.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.errors import UnauthenticatedError

TRACE_PREFIX = "jmt_"
_MOST, _MOST_SEALED = 512, 1024
"""Characters of a key's token, and of one with a content of its own."""


@dataclass
class TokenScheme:
    """A scheme without signatures: whoever has the whole secret is its holder. See ``Scheme``."""

    name: str
    claim: Callable[[Call], Claim | None]
    """See ``Scheme.claim``."""

    def verify_headers(self, call: Call, secret: str) -> bool:  # noqa: ARG002
        """See ``Scheme.verify_headers``."""
        return True

    def verify(self, call: Call, secret: str) -> bool:  # noqa: ARG002
        """See ``Scheme.verify``."""
        return True


def _bearer(call: Call) -> Claim | None:
    """``Authorization: Bearer TOKEN`` and ``Authorization: Api-Key TOKEN``, in letters of either case."""
    name, _, token = call.header("authorization").strip().partition(" ")
    return _claim(token) if name.lower() in {"bearer", "api-key"} else None


def _basic(call: Call) -> Claim | None:
    """``Authorization: Basic``, the token being the password, or the user where the password is empty.

    Clients of systems without tokens (Grafana, collectd) can send a user and a password.
    """
    name, _, sent = call.header("authorization").strip().partition(" ")
    if name.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(sent.strip(), validate=True).decode().partition(":")
    except ValueError as error:
        raise UnauthenticatedError("Basic is followed by user:token in base64", "malformed") from error
    return _claim(password or user)


def _in_header(name: str) -> TokenScheme:
    """The token alone in a header of its own, whose name is in lower case."""
    return TokenScheme(name, lambda call: _claim(call.header(name)) if call.header(name) else None)


def _acs_bearer(call: Call) -> Claim | None:
    """Alibaba's SDKs with ``bearer_token=``: header ``x-acs-bearer-token``, or the query's ``BearerToken``.

    Either comes with a signature type (header ``x-acs-signature-type`` or query ``SignatureType``) of ``BEARERTOKEN``.
    """
    token = call.header("x-acs-bearer-token") or call.parameter("BearerToken") or ""
    if not token:
        return None
    kind = call.header("x-acs-signature-type") or call.parameter("SignatureType") or ""
    if kind.strip().upper() != "BEARERTOKEN":
        raise UnauthenticatedError("a bearer token needs the signature type BEARERTOKEN", "malformed")
    return _claim(token)


def _claim(text: str) -> Claim:
    token = text.strip()
    if not 1 <= len(token) <= _MOST or not token.isascii() or not token.isprintable() or " " in token:
        raise UnauthenticatedError(f"a token has 1 to {_MOST} visible ASCII characters", "malformed")
    return Claim(kind=ClaimKind.TOKEN, value=token)


def _share(call: Call) -> Claim | None:
    """``?Token=...``: opens one job's measurements. An empty parameter counts as absent."""
    token = call.parameter("Token")
    if not token:
        return None
    if len(token) > _MOST_SEALED:
        raise UnauthenticatedError(f"Token may have {_MOST_SEALED} characters", "malformed")
    return Claim(kind=ClaimKind.SHARE, value=token)


def _trace(call: Call) -> Claim | None:
    """``Authentication: TOKEN``, as Alibaba's senders have it, or ``Authorization: Bearer TOKEN``.

    https://www.alibabacloud.com/help/en/opentelemetry/. A token of a key is not a trace token.
    """
    for header in ("authentication", "authorization"):
        scheme, _, token = call.header(header).strip().rpartition(" ")
        if scheme.lower() in {"", "bearer"} and token.startswith(TRACE_PREFIX):
            if len(token) > _MOST_SEALED:
                raise UnauthenticatedError(f"a trace token may have {_MOST_SEALED} characters", "malformed")
            return Claim(kind=ClaimKind.TRACE, value=token)
    return None


BEARER = TokenScheme("bearer", _bearer)
BASIC = TokenScheme("basic", _basic)
API_KEY = _in_header("api-key")
X_AUTH_TOKEN = _in_header("x-auth-token")
ACS_BEARER = TokenScheme("acs-bearer", _acs_bearer)
SHARE = TokenScheme("share", _share)
TRACE = TokenScheme("trace", _trace)

"""Schemes of bare tokens, by their place in the call. They carry no date, so only TLS protects them in transit.

Share and trace tokens are sealed; ``Authenticator`` opens them. Only dialects that list these schemes read them.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.errors import UnauthenticatedError

TRACE_PREFIX = "jmt_"
_MOST, _MOST_SEALED = 512, 1024
"""Most characters of a key's token, and of a sealed token."""


@dataclass
class TokenScheme:
    """Scheme without signatures: the holder of the whole secret is authenticated."""

    name: str
    claim: Callable[[Call], Claim | None]
    """Function that returns the claim of a call."""

    def verify_headers(self, call: Call, secret: str) -> bool:  # noqa: ARG002
        """Return True: there is no signature."""
        return True

    def verify(self, call: Call, secret: str) -> bool:  # noqa: ARG002
        """Return True: there is no signature."""
        return True


def _bearer(call: Call) -> Claim | None:
    """Return the claim of ``Authorization: Bearer TOKEN`` or ``Api-Key TOKEN``, in any case."""
    name, _, token = call.get_header("authorization").strip().partition(" ")
    return _claim(token) if name.lower() in {"bearer", "api-key"} else None


def _basic(call: Call) -> Claim | None:
    """Return the claim of ``Authorization: Basic``. The token is the password, or the user if that is empty.

    Clients of systems without tokens (Grafana, collectd) can send a user and a password.
    """
    name, _, sent = call.get_header("authorization").strip().partition(" ")
    if name.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(sent.strip(), validate=True).decode().partition(":")
    except ValueError as error:
        raise UnauthenticatedError("Basic is followed by user:token in base64", "malformed") from error
    return _claim(password or user)


def _make_header_scheme(name: str) -> TokenScheme:
    """Make a scheme for a token in a header of that lower-case name."""
    return TokenScheme(name, lambda call: _claim(call.get_header(name)) if call.get_header(name) else None)


def _acs_bearer(call: Call) -> Claim | None:
    """Return the claim of Alibaba's ``bearer_token=``: header ``x-acs-bearer-token``, or query ``BearerToken``.

    Either comes with a signature type (header ``x-acs-signature-type`` or query ``SignatureType``) of ``BEARERTOKEN``.
    """
    token = call.get_header("x-acs-bearer-token") or call.get_parameter("BearerToken") or ""
    if not token:
        return None
    kind = call.get_header("x-acs-signature-type") or call.get_parameter("SignatureType") or ""
    if kind.strip().upper() != "BEARERTOKEN":
        raise UnauthenticatedError("a bearer token needs the signature type BEARERTOKEN", "malformed")
    return _claim(token)


def _claim(text: str) -> Claim:
    token = text.strip()
    if not 1 <= len(token) <= _MOST or not token.isascii() or not token.isprintable() or " " in token:
        raise UnauthenticatedError(f"a token has 1 to {_MOST} visible ASCII characters", "malformed")
    return Claim(kind=ClaimKind.TOKEN, value=token)


def _share(call: Call) -> Claim | None:
    """Return the claim of ``?Token=...``, which opens one job's measurements. An empty parameter counts as absent."""
    token = call.get_parameter("Token")
    if not token:
        return None
    if len(token) > _MOST_SEALED:
        raise UnauthenticatedError(f"Token may have at most {_MOST_SEALED} characters", "malformed")
    return Claim(kind=ClaimKind.SHARE, value=token)


def _trace(call: Call) -> Claim | None:
    """Return the claim of ``Authentication: TOKEN``, as Alibaba's senders write it, or ``Authorization: Bearer TOKEN``.

    https://www.alibabacloud.com/help/en/opentelemetry/. A token of a key is not a trace token.
    """
    for header in ("authentication", "authorization"):
        scheme, _, token = call.get_header(header).strip().rpartition(" ")
        if scheme.lower() in {"", "bearer"} and token.startswith(TRACE_PREFIX):
            if len(token) > _MOST_SEALED:
                raise UnauthenticatedError(f"a trace token may have at most {_MOST_SEALED} characters", "malformed")
            return Claim(kind=ClaimKind.TRACE, value=token)
    return None


BEARER = TokenScheme("bearer", _bearer)
BASIC = TokenScheme("basic", _basic)
API_KEY = _make_header_scheme("api-key")
X_AUTH_TOKEN = _make_header_scheme("x-auth-token")
ACS_BEARER = TokenScheme("acs-bearer", _acs_bearer)
SHARE = TokenScheme("share", _share)
TRACE = TokenScheme("trace", _trace)

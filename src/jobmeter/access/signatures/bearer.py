"""Bearer tokens. They carry no date, so nothing but TLS protects them on the way."""

import base64

from jobmeter.access.call import Call, Claim, ClaimKind, TokenScheme
from jobmeter.errors import UnauthenticatedError

MAX_TOKEN = 512


class Bearer(TokenScheme):
    """``Authorization: Bearer TOKEN`` and ``Authorization: Api-Key TOKEN``. See ``Scheme``."""

    name = "bearer"

    def claim(self, call: Call) -> Claim | None:
        """See ``Scheme.claim``. The scheme's name is taken without regard to case."""
        name, _, token = call.header("authorization").strip().partition(" ")
        return _claim(token) if name.lower() in {"bearer", "api-key"} else None


class Basic(TokenScheme):
    """``Authorization: Basic``, the token being the password, or the user where the password is empty.

    Clients of systems without tokens (Grafana, collectd) can send a user and a password. See ``Scheme``.
    """

    name = "basic"

    def claim(self, call: Call) -> Claim | None:
        """See ``Scheme.claim``. The scheme's name is taken without regard to case."""
        name, _, sent = call.header("authorization").strip().partition(" ")
        if name.lower() != "basic":
            return None
        try:
            user, _, password = base64.b64decode(sent.strip(), validate=True).decode().partition(":")
        except ValueError as error:
            raise UnauthenticatedError("Basic is followed by user:token in base64", "malformed") from error
        return _claim(password or user)


class TokenHeader(TokenScheme):
    """The token alone in a header of its own. See ``Scheme``."""

    def __init__(self, name: str, header: str) -> None:
        """``header`` in lower case."""
        self.name = name
        self._header = header

    def claim(self, call: Call) -> Claim | None:
        """See ``Scheme.claim``."""
        return _claim(call.header(self._header)) if call.header(self._header) else None


class AcsBearer(TokenScheme):
    """Alibaba's SDKs with ``bearer_token=``: header ``x-acs-bearer-token``, or the query's ``BearerToken``.

    See ``Scheme``. Either comes with a signature type (header ``x-acs-signature-type`` or query ``SignatureType``) of
    ``BEARERTOKEN``.
    """

    name = "acs-bearer"

    def claim(self, call: Call) -> Claim | None:
        """See ``Scheme.claim``."""
        token = call.header("x-acs-bearer-token") or call.parameter("BearerToken") or ""
        if not token:
            return None
        kind = call.header("x-acs-signature-type") or call.parameter("SignatureType") or ""
        if kind.strip().upper() != "BEARERTOKEN":
            raise UnauthenticatedError("a bearer token needs the signature type BEARERTOKEN", "malformed")
        return _claim(token)


def _claim(text: str) -> Claim:
    token = text.strip()
    if not 1 <= len(token) <= MAX_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UnauthenticatedError(f"a token has 1 to {MAX_TOKEN} visible ASCII characters", "malformed")
    return Claim(kind=ClaimKind.TOKEN, value=token)


BEARER = Bearer()
BASIC = Basic()
API_KEY = TokenHeader("api-key", "api-key")
X_AUTH_TOKEN = TokenHeader("x-auth-token", "x-auth-token")
ACS_BEARER = AcsBearer()

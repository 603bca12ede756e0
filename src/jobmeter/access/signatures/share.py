"""Share tokens in a query parameter. Only a dialect that lists the scheme reads them."""

from jobmeter.access.call import Call, Claim, ClaimKind, TokenScheme
from jobmeter.errors import UnauthenticatedError

MAX_TOKEN = 1024


class ShareToken(TokenScheme):
    """``?Token=...``: opens one job's measurements. See ``Scheme``.

    The token carries its own seal, which ``Authenticator`` checks.
    """

    name = "share"

    def __init__(self, parameter: str = "Token") -> None:
        """``parameter`` is the exact name of the query parameter."""
        self._parameter = parameter

    def claim(self, call: Call) -> Claim | None:
        """See ``Scheme.claim``. An empty parameter counts as absent."""
        token = call.parameter(self._parameter)
        if not token:
            return None
        if len(token) > MAX_TOKEN:
            raise UnauthenticatedError(f"{self._parameter} may have {MAX_TOKEN} characters", "malformed")
        return Claim(kind=ClaimKind.SHARE, value=token)


SHARE = ShareToken()

"""Share tokens in a query parameter. Only a dialect that lists the scheme reads them."""

from jobmeter.access.call import Call, Claim, ClaimKind
from jobmeter.errors import UnauthenticatedError

MAX_TOKEN = 1024


class ShareToken:
    """``?Token=...``: opens one job's measurements. See ``Scheme``.

    The token carries its own seal, which ``Authenticator`` checks.
    """

    name = "share"

    def __init__(self, parameter: str = "Token") -> None:
        """``parameter`` is the exact name of the query parameter."""
        self._parameter = parameter

    def claim(self, call: Call) -> Claim | None:
        """See ``Scheme.claim``. An empty parameter is none."""
        token = call.parameter(self._parameter)
        if not token:
            return None
        if len(token) > MAX_TOKEN:
            raise UnauthenticatedError(f"{self._parameter} may have {MAX_TOKEN} characters", "malformed")
        return Claim(kind=ClaimKind.SHARE, value=token)

    def verify_headers(self, call: Call, secret: str) -> bool:  # noqa: ARG002
        """See ``Scheme.verify_headers``."""
        return True

    def verify(self, call: Call, secret: str) -> bool:  # noqa: ARG002
        """See ``Scheme.verify``."""
        return True


SHARE = ShareToken()

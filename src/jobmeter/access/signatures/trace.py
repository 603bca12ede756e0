"""Trace tokens, where the vendor's senders have them and where OpenTelemetry's have a token. Only OTLP reads them."""

from jobmeter.access.call import Call, Claim, ClaimKind, TokenScheme
from jobmeter.errors import UnauthenticatedError

PREFIX = "jmt_"
MAX_TOKEN = 1_024


class TraceTokenScheme(TokenScheme):
    """``Authentication: TOKEN``, as Alibaba's senders have it, or ``Authorization: Bearer TOKEN``. See ``Scheme``.

    https://www.alibabacloud.com/help/en/opentelemetry/. The token carries its own seal, which ``Authenticator`` checks.
    """

    name = "trace"

    def claim(self, call: Call) -> Claim | None:
        """See ``Scheme.claim``. A token of a key is not a trace token."""
        for header in ("authentication", "authorization"):
            scheme, _, token = call.header(header).strip().rpartition(" ")
            if scheme.lower() in {"", "bearer"} and token.startswith(PREFIX):
                if len(token) > MAX_TOKEN:
                    raise UnauthenticatedError(f"a trace token may have {MAX_TOKEN} characters", "malformed")
                return Claim(kind=ClaimKind.TRACE, value=token)
        return None


TRACE = TraceTokenScheme()

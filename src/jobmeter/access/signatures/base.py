"""The contract of credential schemes: find the claim in a call, and verify it with the secret that the claim names."""

from enum import StrEnum
from typing import Protocol

import msgspec

from jobmeter.access.call import Call


class ClaimKind(StrEnum):
    """What the claim names: one half of a key pair, or a whole secret."""

    ACCESS_KEY = "access-key"
    TOKEN = "token"  # noqa: S105 - the name of a kind, not a secret
    SHARE = "share"
    TRACE = "trace"
    SESSION = "session"
    LINK = "link"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who a call says it comes from. Nothing about it is checked yet.

    ``date_ms`` and ``nonce`` are what the scheme carries against replay: None and ``""`` where it carries none.
    The security token that SDKs send beside a temporary key pair is covered by the signature and means nothing here.
    """

    kind: ClaimKind
    value: str
    date_ms: int | None = None
    nonce: str = ""


class Scheme(Protocol):
    """A way to prove an identity."""

    name: str

    def claim(self, call: Call) -> Claim | None:
        """What the call claims under this scheme; None when it does not use it.

        Raises UnauthenticatedError (``malformed`` or ``incomplete-signature``) when it does use it, but wrongly.
        """
        ...

    def verify_headers(self, call: Call, secret: str) -> bool:
        """False when no body could make ``verify`` true; called before the body is read.

        A scheme that signs headers alone, or a hash of the body that a header names, checks its signature here.
        """
        ...

    def verify(self, call: Call, secret: str) -> bool:
        """True when only a holder of ``secret`` could have sent exactly this call. Always True for a bare token."""
        ...


class TokenScheme:
    """A scheme without signatures: whoever has the whole secret is its holder. See ``Scheme``."""

    def verify_headers(self, call: Call, secret: str) -> bool:  # noqa: ARG002
        """See ``Scheme.verify_headers``."""
        return True

    def verify(self, call: Call, secret: str) -> bool:  # noqa: ARG002
        """See ``Scheme.verify``."""
        return True

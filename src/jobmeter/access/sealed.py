"""Texts that carry their own content under the vault's seal: nothing is stored for a valid one."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as EncodingError

from jobmeter.access.vault import Vault
from jobmeter.errors import ConfigurationError, UnauthenticatedError


def encoded(data: bytes) -> str:
    """The bytes in the letters of URLs and headers."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes | None:
    """The bytes of which ``encoded`` makes exactly that text; None where there are none."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (EncodingError, UnicodeEncodeError):
        return None
    return data if encoded(data) == text else None


def seal(vault: Vault, use: str, *words: str, expires_ms: int) -> str:
    """A text for that use with words that have no spaces, valid until ``expires_ms`` (epoch)."""
    return encoded(vault.seal(" ".join((*words, str(expires_ms))), use))


def unseal(vault: Vault, use: str, text: str, what: str, now_ms: int) -> tuple[list[str], int]:
    """The words of a text, and when it expires.

    Raises UnauthenticatedError, which calls it ``what``: ``malformed``, ``bad-signature`` or ``expired``.
    """
    data = decoded(text)
    if data is None:
        raise UnauthenticatedError(f"the {what} is malformed", "malformed")
    try:
        *words, expires = vault.open(data, use).split(" ")
    except ConfigurationError as error:
        raise UnauthenticatedError(f"the {what} was not made here, or was changed", "bad-signature") from error
    if int(expires) <= now_ms:
        raise UnauthenticatedError(f"the {what} has expired", "expired")
    return words, int(expires)

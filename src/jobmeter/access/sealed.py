"""Sealed texts: they carry their content, encrypted or signed by the vault, so that no valid text needs storage."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as EncodingError

from jobmeter.access.vault import Vault
from jobmeter.errors import ConfigurationError, UnauthenticatedError

_MARK_BYTES = 16


def encode(data: bytes) -> str:
    """Encode bytes in characters that URLs and headers allow."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes | None:
    """Decode a text of ``encode``; None for any other text."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (EncodingError, UnicodeEncodeError):
        return None
    return data if encode(data) == text else None


def seal(vault: Vault, use: str, *words: str, expires_ms: int) -> str:
    """Seal words without spaces into a text for one use, valid until ``expires_ms`` (epoch)."""
    return encode(vault.seal(" ".join((*words, str(expires_ms))), use))


def unseal(vault: Vault, use: str, text: str, what: str, now_ms: int) -> tuple[list[str], int]:
    """Open a sealed text. Returns its words and expiry.

    Raises UnauthenticatedError, which calls it ``what``: ``malformed``, ``bad-signature`` or ``expired``.
    """
    data = decode(text)
    if data is None:
        raise UnauthenticatedError(f"the {what} is malformed", "malformed")
    try:
        *words, expires = vault.open(data, use).split(" ")
    except ConfigurationError as error:
        raise UnauthenticatedError(
            f"the {what} was not issued by this server, or was changed", "bad-signature"
        ) from error
    if int(expires) <= now_ms:
        raise UnauthenticatedError(f"the {what} has expired", "expired")
    return words, int(expires)


def sign(vault: Vault, content: bytes, question: bytes = b"") -> str:
    """Make a text of a content and its signature. Everyone can read the content. ``question`` is signed, not sent."""
    return encode(content + vault.sign(question + content))


def verify_content(vault: Vault, text: str, question: bytes = b"") -> bytes | None:
    """Return the content of a text of ``sign``. None for a changed text, or a text for another question."""
    data = decode(text) or b""
    content, mark = data[:-_MARK_BYTES], data[-_MARK_BYTES:]
    return content if hmac.compare_digest(vault.sign(question + content), mark) else None

"""Sessions of the page's users: a sealed cookie, and one-time sign-in links.

Both carry their content, encrypted by the vault, so that valid ones need no storage. Signed-out sessions and used links
are remembered until they would have expired.
"""

import secrets

import msgspec

from jobmeter.access.nonces import WINDOW_MS, NonceMemory
from jobmeter.access.sealed import seal, unseal
from jobmeter.access.vault import Vault
from jobmeter.errors import UnauthenticatedError
from jobmeter.model.time import HOUR, SECOND, Clock

LIFE_MS = 12 * HOUR
"""Lifetime of a session in milliseconds."""
LINK_MS = WINDOW_MS - 5 * SECOND
"""Lifetime of a link in milliseconds: a little less than used ones are remembered."""
MOST_ENDED = 100_000
"""Largest number of remembered sign-outs. Beyond that the oldest sessions end early."""
_SESSION, _LINK = "session of the page", "link to the page"
_ID_BYTES = 16


class Opened(msgspec.Struct, frozen=True):
    """Content of a sealed text: the key, the session or link, and its times in epoch milliseconds."""

    access_key_id: str
    id: str
    issued_ms: int
    expires_ms: int


class Sessions:
    """Creates and reads sessions and links. Thread-safe."""

    def __init__(self, vault: Vault, clock: Clock, links: NonceMemory, ended: NonceMemory) -> None:
        """``ended`` has a window of ``LIFE_MS``; ``links`` a window of at least ``LINK_MS``."""
        self._vault = vault
        self._clock = clock
        self._links = links
        self._ended = ended

    def begin(self, access_key_id: str) -> tuple[str, int]:
        """Begin a session of that key. Returns the cookie's value and its expiry (epoch ms)."""
        return self._seal_token(access_key_id, _SESSION, LIFE_MS)

    def read(self, value: str) -> Opened:
        """Read the session of a cookie.

        Raises UnauthenticatedError: ``malformed``, ``bad-signature``, ``expired`` or ``revoked`` (signed out).
        """
        opened = self._unseal_token(value, _SESSION, "session")
        if not self._ended.is_fresh(opened.issued_ms) or self._ended.contains(*_fingerprints(opened)):
            raise UnauthenticatedError("the session was signed out", "revoked")
        return opened

    def end(self, value: str) -> None:
        """Sign out: invalidate the cookie. Raises UnauthenticatedError for an invalid one."""
        self._ended.remember(*_fingerprints(self.read(value)))

    def create_link(self, access_key_id: str) -> tuple[str, int]:
        """Create a one-time sign-in code for the key's holder. Returns the code and its expiry (epoch ms)."""
        return self._seal_token(access_key_id, _LINK, LINK_MS)

    def peek(self, code: str) -> Opened:
        """Return the owner of a code without using it up. Raises UnauthenticatedError as ``read``."""
        return self._unseal_token(code, _LINK, "link")

    def redeem(self, code: str) -> Opened:
        """Return the owner of a code and use it up. Raises UnauthenticatedError as ``read``, or ``replayed``."""
        opened = self._unseal_token(code, _LINK, "link")
        if not self._links.is_fresh(opened.issued_ms) or not self._links.remember(*_fingerprints(opened)):
            raise UnauthenticatedError("the link was already used: each works only once", "replayed")
        return opened

    def close(self) -> None:
        """Close the file of signed-out sessions."""
        self._ended.close()

    def _seal_token(self, access_key_id: str, use: str, life_ms: int) -> tuple[str, int]:
        now_ms = self._clock.now_ms()
        words, expires_ms = (access_key_id, secrets.token_hex(_ID_BYTES), str(now_ms)), now_ms + life_ms
        return seal(self._vault, use, *words, expires_ms=expires_ms), expires_ms

    def _unseal_token(self, text: str, use: str, what: str) -> Opened:
        (access_key_id, name, issued), expires_ms = unseal(self._vault, use, text, what, self._clock.now_ms())
        return Opened(access_key_id, name, int(issued), expires_ms)


def _fingerprints(opened: Opened) -> tuple[str, str, int]:
    return opened.access_key_id, opened.id, opened.issued_ms

"""Authenticate a raw call: find and verify its credential, and return the principal."""

import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress

import msgspec

from jobmeter.access.call import Call, Claim, ClaimKind, Scheme
from jobmeter.access.nonces import NonceMemory
from jobmeter.access.policy import compile_policies
from jobmeter.access.principal import Principal, Role
from jobmeter.access.session import LIFE_MS, Sessions
from jobmeter.access.share import read as read_share
from jobmeter.access.trace import TraceGrant
from jobmeter.access.trace import read as read_trace
from jobmeter.access.vault import Vault
from jobmeter.errors import UnauthenticatedError, UnavailableError
from jobmeter.model.time import MINUTE, Clock
from jobmeter.registry.keys import KeyTable
from jobmeter.registry.stored import StoredKey

REMEMBER_SECONDS = 1.0
"""Lifetime of a cached key in seconds: a revocation on another server takes effect within this time."""
_LAST_SECONDS = 0.25
"""Last seconds of a cached key, in which its next use may load it again ahead of time."""
OUTAGE_SECONDS = 15 * 60.0
"""Lifetime of a cached key in seconds while the registry does not answer."""
MOST_KEYS = 10_000
"""Limit on cached keys, and on keys whose last use is cached; the latest used stay."""
USED_EVERY_MS = 10 * MINUTE
"""Interval of milliseconds at which a key's last use is stored."""
_UNKNOWN_KEY = {
    ClaimKind.TOKEN: "the token does not belong to a key",
    ClaimKind.SESSION: "the session's key is unknown",
    ClaimKind.LINK: "the session's key is unknown",
    ClaimKind.TRACE: "the trace token's key is unknown",
    ClaimKind.ACCESS_KEY: "the access key id does not belong to a key",
}


class Credential(msgspec.Struct):
    """Credential in the headers of a call; its key exists and is active.

    ``principal`` is the holder of the key.
    """

    scheme: Scheme
    claim: Claim
    principal: Principal
    key: StoredKey | None = None
    secret: str = ""

    def __repr__(self) -> str:
        """Leaves out the claim and the secret."""
        return f"Credential({self.scheme!r}, {self.key!r}, {self.principal!r})"

    @property
    def signed(self) -> bool:
        """True if ``prove`` still has to verify a signature over the whole call, including its body."""
        return self.claim.kind is ClaimKind.ACCESS_KEY


class _CachedKey(msgspec.Struct):
    key: StoredKey | None
    confirmed: float
    until: float
    revision: Hashable
    secret: str = ""
    principal: Principal | None = None


class Authenticator:
    """Finds and verifies the claim of a call. Thread-safe."""

    def __init__(
        self,
        keys: KeyTable,
        vault: Vault,
        clock: Clock,
        nonces: NonceMemory | None = None,
        sessions: Sessions | None = None,
        revision: Callable[[], Hashable] = lambda: None,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        """``nonces`` should have a file; by default they are in memory only.

        A cached key is valid while ``revision`` returns the same value. ``changed`` is called after each ``forget``.
        """
        self._stored = keys
        self._vault = vault
        self._clock = clock
        self._nonces = nonces or NonceMemory(clock)
        self._sessions = sessions or Sessions(vault, clock, self._nonces, NonceMemory(clock, window_ms=LIFE_MS))
        self._revision, self._changed = revision, changed
        self._lock = threading.Lock()
        self._keys: OrderedDict[bytes | str, _CachedKey] = OrderedDict()
        self._used: OrderedDict[str, int] = OrderedDict()
        """Time at which the last use of recently used keys was stored, because the registry's copy may be stale."""

    def authenticate(self, call: Call, schemes: Sequence[Scheme]) -> Principal:
        """Return the sender of the call, by the first of ``schemes`` that it uses; a share token is tried last.

        Raises UnauthenticatedError with its reason, UnavailableError when the registry does not answer.
        """
        return self.prove(call, self.identify(call, schemes))

    def identify(self, call: Call, schemes: Sequence[Scheme]) -> Credential:
        """Find the credential in a call's headers and query, and look up its key. Raises as ``authenticate``."""
        scheme, claim = self.find(call, schemes)
        name = self._name(claim)
        found = None if name is None else self._read_cached_key(name) or self._load(name)
        return self._credential(scheme, claim, name, found)

    def find_cached(self, call: Call, schemes: Sequence[Scheme]) -> Credential | None:
        """Find the credential without blocking; None if its key is not cached."""
        scheme, claim = self.find(call, schemes)
        name = self._name(claim)
        if name is None:
            return self._credential(scheme, claim, None, None)
        found = self._read_cached_key(name)
        if found is None:
            return None
        if found.until - self._clock.monotonic() < _LAST_SECONDS:
            self._renew_soon(name)
        return self._credential(scheme, claim, name, found)

    def check_headers(self, call: Call, credential: Credential) -> None:
        """Verify a signature of the headers before the body is read. Raises UnauthenticatedError."""
        if credential.signed and not credential.scheme.verify_headers(call, credential.secret):
            raise _bad_signature()

    def must_wait(self, credential: Credential) -> bool:
        """True if ``prove`` has to ask the registry.

        It stores the key's last use once in ten minutes, and a used nonce or link while other servers use the registry.
        """
        uses_up = credential.signed or credential.claim.kind is ClaimKind.LINK
        is_due = credential.key is not None and self._use_is_due(credential.key)
        return is_due or (uses_up and not self._nonces.is_alone)

    def prove(self, call: Call, credential: Credential) -> Principal:
        """Verify the signature of the whole call and return its sender.

        Raises as ``authenticate``; uses up a nonce or the code of a link.
        """
        key = credential.key
        if key is None:
            return credential.principal
        if credential.signed:
            if not credential.scheme.verify(call, credential.secret):
                raise _bad_signature()
            self._check_date(key, credential.claim)
        if credential.claim.kind is ClaimKind.LINK:
            self._sessions.redeem(credential.claim.value)
        self._note_use(key)
        return credential.principal

    def renew(self, call: Call, schemes: Sequence[Scheme]) -> Principal:
        """Check the sender of a call again while it is being answered.

        Neither verifies a signature again nor uses up a nonce. Raises as ``identify`` if the key, session, link or
        token has ended.
        """
        credential = self.identify(call, schemes)
        if credential.key is not None:
            self._note_use(credential.key)
        return credential.principal

    def find(self, call: Call, schemes: Sequence[Scheme]) -> tuple[Scheme, Claim]:
        """Find the unverified claim of a call. Raises UnauthenticatedError when it is missing or malformed."""
        shares: list[tuple[Scheme, Claim]] = []
        malformed: UnauthenticatedError | None = None
        for scheme in schemes:
            try:
                claim = scheme.claim(call)
            except UnauthenticatedError as error:
                malformed = malformed or error
                continue
            if claim is not None and claim.kind is not ClaimKind.SHARE:
                return scheme, claim
            if claim is not None:
                shares.append((scheme, claim))
        if malformed:
            raise malformed
        if call.get_header("authorization").strip():
            raise UnauthenticatedError("the Authorization header uses a scheme that is not accepted here", "malformed")
        if not shares:
            raise UnauthenticatedError("a credential is required", "missing")
        return shares[0]

    def find_claimed_key(self, call: Call, schemes: Sequence[Scheme]) -> str:
        """Return the access key id of a refused call for the audit line; empty without one.

        A text that is not the id of a key looked up for the call may be a secret in the wrong place. It is replaced by
        a fingerprint, ``unknown-1a2b3c4d``, that only the holder of the vault's key can compute.
        """
        with suppress(UnauthenticatedError):
            claim = self.find(call, schemes)[1]
            if claim.kind is not ClaimKind.ACCESS_KEY or not claim.value:
                return ""
            with self._lock:
                cached = self._keys.get(claim.value)
            if cached is not None and cached.key is not None:
                return cached.key.access_key_id
            return f"unknown-{self._vault.compute_fingerprint(claim.value)}"
        return ""

    def forget(self, key_id: str = "") -> None:
        """Drop a key, or all keys, from the cache after a revocation in this process."""
        with self._lock:
            for name in [n for n, one in self._keys.items() if not key_id or (one.key and one.key.id == key_id)]:
                del self._keys[name]
        self._changed()

    def _name(self, claim: Claim) -> bytes | str | None:
        """Return the look-up key of a claim: the digest of a token, or an access key id; None for a share token.

        Raises UnauthenticatedError for an invalid session, link or trace token.
        """
        match claim.kind:
            case ClaimKind.SHARE:
                return None
            case ClaimKind.TOKEN:
                return hash_token(claim.value)
            case ClaimKind.SESSION:
                return self._sessions.read(claim.value).access_key_id
            case ClaimKind.LINK:
                return self._sessions.peek(claim.value).access_key_id
            case ClaimKind.TRACE:
                return self._grant(claim).access_key_id
            case ClaimKind.ACCESS_KEY:
                return claim.value

    def _credential(
        self, scheme: Scheme, claim: Claim, name: bytes | str | None, found: _CachedKey | None
    ) -> Credential:
        if found is None:
            return Credential(scheme, claim, read_share(self._vault, claim.value, self._clock.now_ms()))
        key = found.key
        if key and isinstance(name, bytes) and not hmac.compare_digest(key.token_hash, name):
            key = None
        if key is None:
            raise UnauthenticatedError(f"{_UNKNOWN_KEY[claim.kind]} here", "unknown-key")
        if key.revoked is not None:
            raise UnauthenticatedError(f"the {'link' if key.job else 'key'} was revoked", "revoked")
        if key.expires is not None and key.expires <= self._clock.now_ms():
            raise UnauthenticatedError("the link has expired", "expired")
        if key.job and claim.kind is ClaimKind.ACCESS_KEY:
            raise UnauthenticatedError("a link cannot sign requests", "unknown-key")
        if claim.kind is ClaimKind.ACCESS_KEY:
            found.secret = found.secret or self._vault.open(key.sealed_secret, key.access_key_id)
        found.principal = found.principal or _principal(key)
        principal = found.principal
        if claim.kind is ClaimKind.TRACE:
            principal = self._grant(claim).narrow(principal)
        return Credential(scheme, claim, principal, key, found.secret)

    def _grant(self, claim: Claim) -> TraceGrant:
        return read_trace(self._vault, claim.value, self._clock.now_ms())

    def _check_date(self, key: StoredKey, claim: Claim) -> None:
        if claim.date_ms is None:
            return
        if not self._nonces.is_fresh(claim.date_ms):
            raise UnauthenticatedError(
                "the request's date is more than 15 minutes from the server's clock, or older than it remembers",
                "stale",
            )
        if claim.nonce and not self._nonces.remember(key.access_key_id, claim.nonce, claim.date_ms):
            raise UnauthenticatedError("a request with this nonce was received before", "replayed")

    def _read_cached_key(self, name: bytes | str) -> _CachedKey | None:
        """Return the cached key if it is still valid, else None."""
        now = self._clock.monotonic()
        with self._lock:
            cached = self._keys.get(name)
            is_valid = cached is not None and cached.until > now and cached.revision == self._revision()
            return cached if is_valid else None

    def _renew_soon(self, name: bytes | str) -> None:
        """Load a key that expires soon again, without blocking. Does nothing here: the registry is near."""

    def _load(self, name: bytes | str) -> _CachedKey:
        """Load the key from the registry; during an outage use ``_extend_cached_key``."""
        now, revision = self._clock.monotonic(), self._revision()
        try:
            key = self._stored.find_by_token(name) if isinstance(name, bytes) else self._stored.find_by_access_key(name)
            fresh = _CachedKey(key, now, now + REMEMBER_SECONDS, revision)
        except UnavailableError:
            confirmed = self._extend_cached_key(name, now)
            if confirmed is None:
                raise
            fresh = confirmed
        with self._lock:
            last = self._keys.get(name)
            if last is not None and last.key == fresh.key:
                fresh.secret, fresh.principal = last.secret, last.principal
            self._keys[name] = fresh
            self._keys.move_to_end(name)
            while len(self._keys) > MOST_KEYS:
                self._keys.popitem(last=False)
        return fresh

    def _extend_cached_key(self, name: bytes | str, now: float) -> _CachedKey | None:
        """Extend a cached key by a second while the registry does not answer; None if it is too old.

        A key that was revoked in this process is not in the cache.
        """
        with self._lock:
            cached = self._keys.get(name)
            if cached is None or cached.key is None or now - cached.confirmed > OUTAGE_SECONDS:
                return None
            cached.until = now + REMEMBER_SECONDS
            return cached

    def _use_is_due(self, key: StoredKey) -> bool:
        return self._clock.now_ms() - self._used.get(key.id, key.last_used or 0) >= USED_EVERY_MS

    def _note_use(self, key: StoredKey) -> None:
        if not self._use_is_due(key):
            return
        now_ms = self._clock.now_ms()
        with self._lock:
            if not self._use_is_due(key):
                return
            self._used[key.id] = now_ms
            self._used.move_to_end(key.id)
            while len(self._used) > MOST_KEYS:
                self._used.popitem(last=False)
        # A read-only registry still serves readers.
        with suppress(UnavailableError):
            self._stored.mark_used(key.id, now_ms)


def _principal(key: StoredKey) -> Principal:
    return Principal(
        id=key.id,
        name=key.name,
        role=Role(key.role),
        project=key.project,
        job=key.job or None,
        access_key_id=key.access_key_id,
        policies=compile_policies(key.policies) if key.policies else None,
    )


def _bad_signature() -> UnauthenticatedError:
    return UnauthenticatedError("the signature does not match the request", "bad-signature")


def hash_token(token: str) -> bytes:
    """Return the digest of a token as stored in the registry. Tokens are random, so a plain digest is enough."""
    return hashlib.sha256(token.encode()).digest()

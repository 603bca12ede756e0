"""From a raw call to the principal who sent it."""

import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from jobmeter.access.call import Call
from jobmeter.access.keys import token_hash
from jobmeter.access.nonces import NonceMemory
from jobmeter.access.principal import Principal, Role
from jobmeter.access.session import LIFE_MS, Opened, Sessions
from jobmeter.access.share import read as read_share
from jobmeter.access.signatures.base import Claim, ClaimKind, Scheme
from jobmeter.access.vault import Vault
from jobmeter.errors import NotAtOnceError, UnauthenticatedError, UnavailableError
from jobmeter.model.time import MINUTE, Clock
from jobmeter.registry.base import Registry, StoredKey

REMEMBER_SECONDS = 1.0
"""How long a key is believed without asking the registry again: a revocation elsewhere takes effect within this."""
OUTAGE_SECONDS = 15 * 60.0
"""How long a key is believed that the registry confirmed, while the registry cannot be asked."""
MOST_KEYS = 10_000
USED_EVERY_MS = 10 * MINUTE
"""How often a key's last use is written down."""


@dataclass(slots=True)
class Credential:
    """What the headers of a call prove: whose it claims to be, and that such a key exists and is active.

    ``sharer`` is who a share token stands for. ``signed``: whether ``scheme`` has a signature for ``prove`` to check.
    """

    scheme: Scheme
    claim: Claim
    key: StoredKey | None = None
    secret: str = field(default="", repr=False)
    sharer: Principal | None = None

    @property
    def signed(self) -> bool:
        """True where the rest of the call, its body with it, has to be checked as well."""
        return self.claim.kind is ClaimKind.ACCESS_KEY


@dataclass(slots=True)
class _Known:
    key: StoredKey | None
    confirmed: float
    until: float
    secret: str = ""


class Authenticator:
    """Finds the one claim in a call and checks it. Safe to use from any thread."""

    def __init__(
        self,
        registry: Registry,
        vault: Vault,
        clock: Clock,
        nonces: NonceMemory | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        """``nonces`` should be one with a file; by default it is one that begins now."""
        self._registry = registry
        self._vault = vault
        self._clock = clock
        self._nonces = nonces or NonceMemory(clock)
        self._sessions = sessions or Sessions(vault, clock, self._nonces, NonceMemory(clock, window_ms=LIFE_MS))
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes | str, _Known] = OrderedDict()
        self._used: dict[str, int] = {}

    def authenticate(self, call: Call, schemes: Sequence[Scheme], *, at_once: bool = False) -> Principal:
        """Who sent the call, by the first of ``schemes`` that it uses; a share token counts only where nothing else is.

        Raises UnauthenticatedError with its reason, UnavailableError when the registry does not answer. ``at_once``:
        NotAtOnceError, and nothing is noted, where the registry would have to be asked or told.
        """
        return self.prove(call, self.identify(call, schemes, at_once=at_once), at_once=at_once)

    def identify(self, call: Call, schemes: Sequence[Scheme], *, at_once: bool = False) -> Credential:
        """The credential in a call's headers and query, whose key is looked up. Raises as ``authenticate``."""
        scheme, claim = self.find(call, schemes)
        if claim.kind is ClaimKind.SHARE:
            return Credential(scheme, claim, sharer=read_share(self._vault, claim.value, self._clock.now_ms()))
        if claim.kind is ClaimKind.TOKEN:
            return Credential(scheme, claim, self._by_token(claim.value, at_once=at_once))
        if claim.kind is ClaimKind.SESSION:
            return Credential(scheme, claim, self._by_name(self._sessions.read(claim.value), at_once=at_once))
        if claim.kind is ClaimKind.LINK:
            return Credential(scheme, claim, self._by_name(self._sessions.peek(claim.value), at_once=at_once))
        return self._by_access_key(scheme, claim, at_once=at_once)

    def identify_without_body(self, call: Call, schemes: Sequence[Scheme], *, at_once: bool = False) -> Credential:
        """As ``identify``, for a call whose body is not read: a signature of the headers alone has to hold too."""
        credential = self.identify(call, schemes, at_once=at_once)
        if credential.signed and not credential.scheme.verify_headers(call, credential.secret):
            raise _bad_signature()
        return credential

    def prove(self, call: Call, credential: Credential, *, at_once: bool = False) -> Principal:
        """Who sent the whole call. Raises as ``authenticate``; a nonce or the code of a link is used up by this."""
        key = credential.key
        if key is None:
            if credential.sharer is None:
                raise UnauthenticatedError("a credential is required", "missing")
            return credential.sharer
        if at_once and self._use_is_due(key):
            raise NotAtOnceError
        if credential.signed:
            if not credential.scheme.verify(call, credential.secret):
                raise _bad_signature()
            self._check_moment(key, credential.claim)
        if credential.claim.kind is ClaimKind.LINK:
            self._sessions.redeem(credential.claim.value)
        return self._principal(key)

    def find(self, call: Call, schemes: Sequence[Scheme]) -> tuple[Scheme, Claim]:
        """The claim that would be checked, unchecked. Raises UnauthenticatedError when there is none, or a bad one."""
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
        if call.header("authorization").strip():
            raise UnauthenticatedError("the Authorization header names no scheme that is accepted here", "malformed")
        if not shares:
            raise UnauthenticatedError("a credential is required", "missing")
        return shares[0]

    def claimed(self, call: Call, schemes: Sequence[Scheme]) -> str:
        """The access key id that a refused call names, for the audit line; empty where it names none.

        A text that is not the id of a key that was looked up for the call may be a secret in the wrong place: of it
        this is a fingerprint, ``unknown-1a2b3c4d``, which only the holder of the vault's key can make.
        """
        with suppress(UnauthenticatedError):
            claim = self.find(call, schemes)[1]
            if claim.kind is not ClaimKind.ACCESS_KEY or not claim.value:
                return ""
            with self._lock:
                known = self._known.get(claim.value)
            if known is not None and known.key is not None:
                return known.key.access_key_id
            return f"unknown-{self._vault.fingerprint(claim.value)}"
        return ""

    def forget(self, key_id: str = "") -> None:
        """Ask the registry again for that key, or for all: after a revocation in this process."""
        with self._lock:
            for name in [n for n, known in self._known.items() if not key_id or (known.key and known.key.id == key_id)]:
                del self._known[name]

    def _by_token(self, token: str, *, at_once: bool) -> StoredKey:
        digest = token_hash(token)
        key = self._look_up(digest, lambda: self._registry.key_by_token(digest), at_once=at_once).key
        if key is None or not hmac.compare_digest(key.token_hash, digest):
            raise UnauthenticatedError("the token is not that of a key here", "unknown-key")
        return _holding(key)

    def _by_name(self, opened: Opened, *, at_once: bool) -> StoredKey:
        name = opened.access_key_id
        known = self._look_up(name, lambda: self._registry.key_by_access_key(name), at_once=at_once)
        if known.key is None:
            raise UnauthenticatedError("the session's key is not one here", "unknown-key")
        return _holding(known.key)

    def _by_access_key(self, scheme: Scheme, claim: Claim, *, at_once: bool) -> Credential:
        known = self._look_up(claim.value, lambda: self._registry.key_by_access_key(claim.value), at_once=at_once)
        if known.key is None:
            raise UnauthenticatedError("the access key id is not that of a key here", "unknown-key")
        key = _holding(known.key)
        known.secret = known.secret or self._vault.open(key.sealed_secret, key.access_key_id)
        return Credential(scheme, claim, key, known.secret)

    def _check_moment(self, key: StoredKey, claim: Claim) -> None:
        if claim.date_ms is None:
            return
        if not self._nonces.fresh(claim.date_ms):
            raise UnauthenticatedError(
                "the request's date is more than 15 minutes from the server's clock, or older than it remembers",
                "stale",
            )
        if claim.nonce and not self._nonces.first(key.access_key_id, claim.nonce, claim.date_ms):
            raise UnauthenticatedError("a request with this nonce was received before", "replayed")

    def _look_up(self, name: bytes | str, ask: Callable[[], StoredKey | None], *, at_once: bool) -> _Known:
        now = self._clock.monotonic()
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.until > now:
                return known
        if at_once:
            raise NotAtOnceError
        try:
            fresh = _Known(ask(), now, now + REMEMBER_SECONDS)
        except UnavailableError:
            last = self._confirmed_lately(name, now)
            if last is None:
                raise
            fresh = last
        with self._lock:
            self._known[name] = fresh
            self._known.move_to_end(name)
            while len(self._known) > MOST_KEYS:
                self._known.popitem(last=False)
        return fresh

    def _confirmed_lately(self, name: bytes | str, now: float) -> _Known | None:
        """What the registry said of it before, believed for another moment; None where that is too long ago.

        A key that was revoked in this process was forgotten.
        """
        with self._lock:
            known = self._known.get(name)
            if known is None or known.key is None or now - known.confirmed > OUTAGE_SECONDS:
                return None
            known.until = now + REMEMBER_SECONDS
            return known

    def _principal(self, key: StoredKey) -> Principal:
        self._note_use(key)
        return Principal(
            id=key.id, name=key.name, role=Role(key.role), project=key.project, access_key_id=key.access_key_id
        )

    def _use_is_due(self, key: StoredKey) -> bool:
        return self._clock.now_ms() - self._used.get(key.id, key.last_used or 0) >= USED_EVERY_MS

    def _note_use(self, key: StoredKey) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            if not self._use_is_due(key):
                return
            self._used[key.id] = now_ms
        # A registry that can only be read still serves readers.
        with suppress(UnavailableError):
            self._registry.key_used(key.id, now_ms)


def _bad_signature() -> UnauthenticatedError:
    return UnauthenticatedError("the signature does not match the request", "bad-signature")


def _holding(key: StoredKey) -> StoredKey:
    if key.revoked is not None:
        raise UnauthenticatedError("the key was revoked", "revoked")
    return key

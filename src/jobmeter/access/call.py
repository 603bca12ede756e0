"""Request as received, and its claim: neither decoded nor normalised.

Signatures cover exactly these bytes. Every credential scheme finds the claim in a call, and checks it with the secret
that the claim names.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import unquote_plus

import msgspec

from jobmeter.access.memory import MemoryAccount

T = TypeVar("T")
_MOST_PARAMETERS = 1_000
_SHORT = 1_000
"""Most characters of a text whose decoded form is cached."""


class _CachedProperty(Generic[T]):
    """Property that is computed once, without the lock of ``functools.cached_property``."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T:
        value = self._work(instance)
        instance.__dict__[self._name] = value  # takes precedence over this descriptor
        return value


def check_parameters(query: str) -> None:
    """Raise ValueError when a query has too many parameters."""
    if query.count("&") >= _MOST_PARAMETERS:
        raise ValueError(f"there are more than {_MOST_PARAMETERS} parameters")


def read_parameters(query: str) -> tuple[tuple[str, str], ...]:
    """Decode every parameter of a query form-style (``+`` is a space), in order. Raises ValueError for too many."""
    check_parameters(query)
    pairs = [part.partition("=")[::2] for part in query.split("&") if part]
    if "%" in query or "+" in query:
        return tuple([(_decode_text(name), _decode_text(value)) for name, value in pairs])
    return tuple(pairs)


def _decode_text(text: str) -> str:
    if "%" not in text and "+" not in text:
        return text
    return _decoded_short(text) if len(text) <= _SHORT else unquote_plus(text)


# Dashboards repeat their queries, which are full of encoded characters.
_decoded_short = lru_cache(maxsize=512)(unquote_plus)


def _do_nothing() -> None:
    """Do nothing."""


@dataclass
class Call:
    """HTTP request, immutable.

    ``raw_path`` and ``query`` are as on the wire (``%2F``, ``//`` and case unchanged; no scheme, no host, no ``?``).
    ``headers`` are (lower-case name, value) pairs in order, values decoded as Latin-1. ``body`` is the received body
    before content decoding; empty while it is not read. ``memory`` accounts for reading the body. ``scheme`` and
    ``client`` describe the connection, or the client as reported by a trusted proxy. ``authority`` and ``prefix`` are
    the host and the path prefix at which that proxy was called, empty if not reported.
    """

    method: str
    raw_path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    scheme: str = "http"
    client: str = ""
    authority: str = ""
    prefix: str = ""
    memory: MemoryAccount | None = field(default=None, repr=False, compare=False)
    authenticated: Callable[[], None] = field(default=_do_nothing, repr=False, compare=False)
    """Callback after the credential was verified, so that the connection stays open. Called on any thread."""

    def with_body(self, body: bytes, memory: MemoryAccount | None) -> "Call":
        """Return a copy with the body and the account of its memory."""
        made = Call.__new__(Call)
        # Reuses the headers that were parsed to decide whether to read the body.
        made.__dict__.update(self.__dict__, body=body, memory=memory)
        return made

    def keep_first_parameters(self) -> "Call":
        """Return a copy without the parameters beyond the limit."""
        return replace(self, query="&".join(self.query.split("&", _MOST_PARAMETERS)[:_MOST_PARAMETERS]))

    def take(self, size: int) -> None:
        """Reserve memory before reading the body.

        Raises ThrottledError when running requests leave too little, LimitExceededError when the total is too small.
        """
        if self.memory is not None:
            self.memory.take(size)

    def get_header(self, name: str, default: str = "") -> str:
        """Return the first header of that lower-case name."""
        return self._headers.get(name, default)

    def get_parameter(self, name: str) -> str | None:
        """Return the first query parameter of that exact name, decoded; None if absent, ``""`` if empty."""
        return self._parameters.get(name)

    @_CachedProperty
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Return every query parameter; see ``read_parameters``."""
        return read_parameters(self.query)

    @_CachedProperty
    def _parameters(self) -> dict[str, str]:
        return dict(reversed(self.parameters))

    @_CachedProperty
    def _headers(self) -> dict[str, str]:
        return dict(reversed(self.headers))


class ClaimKind(StrEnum):
    """Content of a claim: one half of a key pair, or a whole secret."""

    ACCESS_KEY = "access-key"
    TOKEN = "token"  # noqa: S105 - the name of a kind, not a secret
    SHARE = "share"
    TRACE = "trace"
    SESSION = "session"
    LINK = "link"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Claimed identity of a call, not verified yet.

    ``date_ms`` and ``nonce`` protect against replay; None and ``""`` if the scheme has none. SDKs send a security token
    beside a temporary key pair: the signature covers it, and it is ignored.
    """

    kind: ClaimKind
    value: str
    date_ms: int | None = None
    nonce: str = ""


class Scheme(Protocol):
    """Credential scheme: a way to prove an identity."""

    name: str

    def claim(self, call: Call, /) -> Claim | None:
        """Return the claim of a call under this scheme; None if the call does not use the scheme.

        Raises UnauthenticatedError (``malformed`` or ``incomplete-signature``) if it uses the scheme wrongly.
        """
        ...

    def verify_headers(self, call: Call, secret: str) -> bool:
        """Return False if ``verify`` would fail for any body. Called before the body is read.

        A scheme that signs only headers, or a hash of the body in a header, checks its signature here.
        """
        ...

    def verify(self, call: Call, secret: str) -> bool:
        """Return True if only a holder of ``secret`` could have sent exactly this call.

        Always True for a bare token.
        """
        ...

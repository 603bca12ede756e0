"""A request as it came over the wire, and what it claims: nothing decoded, nothing normalised.

Signatures are made over exactly this. What every credential scheme is: find the claim in a call, and check it with the
secret that the claim names.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from jobmeter.access.memory import MemoryAccount

T = TypeVar("T")
_MOST_PARAMETERS = 1_000


class _CachedProperty(Generic[T]):
    """A property that is computed once, without the lock that ``functools.cached_property`` takes."""

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
    """Raises ValueError when a query has too many parameters to be read."""
    if query.count("&") >= _MOST_PARAMETERS:
        raise ValueError(f"there are more than {_MOST_PARAMETERS} parameters")


def read_parameters(query: str) -> tuple[tuple[str, str], ...]:
    """Every parameter of a query, decoded form-style (``+`` is a space), in order. Raises ValueError for too many."""
    check_parameters(query)
    if "%" in query or "+" in query:
        return tuple(parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS))
    return tuple([part.partition("=")[::2] for part in query.split("&") if part])


def _nothing() -> None:
    """No callback."""


@dataclass
class Call:
    """One HTTP request, immutable.

    ``raw_path`` and ``query`` are as on the wire (``%2F``, ``//`` and case stored; no scheme, no host, no ``?``).
    ``headers`` are (lower-case name, value) pairs in order, values decoded as Latin-1. ``body`` is what came, before
    any content decoding; empty while it is not read. ``memory`` accounts for what reading the body takes.
    ``scheme`` and ``client`` are those of the connection, or what a trusted proxy says of the client's; ``authority``
    and ``prefix`` are the host and the path prefix that such a proxy was called by, empty where none said so.
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
    authenticated: Callable[[], None] = field(default=_nothing, repr=False, compare=False)
    """Called when the call's credential proved valid, so that its connection stays open. From any thread."""

    def with_body(self, body: bytes, memory: MemoryAccount | None) -> "Call":
        """The same call with its body and the account of the memory that it takes."""
        made = Call.__new__(Call)
        # With the headers that were parsed already, to decide whether to read the body.
        made.__dict__.update(self.__dict__, body=body, memory=memory)
        return made

    def with_first_parameters(self) -> "Call":
        """The same call without the parameters beyond the limit."""
        return replace(self, query="&".join(self.query.split("&", _MOST_PARAMETERS)[:_MOST_PARAMETERS]))

    def take(self, size: int) -> None:
        """Account for memory that reading the body is about to take.

        Raises ThrottledError when requests under way leave too little, LimitExceededError for more than all of them
        may take.
        """
        if self.memory is not None:
            self.memory.take(size)

    def header(self, name: str, default: str = "") -> str:
        """The first header of that lower-case name."""
        return self._headers.get(name, default)

    def parameter(self, name: str) -> str | None:
        """The first query parameter of that exact name, decoded; None when it is absent (an empty one is ``""``)."""
        return self._parameters.get(name)

    @_CachedProperty
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Every query parameter; see ``read_parameters``."""
        return read_parameters(self.query)

    @_CachedProperty
    def _parameters(self) -> dict[str, str]:
        return dict(reversed(self.parameters))

    @_CachedProperty
    def _headers(self) -> dict[str, str]:
        return dict(reversed(self.headers))


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

    def claim(self, call: Call, /) -> Claim | None:
        """What the call claims under this scheme; None when it does not use it.

        Raises UnauthenticatedError (``malformed`` or ``incomplete-signature``) when it does use it, but wrongly.
        """
        ...

    def verify_headers(self, call: Call, secret: str) -> bool:
        """False when no body would make ``verify`` true: called before the body is read.

        A scheme that signs headers alone, or a hash of the body that a header names, checks its signature here.
        """
        ...

    def verify(self, call: Call, secret: str) -> bool:
        """True when only a holder of ``secret`` could have sent exactly this call. Always True for a bare token."""
        ...

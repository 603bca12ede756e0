"""What a dialect is: tables of operations, and pure functions between its words and ours.

An operation turns a raw call into questions (``parse``), and their results into an answer (``render``). It performs no
I/O, knows no store, no web framework and no other dialect. Who the caller is, what they may see, and running the
questions is the server's part. Adding a dialect is one folder and one line in ``jobmeter.dialects.registry``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jobmeter.access.call import Call
from jobmeter.access.signatures import Scheme
from jobmeter.errors import JobmeterError


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: status, body and headers, complete but for what the server adds to all (date, length, connection)."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Context:
    """What an operation may know besides the call: when it is, the request's id, and the parameters of its path."""

    now_ms: int
    request_id: str
    path: Mapping[str, str] = field(default_factory=dict)


class Operation(Protocol):
    """One operation of a vendor's API."""

    name: str
    """The vendor's own name, ``GetJobMetrics``."""
    action: str
    """What it does, for ``jobmeter.access``: ``metrics:read``, ``jobs:write``, ..."""

    def parse(self, call: Call, context: Context) -> Sequence[Any]:
        """The questions (``jobmeter.query`` request types) that answer the call.

        Raises InvalidRequestError in the vendor's own field names.
        """
        ...

    def render(self, call: Call, context: Context, questions: Sequence[Any], results: Sequence[Any]) -> Answer:
        """The vendor's body, from the results in the order of the questions."""
        ...


@dataclass(frozen=True, slots=True)
class Match:
    """An operation found for a call, with the values of its path parameters, percent-decoded."""

    operation: Operation
    path: Mapping[str, str]


class Dialect(Protocol):
    """One vendor's API."""

    name: str
    schemes: Sequence[Scheme]
    """The credential schemes it accepts, most specific first."""

    def match(self, call: Call) -> Match | None:
        """The operation that the call names; None when the call is not for this dialect.

        Raises NotFoundError (kind ``path``) when the call is clearly this dialect's but names no operation that exists.
        """
        ...

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """The error in the vendor's code, body and status.

        A bug arrives as a bare JobmeterError and becomes their internal error.
        """
        ...

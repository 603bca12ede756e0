"""What a dialect is: a table of operations, and pure functions between its words and ours.

An operation turns a raw call into questions (``parse``), and their results into an answer (``render``). It performs no
I/O, knows no store, no web framework and no other dialect. Who the caller is, what they may see, and running the
questions is the server's part. Adding a dialect is one folder and one line in ``jobmeter.dialects.registry``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from urllib.parse import unquote

from jobmeter.access.call import Call
from jobmeter.access.signatures import Scheme
from jobmeter.errors import InvalidRequestError, JobmeterError
from jobmeter.query.request import JobRef


class MissingFieldError(InvalidRequestError):
    """A required parameter is absent or empty: vendors tell this from a wrong value."""


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


@dataclass(frozen=True, slots=True)
class ShareQuestion:
    """Ask for a token that opens the measurements of one job for ``seconds``; answered by ``ShareToken``."""

    ref: JobRef
    seconds: int


@dataclass(frozen=True, slots=True)
class ShareToken:
    """A share token, and when it ends in epoch milliseconds."""

    token: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation, for the reference page. ``text`` says its form and its default."""

    name: str
    where: Literal["path", "query", "header", "body"]
    text: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Something of the vendor's API that is not answered, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a vendor's API.

    ``name`` is the vendor's own, ``GetJobMetrics``; ``action`` what it does, for ``jobmeter.access``: ``metrics:read``.
    ``path`` is a template, ``/api/v1/jobs/{JobId}/metrics``. ``parse`` gives the questions (a ``jobmeter.query``
    question or one of this module) that answer the call, and raises InvalidRequestError in the vendor's own field
    names; ``render`` gives the vendor's body from (call, context, questions, their results in that order).
    """

    name: str
    action: str
    method: str
    path: str
    parse: Callable[[Call, Context], Sequence[Any]]
    render: Callable[[Call, Context, Sequence[Any], Sequence[Any]], Answer]
    parameters: Sequence[Parameter]
    text: str
    body_bytes: int = 1 << 20
    """Largest body that the operation takes."""


@dataclass(frozen=True, slots=True)
class Match:
    """An operation found for a call, with the values of its path parameters, percent-decoded."""

    operation: Operation
    path: Mapping[str, str]


class Dialect(Protocol):
    """One vendor's API."""

    @property
    def name(self) -> str:
        """The short name: the key of ``Metric.names``, of the registry and of the server's own metrics."""
        ...

    @property
    def title(self) -> str:
        """The vendor's product and the version of its API."""
        ...

    @property
    def schemes(self) -> Sequence[Scheme]:
        """The credential schemes it accepts, most specific first."""
        ...

    @property
    def operations(self) -> Sequence[Operation]:
        """Every operation that it answers."""
        ...

    @property
    def gaps(self) -> Sequence[Gap]:
        """What it does not answer."""
        ...

    def match(self, call: Call) -> Match | None:
        """The operation that the call names; None when the call is not for this dialect. The body is not read yet.

        Raises NotFoundError when the call is clearly this dialect's but names no operation (kind ``path``), or one
        that has another method (kind ``method``, ``name`` the methods that it has).
        """
        ...

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """The error in the vendor's code, body and status.

        A bug arrives as a bare JobmeterError and becomes their internal error.
        """
        ...


def path_parameters(template: str, raw_path: str) -> dict[str, str] | None:
    """The percent-decoded values of a template's ``{Name}`` segments; None when the path has another shape.

    Nothing is normalised: ``//`` is an empty segment (an empty value) and ``%2F`` stays inside its segment.
    """
    wanted, given = template.split("/"), raw_path.split("/")
    if len(wanted) != len(given):
        return None
    values = {}
    for name, segment in zip(wanted, given, strict=True):
        if name.startswith("{"):
            values[name[1:-1]] = unquote(segment)
        elif name != segment:
            return None
    return values


def rounded(value: float) -> float:
    """The value to 12 significant digits: what a change of unit adds in binary noise is gone."""
    return float(f"{value:.12g}")

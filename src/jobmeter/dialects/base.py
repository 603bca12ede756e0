"""The contract of dialects: a table of operations, and pure functions between its terms and ours.

An operation is a generator: it yields questions, is sent their results, and returns the vendor's body. So it performs
no I/O, knows no store, no web framework and no other dialect, and a later question may depend on an earlier answer. Who
the caller is, what they may see, and answering the questions is the server's part. Adding a dialect is one folder and
one line in ``jobmeter.dialects.registry``.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Literal, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.forwarded import PublicAddress
from jobmeter.access.limit import Rate
from jobmeter.access.signatures import Scheme
from jobmeter.errors import (
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    JobmeterError,
    LimitExceededError,
    NotFoundError,
    QueryTimeoutError,
    ThrottledError,
    UnauthenticatedError,
    UnavailableError,
)
from jobmeter.ingest.receipt import Receipt
from jobmeter.ingest.sender_cache import SenderCache
from jobmeter.model.batch import SampleBatch
from jobmeter.model.catalog import Metric
from jobmeter.model.job import Job
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.model.record import Records
from jobmeter.model.shipper import Shipper
from jobmeter.model.span import Span
from jobmeter.model.time import TimeRange
from jobmeter.query.nodes import SILENT_MS
from jobmeter.query.request import JobRef
from jobmeter.settings import Limits
from jobmeter.wire.json_shape import shape_of

R = TypeVar("R")

_LIMITS = Limits()
_SMALL_BODY = 1 << 20


def read_as_json(call: Call) -> int:
    """About how many bytes it takes to read the body as JSON, the body itself not counted."""
    return shape_of(call.body).read_bytes


def accounted_for(call: Call) -> int:  # noqa: ARG001 - as the other
    """0: the operation itself accounts for the memory of reading the body, once it knows its content."""
    return 0


class MissingFieldError(InvalidRequestError):
    """A required parameter is absent or empty: vendors distinguish this from a wrong value."""


class Answer(msgspec.Struct, frozen=True):
    """A response: status, body and headers, complete but for what the server adds to all (date, length, connection)."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"


class Context(msgspec.Struct, frozen=True):
    """The context of a call: the time, the request's id, the parameters of its path, the caller.

    ``project`` is that of the caller's key, None for a key that sees all; ``caller`` the key's name. Neither decides
    what may be read: that is decided where questions are answered. ``limits`` bound what one request may bring.
    ``senders`` caches what senders repeat, where the server has such a cache. ``public`` is the server's address for
    others where the settings name one: ``public_address`` gives that of an answer. ``silent_ms`` is how long a node may
    send nothing before it counts as down.
    """

    now_ms: int
    request_id: str
    path: Mapping[str, str] = msgspec.field(default_factory=dict)
    project: str | None = None
    caller: str = ""
    limits: Limits = _LIMITS
    senders: SenderCache | None = None
    public: PublicAddress | None = None
    silent_ms: int = SILENT_MS


Steps = Generator[Question[Any], Any, Answer]
"""An operation under way. An error of a question is raised at its ``yield``."""


def execute(question: Question[R]) -> Generator[Question[Any], Any, R]:
    """The typed result of a question inside an operation.

    >>> view = yield from execute(JobQuestion(ref))  # doctest: +SKIP
    """
    result: R = yield question
    return result


class Run(Generic[R]):
    """A running operation: it waits for the result of a question, or has ended."""

    def __init__(self, steps: Generator[Question[Any], Any, R]) -> None:
        self._steps = steps
        self._question: Question[Any] | None = None

    def advance(self, from_memory: Callable[[Question[Any]], Any]) -> R | None:
        """The operation's result; None where ``from_memory`` had None for one of its questions.

        The operation then stands before that question: ``advance`` and ``finish`` go on from it. Raises as ``finish``.
        """
        body: R | None = self._go(from_memory, optional=True)
        return body

    def finish(self, answer: Callable[[Question[Any]], Any]) -> R:
        """The operation's result; ``answer`` gives those of its questions.

        Raises what the operation raises. A JobmeterError of ``answer`` is raised inside the operation.
        """
        body: R = self._go(answer, optional=False)
        return body

    def _go(self, answer: Callable[[Question[Any]], Any], *, optional: bool) -> Any:  # noqa: ANN401 - as the steps return
        try:
            if self._question is None:
                self._question = next(self._steps)
            while True:
                try:
                    result = answer(self._question)
                except JobmeterError as error:
                    self._question = self._steps.throw(error)
                    continue
                if optional and result is None:
                    return None
                self._question = self._steps.send(result)
        except StopIteration as end:
            return end.value


def drive(steps: Generator[Question[Any], Any, R], answer: Callable[[Question[Any]], Any]) -> R:
    """Run an operation to its end; see ``Run.finish``."""
    return Run(steps).finish(answer)


def only(answer: Answer) -> Steps:
    """An operation without questions."""
    yield from ()
    return answer


class RecordJobs(msgspec.Struct, Question[int], frozen=True):
    """Write records as the caller; one that names no project is for the caller's own. Gives their number.

    Needs a writing action.
    """

    records: Records


class StopJob(msgspec.Struct, Question[Job], frozen=True):
    """Record that a job was stopped now, and give it.

    Jobmeter does not end processes: the system that runs the job does. Raises ConflictError for a job that has ended.
    """

    ref: JobRef
    reason: str = ""


class DeleteJob(msgspec.Struct, Question[Job], frozen=True):
    """Delete a job, its samples, its logs and its events; gives its last state."""

    ref: JobRef


class WriteSamples(msgspec.Struct, Question[Receipt], frozen=True):
    """Store samples as the caller. Each series names its project.

    ``rejected`` counts, by reason, the samples that the dialect itself refused, for the server's own metrics.
    """

    batch: SampleBatch
    rejected: tuple[tuple[str, int], ...] = ()


class WriteLines(msgspec.Struct, Question[Receipt], frozen=True):
    """Store log lines as the caller; ``rejected`` as for ``WriteSamples``."""

    lines: tuple[LogLine, ...]
    rejected: tuple[tuple[str, int], ...] = ()


class WriteSpans(msgspec.Struct, Question[Receipt], frozen=True):
    """Store spans of one project as the caller; ``rejected`` as for ``WriteSamples``."""

    spans: tuple[Span, ...]
    rejected: tuple[tuple[str, int], ...] = ()


class TraceTokenQuestion(msgspec.Struct, Question["TraceToken"], frozen=True):
    """Request a token that allows sending spans and log records as the caller, and nothing else."""


class TraceToken(msgspec.Struct, frozen=True):
    """A trace token, when it ends in epoch milliseconds, and the port for OTLP over gRPC (None: there is none)."""

    token: str
    expires_ms: int
    grpc_port: int | None


Figure = tuple[str, tuple[tuple[str, str], ...], int]
"""A count of the server: its name, its tags, and how many."""


class ServerQuestion(msgspec.Struct, Question[list[Figure]], frozen=True):
    """Request this server's counters since its start."""


class ShareQuestion(msgspec.Struct, Question["ShareToken"], frozen=True):
    """Request a token for the measurements of one job, valid for ``seconds``; answered by ``ShareToken``."""

    ref: JobRef
    seconds: int


class ShareToken(msgspec.Struct, frozen=True):
    """A share token, and when it ends in epoch milliseconds."""

    token: str
    expires_ms: int


class CreateShipper(msgspec.Struct, Question[Shipper], frozen=True):
    """Create a shipper of the log lines of a resource group that the caller may see to a sink of the settings."""

    resource_group: str
    sink_project: str
    logstore: str


class ShipperQuestion(msgspec.Struct, Question[Shipper], frozen=True):
    """Request the shipper of a resource group in the caller's projects."""

    resource_group: str


class DeleteShipper(msgspec.Struct, Question[Shipper], frozen=True):
    """Delete the shipper of a resource group; gives its last state."""

    resource_group: str


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of an operation, for the reference page. ``text`` says its form and its default."""

    name: str
    where: Literal["path", "query", "header", "body"]
    text: str
    required: bool = False


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a chart shows: one metric of a job over ``span`` in steps of ``step_ms``. ``replica`` is the chosen one."""

    job: Job
    metric: Metric
    span: TimeRange
    step_ms: int
    replica: str


class ViewCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call of a vendor's API that gives what a view shows, with ``KEY`` in place of the caller's token.

    ``path`` has its query, all of it percent-encoded; ``body`` is JSON. ``note`` says what of the view the API cannot
    express.
    """

    operation: str
    path: str
    header: str
    method: str = "GET"
    body: str = ""
    note: str = ""


KEY = "$JOBMETER_KEY"
"""The variable that a shell replaces with the token, which is never shown."""
BEARER = f"Authorization: Bearer {KEY}"


def target(path: str, **query: object) -> str:
    """A path whose parts are percent-encoded already, with its query."""
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path


def encoded(part: str) -> str:
    """A part of a path, percent-encoded whole."""
    return quote(part, safe="")


class GapStatus(StrEnum):
    """The status of a gap."""

    NOT_IMPLEMENTED = "notimpl"
    """It could be supported, but is not planned."""
    NOT_YET = "notyet"
    """It is going to be answered."""
    NEVER = "never"
    """It makes no sense here."""


class Gap(msgspec.Struct, frozen=True):
    """A part of the vendor's API that is not supported, and why."""

    what: str
    reason: str
    status: GapStatus = GapStatus.NOT_IMPLEMENTED


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of a vendor's API.

    ``name`` is the vendor's own, ``GetJobMetrics``; ``action`` what it does, for ``jobmeter.access``: ``metrics:read``.
    ``path`` is a template, ``/api/v1/jobs/{JobId}/metrics``. ``answer`` starts it; it raises InvalidRequestError in the
    vendor's own field names. ``rate`` is how often one key may call it, where the vendor states a limit; a setting of
    the server comes before it. ``encodings`` are the content encodings that ``answer`` decodes itself; others are
    decoded, or refused, before it is called. ``read_bytes`` estimates the additional memory of reading the body;
    ``answer`` accounts for any other memory itself, with ``Call.take``.
    """

    name: str
    action: str
    method: str
    path: str
    answer: Callable[[Call, Context], Steps]
    parameters: Sequence[Parameter]
    text: str
    body_bytes: int = _SMALL_BODY
    """Largest body that the operation takes, as sent."""
    decoded_bytes: int = _SMALL_BODY
    """Largest body after decompression; the settings may allow less."""
    read_bytes: Callable[[Call], int] = read_as_json
    by_resource: bool = False
    """True where the answer leaves out whatever the caller's policies do not allow. An operation without it refuses a
    key whose policies allow only some resources of a project."""
    rate: Rate | None = None
    encodings: frozenset[str] = frozenset()


@dataclass(frozen=True)
class OperationMaker:
    """Makes operations below ``prefix``. ``of_paths`` documents the parameters that their paths may have, once."""

    of_paths: Sequence[Parameter]
    prefix: str = ""
    rate: Rate | None = None

    def __call__(
        self,
        name: str,
        method: str,
        path: str,
        answer: Callable[[Call, Context], Steps],
        text: str,
        *parameters: Parameter,
        action: str = "jobs:read",
        by_resource: bool = False,
    ) -> Operation:
        """An operation; ``parameters`` are those besides the path's."""
        whole = self.prefix + path
        of_path = [one for one in self.of_paths if f"{{{one.name}}}" in whole]
        return Operation(
            name=name,
            action=action,
            method=method,
            path=whole,
            answer=answer,
            parameters=(*of_path, *parameters),
            text=text,
            by_resource=by_resource,
            rate=self.rate,
        )


class Match(msgspec.Struct, frozen=True):
    """An operation found for a call, with the values of its path parameters, percent-decoded.

    ``schemes`` are the credential schemes of the form that the call has; None: all of the dialect's.
    """

    operation: Operation
    path: Mapping[str, str]
    schemes: Sequence[Scheme] | None = None


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
        """The parts of the API that it does not support."""
        ...

    def match(self, call: Call) -> Match | None:
        """The operation that the call names; None when the call is not for this dialect. The body is not read yet.

        Raises NotFoundError when the call is clearly this dialect's but names no operation (kind ``path``), or has a
        wrong method (kind ``method``, ``name`` the allowed ones).
        """
        ...

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """The error in the vendor's code, body and status.

        A bug arrives as a bare JobmeterError and becomes their internal error.
        """
        ...


_STATUS: tuple[tuple[type[JobmeterError], int], ...] = (
    (LimitExceededError, 413),
    (InvalidRequestError, 400),
    (UnauthenticatedError, 401),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (ThrottledError, 429),
    (UnavailableError, 503),
    (QueryTimeoutError, 504),
)


def http_status(error: JobmeterError) -> int:
    """The status for an error of ours, where the vendor's is the usual one; 500 for a bug."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def not_negative(value: float) -> float:
    """The value, at least 0: an exporter's noise may leave a ratio of 0 slightly negative."""
    return max(0.0, value)


def rounded(value: float) -> float:
    """The value to 12 significant digits, without the rounding noise of unit conversion."""
    return float(f"{value:.12g}")


def whole(amount: float) -> int:
    """An amount rounded up to a whole number."""
    return math.ceil(rounded(amount))

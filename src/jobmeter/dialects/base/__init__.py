"""The contract of dialects: a table of operations, and pure functions between the vendor's terms and ours.

An operation is a generator: it yields questions, is sent their results, and returns the vendor's body. So it performs
no I/O, and depends on no store, no web framework and no other dialect. A later question may depend on an earlier
answer. The server identifies the caller, checks permissions and answers the questions. Adding a dialect takes one
folder and one line in ``jobmeter.dialects.registry``.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.forwarded import PublicAddress
from jobmeter.access.limit import Rate
from jobmeter.access.signatures import Scheme
from jobmeter.dialects.base.view import View, ViewCall
from jobmeter.errors import InvalidRequestError, JobmeterError
from jobmeter.ingest.receipt import Receipt
from jobmeter.ingest.sender_cache import SenderCache
from jobmeter.model.batch import SampleBatch
from jobmeter.model.job import Job
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.model.record import Records
from jobmeter.model.shipper import Shipper
from jobmeter.model.span import Span
from jobmeter.query.nodes import SILENT_MS
from jobmeter.query.request import JobRef
from jobmeter.settings import Limits
from jobmeter.wire.json_shape import count_json

R = TypeVar("R")

_LIMITS = Limits()
_SMALL_BODY = 1 << 20


def read_as_json(call: Call) -> int:
    """Estimate the bytes for reading the body as JSON, without the body itself."""
    return count_json(call.body).read_bytes


def charge_nothing(call: Call) -> int:  # noqa: ARG001 - as the other
    """Return 0 bytes: the operation counts the memory of the decoded body itself."""
    return 0


class MissingFieldError(InvalidRequestError):
    """A required parameter is absent or empty. Vendors distinguish this error from a wrong value."""


class Answer(msgspec.Struct, frozen=True):
    """A response: status, body and headers. The server adds the common headers (date, length, connection)."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"


class Context(msgspec.Struct, frozen=True):
    """The context of a call: the time, the request's id, the parameters of its path, the caller.

    ``project`` is the project of the caller's key, None for a key of all projects; ``caller`` is the key's name.
    Neither decides which data the call may read: the server decides that when it answers questions. ``limits`` bound
    the content of one request. ``senders`` caches repeated parts of requests, None without a cache. ``public`` is the
    server's address in the settings; ``public_address`` returns the one for an answer. ``silent_ms`` is the silence
    after which a node counts as down.
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
    job: str | None = None
    """Job of a job-scoped token, None for any other credential."""


Steps = Generator[Question[Any], Any, Answer]
"""A running operation. An error of a question is raised at its ``yield``."""


def ask(question: Question[R]) -> Generator[Question[Any], Any, R]:
    """Ask a question inside an operation, and return its typed result.

    >>> view = yield from ask(JobQuestion(ref))  # doctest: +SKIP
    """
    result: R = yield question
    return result


class OperationRun(Generic[R]):
    """A running operation: it waits for the result of a question, or has ended."""

    def __init__(self, steps: Generator[Question[Any], Any, R]) -> None:
        self._steps = steps
        self._question: Question[Any] | None = None

    def advance(self, from_memory: Callable[[Question[Any]], Any]) -> R | None:
        """Return the operation's result; None if ``from_memory`` returned None for one of its questions.

        It then waits for that question: ``advance`` and ``finish`` continue there. Raises as ``finish``.
        """
        body: R | None = self._go(from_memory, optional=True)
        return body

    def finish(self, answer: Callable[[Question[Any]], Any]) -> R:
        """Return the operation's result; ``answer`` answers its questions.

        Raises the operation's errors. A JobmeterError of ``answer`` is raised inside the operation.
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
    """Run an operation to its end; see ``OperationRun.finish``."""
    return OperationRun(steps).finish(answer)


def answer_with(answer: Answer) -> Steps:
    """Make an operation without questions."""
    yield from ()
    return answer


class RecordJobs(msgspec.Struct, Question[int], frozen=True):
    """Write records as the caller; a record without a project gets the caller's. Returns their number.

    Needs a writing action.
    """

    records: Records


class StopJob(msgspec.Struct, Question[Job], frozen=True):
    """Record that a job was stopped now. Returns the job.

    Jobmeter does not end processes: the system that runs the job does. Raises ConflictError for a job that has ended.
    """

    ref: JobRef
    reason: str = ""


class DeleteJob(msgspec.Struct, Question[Job], frozen=True):
    """Delete a job, its samples, its logs and its events. Returns its last state."""

    ref: JobRef


class WriteSamples(msgspec.Struct, Question[Receipt], frozen=True):
    """Store samples as the caller. Each series names its project.

    ``rejected`` counts, by reason, the samples that the dialect itself rejected, for the server's own metrics. ``sent``
    has the labels of the batch's series as their sender wrote them; they are stored with the batch and not counted.
    """

    batch: SampleBatch
    rejected: tuple[tuple[str, int], ...] = ()
    sent: SampleBatch | None = None


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
    """A trace token, its expiry in epoch milliseconds, and the port for OTLP over gRPC (None without one)."""

    token: str
    expires_ms: int
    grpc_port: int | None


Figure = tuple[str, tuple[tuple[str, str], ...], int]
"""A counter of the server: its name, its tags, and its value."""


class ServerQuestion(msgspec.Struct, Question[list[Figure]], frozen=True):
    """Request this server's counters since its start."""


class ShareQuestion(msgspec.Struct, Question["ShareToken"], frozen=True):
    """Request a token for the measurements of one job, valid for ``seconds``; answered by ``ShareToken``."""

    ref: JobRef
    seconds: int


class ShareToken(msgspec.Struct, frozen=True):
    """A share token, and its expiry in epoch milliseconds."""

    token: str
    expires_ms: int


class CreateShipper(msgspec.Struct, Question[Shipper], frozen=True):
    """Create a shipper of the log lines of a resource group that the caller may see.

    Its sink is one of the settings.
    """

    resource_group: str
    sink_project: str
    logstore: str


class ShipperQuestion(msgspec.Struct, Question[Shipper], frozen=True):
    """Request the shipper of a resource group in the caller's projects."""

    resource_group: str


class DeleteShipper(msgspec.Struct, Question[Shipper], frozen=True):
    """Delete the shipper of a resource group. Returns its last state."""

    resource_group: str


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of an operation, for the reference page. ``text`` gives its form and its default.

    ``invalid`` are values that its form excludes, ``example`` is a valid one: the contract tests send them.
    """

    name: str
    where: Literal["path", "query", "header", "body"]
    text: str
    required: bool = False
    invalid: Sequence[str] = ()
    example: str = "x"


class GapStatus(StrEnum):
    """The status of a gap."""

    NOT_IMPLEMENTED = "notimpl"
    """It could be supported, but is not planned."""
    NOT_YET = "notyet"
    """It will be supported."""
    NEVER = "never"
    """It makes no sense in Jobmeter."""


class Gap(msgspec.Struct, frozen=True):
    """A part of the vendor's API that is not supported, and the reason."""

    what: str
    reason: str
    status: GapStatus = GapStatus.NOT_IMPLEMENTED


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a vendor's API.

    ``name`` is the vendor's, ``GetJobMetrics``; ``action`` is its permission in ``jobmeter.access``: ``metrics:read``.
    ``path`` is a template, ``/api/v1/jobs/{JobId}/metrics``. ``answer`` starts it; it raises InvalidRequestError in the
    vendor's own field names. ``rate`` is the vendor's rate limit for one key, if documented; a setting of the server
    overrides it. ``encodings`` are the content encodings that ``answer`` decodes itself; other bodies are decoded, or
    rejected, before the call. ``read_bytes`` estimates the additional memory of reading the body. ``answer`` accounts
    for any other memory itself, with ``Call.take``.
    """

    name: str
    action: str
    method: str
    path: str
    answer: Callable[[Call, Context], Steps]
    parameters: Sequence[Parameter]
    text: str
    body_bytes: int = _SMALL_BODY
    """Largest accepted body, as sent."""
    decoded_bytes: int = _SMALL_BODY
    """Largest body after decompression; the settings may allow less."""
    read_bytes: Callable[[Call], int] = read_as_json
    by_resource: bool = False
    """True if the answer leaves out all data that the caller's policies do not allow.

    Without it the operation rejects a key whose policies allow only some resources of a project.
    """
    rate: Rate | None = None
    encodings: frozenset[str] = frozenset()


class Match(msgspec.Struct, frozen=True):
    """An operation found for a call, with the values of its path parameters, percent-decoded.

    ``schemes`` are the credential schemes of the form of the call; None: all of the dialect's.
    """

    operation: Operation
    path: Mapping[str, str]
    schemes: Sequence[Scheme] | None = None


class Dialect(Protocol):
    """A vendor's API."""

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
        """The accepted credential schemes, most specific first."""
        ...

    @property
    def operations(self) -> Sequence[Operation]:
        """Every supported operation."""
        ...

    @property
    def gaps(self) -> Sequence[Gap]:
        """The parts of the API that are not supported."""
        ...

    @property
    def view_call(self) -> Callable[[View], ViewCall | None]:
        """The function that returns the API's call for the data of a chart; ``offer_no_call`` if it has none."""
        ...

    def find_operation(self, call: Call) -> Match | None:
        """Return the operation of the call; None if the call is for another dialect. The body is not read yet.

        Raises NotFoundError if the call is clearly for this dialect but has no known operation (kind ``path``), or a
        wrong method (kind ``method``, ``name`` the allowed ones).
        """
        ...

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """Render the error with the vendor's code, body and status.

        A bug arrives as a bare JobmeterError and becomes the vendor's internal error.
        """
        ...


def clamp_negative(value: float) -> float:
    """Return the value, at least 0: an exporter's noise may make a ratio of 0 slightly negative."""
    return max(0.0, value)


def round_digits(value: float) -> float:
    """Round to 12 significant digits, which removes the rounding noise of unit conversion."""
    return float(f"{value:.12g}")


def round_up(amount: float) -> int:
    """Round up to a whole number."""
    return math.ceil(round_digits(amount))

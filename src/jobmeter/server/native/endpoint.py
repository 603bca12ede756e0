"""Endpoints of our own API: each declares its route, its parameters and its function in one row."""

import inspect
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import ModuleType
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.access.decide import EVERYTHING
from jobmeter.access.principal import Principal, Scope
from jobmeter.access.signatures import NATIVE, Scheme
from jobmeter.dialects.base import Answer, drive
from jobmeter.errors import InvalidRequestError
from jobmeter.model.question import Question
from jobmeter.model.series import check_job_id, check_name
from jobmeter.query.administration import AllDamageQuestion, DamageQuestion
from jobmeter.query.meter import QueryCost
from jobmeter.query.request import JobRef, NodeRef
from jobmeter.server.admission import QueuedQuestion, Ticket
from jobmeter.server.commands import perform
from jobmeter.server.exchange import MEMORY_BYTES, decode_body
from jobmeter.server.live import Feed
from jobmeter.server.native.arguments import Arguments, QueryArguments
from jobmeter.server.pipeline import AccessRule, ServedRequest, renew
from jobmeter.server.services import Services
from jobmeter.store.damage import DamagedPart
from jobmeter.store.shards.away import may_lack
from jobmeter.wire.json_shape import count_json

T = TypeVar("T")

RENEW_SECONDS = 2.0
"""Seconds between authorisation checks of a stream."""
_DAMAGE = AllDamageQuestion()
_MOST_DAMAGED = 10
"""Damaged parts that an answer names."""

NATIVE_API = "native"
"""Name of our own API among the dialects."""

SMALL_BODY = 64 * 1024
"""Largest body of most endpoints, both as sent and uncompressed."""

SAMPLES_BYTES = 64 * 1024
"""Size of a body of samples beyond which reading would block the event loop for too long, even without parsing."""


PROJECT = QueryArguments(
    "project", "Only this project. Default: every project that the key may read.", example="default"
)

_PATH_TEXTS = {
    "event": "The event's id: 32 hexadecimal digits.",
    "job": "The job's id.",
    "key": "The key's id.",
    "link": "The link's id.",
    "node": "The node's name.",
    "note": "The note's id.",
    "project": "The project.",
    "shipper": "The shipper's id.",
    "silence": "The silence's id.",
    "task": "The task's id.",
    "trace": "The trace's id: 32 hexadecimal digits.",
}


def _do_nothing() -> None:
    return


def read_json(body: bytes, kind: type[T]) -> T:
    """Decode a JSON body to a type. Raises InvalidRequestError naming the field that is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = str(error)
        where = message.rpartition("at `$")[2].rstrip("`").lstrip(".") if "at `$" in message else "body"
        raise InvalidRequestError(f"the body is not valid: {message}", where) from error


class Stream(msgspec.Struct, frozen=True):
    """Answer of any length, produced piece by piece on a thread.

    ``over`` releases other resources once the answer is sent or abandoned. A client that reads nothing for ``patience``
    seconds is disconnected.
    """

    chunks: Iterator[bytes]
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()
    over: Callable[[], None] = _do_nothing
    patience: float = 3_600.0

    def close(self) -> None:
        """Stop at once and release all resources. Not while a piece is being produced."""
        try:
            if isinstance(self.chunks, Generator):
                self.chunks.close()
        finally:
            self.over()


Result = Answer | Stream | Feed | Awaitable[Answer]
Operation = Generator[Question[Any], Any, Answer | Stream]
Work = Callable[["CallContext"], msgspec.Struct | list[Any] | Result | Operation]


class CallContext(msgspec.Struct, kw_only=True, eq=False):
    """Authorised call to an endpoint: the caller, its scope and its arguments. Do not modify."""

    services: Services
    request: ServedRequest
    call: Call
    principal: Principal
    scope: Scope
    project: str | None
    arguments: Arguments
    path: Mapping[str, str]
    most_bytes: int
    """Largest uncompressed body."""

    def ask(self, question: Question[T]) -> T:
        """Return the result of a question or command, within the caller's scope. Raises any JobmeterError."""
        result: T = perform(self.services, question, self.principal, self.scope)
        return result

    def renew(self) -> None:
        """Raise UnauthenticatedError or ForbiddenError if the caller has lost access to the answer."""
        renew(self.services, self.request)

    @property
    def projects(self) -> frozenset[str] | None:
        """Project that the call names; None for all that the caller may see."""
        return None if self.project is None else frozenset({self.project})

    def read_span(self) -> tuple[int | None, int | None]:
        """Return ``start`` and ``end`` in epoch milliseconds; ``since`` counts back from the end or from now."""
        start, end, since = self.arguments.read_times()
        if since is not None:
            start = (self.services.clock.now_ms() if end is None else end) - since
        return start, end

    def decode_body(self, kind: type[T]) -> T:
        """Decode the JSON body. Raises InvalidRequestError naming the field that is wrong."""
        body = self.read_plain_body()
        self.call.take(count_json(body).read_bytes)
        return read_json(body, kind)

    def read_plain_body(self) -> bytes:
        """Return the uncompressed body. The caller accounts for the structures decoded from it."""
        return decode_body(self.call, self.most_bytes)


class Endpoint(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Route of the API. Its path is below ``/api/jobmeter/v1``; ``action`` None needs no key.

    The docstring of its function documents it: the first line is the summary; the rest, or ``details``, is the
    description. ``work`` runs on a thread of ``lane`` after authorisation. It returns a msgspec structure or a list of
    them, answered as JSON, or an awaitable answer, awaited on the event loop's thread. A generator is an operation as
    in dialects: it runs on the event loop if memory holds all data, else on a thread. ``begin`` is tried before
    ``work``, on the event loop's thread; if it returns None, ``work`` runs. ``answer`` is the structure of the answer
    if ``work`` is not annotated with it; ``body`` is the structure of the request. With ``by_resource`` the answer
    leaves out resources that the caller's policies do not allow; without it, a key with policies for some resources
    only is refused. With ``large`` the body may be as large as the settings allow, else 64 KiB. ``schemes`` are the
    accepted credentials.
    """

    name: str
    route: str
    """Method and path: ``GET /jobs/{job}``."""
    action: str | None
    answer: type[msgspec.Struct] | None = None
    answer_type: str = "application/json"
    details: str = ""
    tag: str = ""
    queries: Sequence[QueryArguments] = ()
    body: Any = None
    body_text: str = ""
    body_type: str = "application/json"
    example: Any = None
    other_types: Sequence[str] = ()
    lane: Literal["read", "write", "control"] = "read"
    by_resource: bool = False
    large: bool = False
    schemes: Sequence[Scheme] = NATIVE
    begin: Callable[[CallContext], Awaitable[Answer] | None] | None = None
    work: Work = lambda _: Answer(204, b"")

    def __call__(self, work: Work) -> "Endpoint":
        """Return the endpoint with its function: an endpoint decorates ``work``."""
        return replace(self, work=work)

    @cached_property
    def summary(self) -> str:
        """Summary in one line, without a full stop."""
        return _documentation(self)[0].rstrip(".")

    @cached_property
    def text(self) -> str:
        """Documentation below the summary."""
        return self.details or " ".join(_documentation(self)[2].split())

    @cached_property
    def method(self) -> str:
        """HTTP method. A GET route also answers HEAD."""
        return self.route.partition(" ")[0]

    @cached_property
    def path(self) -> str:
        """Path below the API's base, with parameters in braces."""
        return self.route.partition(" ")[2]

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Parameters of the path with their descriptions."""
        return {name: _PATH_TEXTS[name] for name in re.findall(r"{(\w+)}", self.path)}

    @cached_property
    def answer_kind(self) -> Any:  # noqa: ANN401 - a type
        """Type of the answer's body: a structure, or a list of structures."""
        return self.answer or inspect.get_annotations(self.work)["return"]

    @cached_property
    def is_operation(self) -> bool:
        """True if ``work`` is a generator."""
        return inspect.isgeneratorfunction(self.work)

    @cached_property
    def is_question(self) -> bool:
        """True if the call counts against the query budget of a key."""
        return self.action is not None and self.lane == "read"

    @cached_property
    def of_project(self) -> bool:
        """True if the call may name a project."""
        return PROJECT in self.queries

    @cached_property
    def rule(self) -> AccessRule:
        """Access rule: credentials and permission that a caller needs."""
        return AccessRule(
            self.name, self.action, self.schemes, is_question=self.is_question, by_resource=self.by_resource
        )

    @cached_property
    def allowed(self) -> Mapping[str, QueryArguments]:
        """Parameters in ``queries`` by name."""
        return {query.name: query for query in self.queries}

    @cached_property
    def memory_bytes(self) -> int:
        """Largest body that is tried from memory; -1 for never. Samples need no parsing."""
        if self.begin is not None:
            return SAMPLES_BYTES
        return MEMORY_BYTES if self.is_operation else -1


def _documentation(endpoint: Endpoint) -> tuple[str, str, str]:
    return inspect.cleandoc(endpoint.work.__doc__ or "").partition("\n")


def list_endpoints(module: ModuleType) -> Sequence[Endpoint]:
    """Return the endpoints that a module declares, in order, under its ``HEADING`` unless they have their own."""
    declared = [one for one in vars(module).values() if isinstance(one, Endpoint)]
    return [replace(one, tag=one.tag or module.HEADING) for one in declared]


def make_job_ref(context: CallContext) -> JobRef:
    """Reference to the job in the path."""
    return JobRef(check_job_id(context.path["job"], "job"), context.project)


def make_node_ref(context: CallContext) -> NodeRef:
    """Reference to the node in the path and the cluster in the query."""
    name, cluster = check_name(context.path["node"], "node"), context.arguments.read_text("cluster") or None
    return NodeRef(name, cluster, context.project)


def run_authorised(
    services: Services, endpoint: Endpoint, context: CallContext, spent: Callable[[], QueryCost]
) -> Result | QueuedQuestion[Result]:
    """Answer an authorised call, or return the question if it has to queue."""
    if not endpoint.is_question:
        return work(endpoint, context)
    return services.admission.begin(context.principal.id, spent(), partial(_run_admitted, endpoint, context))


def _run_admitted(endpoint: Endpoint, context: CallContext, ticket: Ticket) -> Result:
    streamed = False
    try:
        result = ticket.work(partial(work, endpoint, context))
        if isinstance(result, Stream):
            ticket.lift_row_limit()
            result, streamed = _charge_stream(result, ticket), True
        return result
    finally:
        if not streamed:
            ticket.end()


def _charge_stream(stream: Stream, ticket: Ticket) -> Stream:
    """Charge a stream's work to its ticket, and end the ticket with the stream."""

    def chunks() -> Generator[bytes]:
        while (piece := ticket.work(partial(next, stream.chunks, None))) is not None:
            yield piece

    def over() -> None:
        try:
            stream.close()
        finally:
            ticket.end()

    return replace(stream, chunks=chunks(), over=over)


def _check_access_again(stream: Stream, context: CallContext) -> Stream:
    """Make a stream fail once the caller has lost access."""

    def chunks() -> Generator[bytes]:
        clock = context.services.clock
        due = clock.monotonic() + RENEW_SECONDS
        for piece in stream.chunks:
            if clock.monotonic() >= due:
                context.renew()
                due = clock.monotonic() + RENEW_SECONDS
            yield piece

    return replace(stream, chunks=chunks(), over=stream.close)


def work(endpoint: Endpoint, context: CallContext) -> Result:
    """Answer an authorised call. An answer about several jobs may lack the rows of shards that are away."""
    damaged: Sequence[DamagedPart] = ()
    if endpoint.is_question:
        damaged = context.services.executor.answer_from_memory(_DAMAGE, EVERYTHING) or ()
    with may_lack(damaged) as missing:
        answer = endpoint.work(context)
        if isinstance(answer, Generator):
            answer = drive(answer, context.ask)
    if isinstance(answer, Stream):
        answer = _check_access_again(answer, context)
    if not isinstance(answer, Answer | Stream | Feed | Awaitable):
        answer = Answer(200, msgspec.json.encode(answer))
    subject = _subject(context)
    if not endpoint.is_question or not isinstance(answer, Answer | Stream):
        return answer
    about = [] if subject is None else context.ask(DamageQuestion(subject))
    return _add_damage_headers(answer, list(dict.fromkeys((*missing.left_out.values(), *about))))


def _add_damage_headers(answer: Answer | Stream, damaged: Sequence[DamagedPart]) -> Result:
    """Add an ``X-Jobmeter-Damaged`` header for each damaged part, at most ten."""
    headers = tuple(("X-Jobmeter-Damaged", part.summary) for part in damaged[:_MOST_DAMAGED])
    return replace(answer, headers=(*answer.headers, *headers)) if headers else answer


def _subject(context: CallContext) -> JobRef | NodeRef | None:
    """Job or node in the path, whose samples are in the answer."""
    if "job" in context.path:
        return JobRef(context.path["job"], context.project)
    return NodeRef(context.path["node"]) if "node" in context.path else None

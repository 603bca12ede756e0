"""What an endpoint of our own API is: its route, its parameters and the function that answers it, in one row."""

import inspect
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.access.principal import Principal, Scope
from jobmeter.access.signatures import NATIVE, Scheme
from jobmeter.dialects.base import Answer, drive
from jobmeter.errors import InvalidRequestError
from jobmeter.model.question import Question
from jobmeter.model.series import NO_JOB, check_job_id, check_name, job_key
from jobmeter.query.meter import Spent
from jobmeter.query.request import JobRef, NodeRef
from jobmeter.server.admission import Slot, Waiting
from jobmeter.server.exchange import MEMORY_BYTES, decoded_body
from jobmeter.server.live import Feed
from jobmeter.server.native.arguments import Arguments, Query
from jobmeter.server.pipeline import AccessRule, Request, renew
from jobmeter.server.services import Services
from jobmeter.store.damage import DamagedPart
from jobmeter.wire.json_shape import shape_of

T = TypeVar("T")

RENEW_SECONDS = 2.0
"""How long a stream of any length goes on before its caller is authorised again."""
_MOST_DAMAGED = 10
"""Damaged parts that one answer names."""

NATIVE_API = "native"
"""The name of our own API among those of dialects."""

SMALL_BODY = 64 * 1024
"""Largest body of most endpoints, as sent and uncompressed."""

SAMPLES_BYTES = 64 * 1024
"""Size of a body of samples beyond which reading it blocks the event loop for too long, even without parsing."""


PROJECT = Query("project", "Only this project. Default: every project that the key may read.", example="default")

_PATH_TEXTS = {
    "event": "The event's id: 32 hexadecimal digits.",
    "job": "The job's id.",
    "key": "The key's id.",
    "link": "The link's id.",
    "node": "The node's name.",
    "project": "The project.",
    "shipper": "The shipper's id.",
    "task": "The task's id.",
    "trace": "The trace's id: 32 hexadecimal digits.",
}


def _nothing() -> None:
    return


def read_json(body: bytes, kind: type[T]) -> T:
    """A JSON body as that type. Raises InvalidRequestError naming the field that is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = str(error)
        where = message.rpartition("at `$")[2].rstrip("`").lstrip(".") if "at `$" in message else "body"
        raise InvalidRequestError(f"the body is not valid: {message}", where) from error


class Stream(msgspec.Struct, frozen=True):
    """An answer of any length, produced piece by piece on a thread.

    ``over`` is called once it is sent or given up, for what it holds beside its pieces. A client that takes nothing for
    ``patience`` seconds is cut off.
    """

    chunks: Iterator[bytes]
    content_type: str
    headers: tuple[tuple[str, str], ...] = ()
    over: Callable[[], None] = _nothing
    patience: float = 3_600.0

    def close(self) -> None:
        """Stop, wherever it is, and let go of everything. Not while a piece is being produced."""
        try:
            if isinstance(self.chunks, Generator):
                self.chunks.close()
        finally:
            self.over()


Result = Answer | Stream | Feed | Awaitable[Answer]
Operation = Generator[Question[Any], Any, Answer | Stream]


class CallContext(msgspec.Struct, kw_only=True, eq=False):
    """An authorised call to an endpoint: the caller, its scope, and its arguments. Immutable by convention."""

    services: Services
    request: Request
    call: Call
    principal: Principal
    scope: Scope
    project: str | None
    arguments: Arguments
    path: Mapping[str, str]
    most_bytes: int
    """Largest body, uncompressed."""

    def renew(self) -> None:
        """Raise UnauthenticatedError or ForbiddenError once the caller may not see the answer any more."""
        renew(self.services, self.request)

    @property
    def projects(self) -> frozenset[str] | None:
        """The project that the call names, None for all that the caller may see."""
        return None if self.project is None else frozenset({self.project})

    def span(self) -> tuple[int | None, int | None]:
        """``start`` and ``end`` in epoch milliseconds, as far as given; ``since`` counts from the end, or from now."""
        start, end, since = self.arguments.times()
        if since is not None:
            start = (self.services.clock.now_ms() if end is None else end) - since
        return start, end

    def body(self, kind: type[T]) -> T:
        """The JSON body as that type. Raises InvalidRequestError naming the field that is wrong."""
        body = self.plain_body()
        self.call.take(shape_of(body).read_bytes)
        return read_json(body, kind)

    def plain_body(self) -> bytes:
        """The body, uncompressed. What it is read into is for the caller to account for."""
        return decoded_body(self.call, self.most_bytes)


class Endpoint(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One route. Its path is below ``/api/jobmeter/v1``; ``action`` None needs no key.

    The docstring of its function documents it: a line, and what is below that or in ``details``.
    ``work`` runs on a thread of ``lane`` once the caller is let in; a msgspec structure that it gives, or a list of
    them, is answered as JSON, and an answer that is yet to come is awaited on the event loop's thread. A generator is
    an operation as dialects have them: it is answered on the event loop where memory holds everything that it asks for,
    else on a thread. ``begin`` is tried before ``work`` on the event loop's thread; where it gives None ``work`` does
    it. ``answer`` is the structure of the answer where ``work`` is not annotated with it, ``body`` that of the request.
    ``by_resource``: its answer leaves out whatever the caller's policies do not allow; without it a key whose policies
    allow some resources of a project alone is refused. ``large``: the body may be as large as the settings allow, else
    64 KiB. ``schemes`` are the credentials it takes.
    """

    name: str
    route: str
    """Method and path: ``GET /jobs/{job}``."""
    action: str | None
    work: Callable[[CallContext], msgspec.Struct | list[Any] | Result | Operation]
    answer: type[msgspec.Struct] | None = None
    answer_type: str = "application/json"
    details: str = ""
    tag: str = ""
    queries: Sequence[Query] = ()
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

    @cached_property
    def summary(self) -> str:
        """What it does, in one line without a full stop."""
        return _documentation(self)[0].rstrip(".")

    @cached_property
    def text(self) -> str:
        """The documentation below the summary."""
        return self.details or " ".join(_documentation(self)[2].split())

    @cached_property
    def method(self) -> str:
        """The method: HEAD is as GET."""
        return self.route.partition(" ")[0]

    @cached_property
    def path(self) -> str:
        """The path below the API's base, its parameters in braces."""
        return self.route.partition(" ")[2]

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """The parameters of the path with their texts."""
        return {name: _PATH_TEXTS[name] for name in re.findall(r"{(\w+)}", self.path)}

    @cached_property
    def answer_kind(self) -> Any:  # noqa: ANN401 - a type
        """What the body of its answer is: a structure, or a list of one."""
        return self.answer or inspect.get_annotations(self.work)["return"]

    @cached_property
    def is_operation(self) -> bool:
        """True where ``work`` gives a generator."""
        return inspect.isgeneratorfunction(self.work)

    @cached_property
    def is_question(self) -> bool:
        """True for a question that is counted against the budget of a key."""
        return self.action is not None and self.lane == "read"

    @cached_property
    def of_project(self) -> bool:
        """True where a project may be named."""
        return PROJECT in self.queries

    @cached_property
    def rule(self) -> AccessRule:
        """Who may call it."""
        return AccessRule(
            self.name, self.action, self.schemes, is_question=self.is_question, by_resource=self.by_resource
        )

    @cached_property
    def allowed(self) -> Mapping[str, Query]:
        """``queries`` by name."""
        return {query.name: query for query in self.queries}

    @cached_property
    def memory_bytes(self) -> int:
        """Largest body with which it is tried from memory, -1 for never. Samples need no parsing."""
        if self.begin is not None:
            return SAMPLES_BYTES
        return MEMORY_BYTES if self.is_operation else -1


def _documentation(endpoint: Endpoint) -> tuple[str, str, str]:
    return inspect.cleandoc(endpoint.work.__doc__ or "").partition("\n")


def tagged(tag: str, *endpoints: Endpoint) -> Sequence[Endpoint]:
    """The endpoints under one heading of the documentation, but those that name another."""
    return tuple(replace(one, tag=one.tag or tag) for one in endpoints)


def job_ref(context: CallContext) -> JobRef:
    """The job that the path names."""
    return JobRef(check_job_id(context.path["job"], "job"), context.project)


def node_ref(context: CallContext) -> NodeRef:
    """The node that the path names, of the cluster that the query names."""
    name, cluster = check_name(context.path["node"], "node"), context.arguments.text("cluster") or None
    return NodeRef(name, cluster, context.project)


def admitted_run(
    services: Services, endpoint: Endpoint, context: CallContext, spent: Callable[[], Spent]
) -> Result | Waiting[Result]:
    """The answer to an authorised call, or work that waits for admission."""
    if not endpoint.is_question:
        return work(endpoint, context)
    return services.admission.begin(context.principal.id, spent(), partial(_admitted_run, endpoint, context))


def _admitted_run(endpoint: Endpoint, context: CallContext, turn: Slot) -> Result:
    lasting = False
    try:
        result = turn.work(partial(work, endpoint, context))
        if isinstance(result, Stream):
            turn.lasting()
            result, lasting = _accounted(result, turn), True
        return result
    finally:
        if not lasting:
            turn.end()


def _accounted(stream: Stream, turn: Slot) -> Stream:
    """The same stream, its work on the account of a turn that ends when it is over."""

    def chunks() -> Generator[bytes]:
        while (piece := turn.work(partial(next, stream.chunks, None))) is not None:
            yield piece

    def over() -> None:
        try:
            stream.close()
        finally:
            turn.end()

    return replace(stream, chunks=chunks(), over=over)


def _renewed(stream: Stream, context: CallContext) -> Stream:
    """Return the same stream, which fails once the caller may not see it any more."""

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
    """The answer to an authorised call."""
    answer = endpoint.work(context)
    if isinstance(answer, Generator):
        executor = context.services.executor
        answer = drive(answer, lambda question: executor.run(question, context.scope))
    if isinstance(answer, Stream):
        answer = _renewed(answer, context)
    if not isinstance(answer, Answer | Stream | Feed | Awaitable):
        answer = Answer(200, msgspec.json.encode(answer))
    damaged = context.services.store.damaged()
    return _warned(answer, damaged, context) if damaged and endpoint.is_question else answer


def _warned(answer: Result, damaged: Sequence[DamagedPart], context: CallContext) -> Result:
    """The same answer with a header ``X-Jobmeter-Damaged`` for each part that may have held samples of its job or node.

    The first ten of them.
    """
    keys = _job_keys(context)
    touching = [part for part in damaged if any(map(part.may_concern, keys))]
    headers = tuple(("X-Jobmeter-Damaged", part.summary) for part in touching[:_MOST_DAMAGED])
    return replace(answer, headers=(*answer.headers, *headers)) if isinstance(answer, Answer | Stream) else answer


def _job_keys(context: CallContext) -> Sequence[int]:
    """The job keys whose samples are in an answer; none when it is not about a job or a node."""
    if "job" in context.path:
        projects = context.scope.projects if context.project is None else frozenset({context.project})
        heads = context.services.registry.job_head(projects, context.path["job"], context.services.clock.now_ms())
        return [job_key(head.project, head.id) for head in heads]
    return (NO_JOB,) if "node" in context.path else ()

"""What an endpoint of our own API is: its documentation and the function that answers it, in one row."""

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

import msgspec

from jobmeter.access.call import Call, read_parameters
from jobmeter.access.principal import Principal
from jobmeter.access.scope import Scope
from jobmeter.access.signatures import NATIVE, Scheme
from jobmeter.dialects.base import Answer, drive
from jobmeter.errors import InvalidRequestError
from jobmeter.model.question import Asks
from jobmeter.model.series import NOBODY, check_project, job_key
from jobmeter.query.spent import Spent
from jobmeter.server.exchange import decoded_body
from jobmeter.server.gate import ANYBODY, NOTHING, allowed, authenticated, within_budget
from jobmeter.server.live import Feed
from jobmeter.server.native.arguments import Arguments, Query
from jobmeter.server.services import Services
from jobmeter.server.turns import Turn, Waiting
from jobmeter.store.damage import DamagedPart
from jobmeter.wire.json_shape import shape_of

T = TypeVar("T")

_QUERIES, _SHORT = 2_048, 1_024
"""How many queries stay read, as people who look at one page ask the same, and how many characters those may have."""

_MOST_DAMAGED = 10
"""Damaged parts that one answer names."""

SMALL_BODY = 64 * 1024
"""Largest body of most endpoints, as sent and uncompressed."""

PROJECT = Query("project", "Only this project. Default: every project that the key may read.", example="default")


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


@dataclass(frozen=True, slots=True)
class Stream:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A call to an endpoint, after it was let in: who asks, what they may see, and what they ask for."""

    services: Services
    call: Call
    request_id: str
    principal: Principal
    scope: Scope
    project: str | None
    arguments: Arguments
    path: Mapping[str, str]
    spent: Spent
    most_bytes: int
    """Largest body, uncompressed."""

    def body(self, kind: type[T]) -> T:
        """The JSON body as that type. Raises InvalidRequestError naming the field that is wrong."""
        body = self.plain_body()
        self.call.take(shape_of(body).read_bytes)
        return read_json(body, kind)

    def plain_body(self) -> bytes:
        """The body, uncompressed. What it is read into is for the caller to account for."""
        return decoded_body(self.call, self.most_bytes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Endpoint:
    """One route. ``path`` is below ``/api/jobmeter/v1``; ``action`` None needs no key.

    ``steps`` is an operation as dialects have them: it is answered on the event loop where memory holds everything
    that it asks for, else on a thread. ``work`` is for what has none: it runs on a thread of ``lane`` once the caller
    is let in; a msgspec structure that it gives, or with ``many`` a list of them, is answered as JSON, and an answer
    that is yet to come is awaited on the event loop's thread. ``begin`` is tried before it on the event loop's thread
    (NotAtOnceError: ``work`` is to do it). ``answer`` documents the structure, ``body`` that of the request.
    ``large``: the body may be as large as the settings allow, else 64 KiB. ``schemes`` are the credentials it takes.
    """

    name: str
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    action: str | None
    summary: str
    work: Callable[[Ask], msgspec.Struct | list[Any] | Result] | None = None
    steps: Callable[[Ask], Generator[Asks[Any], Any, "Answer | Stream"]] | None = None
    answer: type[msgspec.Struct]
    many: bool = False
    answer_type: str = "application/json"
    text: str = ""
    tag: str
    queries: Sequence[Query] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    body_text: str = ""
    body_type: str = "application/json"
    example: Any = None
    other_types: Sequence[str] = ()
    lane: Literal["read", "write", "control"] = "read"
    large: bool = False
    schemes: Sequence[Scheme] = NATIVE
    begin: Callable[[Ask], Awaitable[Answer]] | None = None

    @property
    def asks(self) -> bool:
        """True for a question of somebody: it is on the budget of their key."""
        return self.action is not None and self.lane == "read"


def let_in(
    services: Services,
    endpoint: Endpoint,
    call: Call,
    request_id: str,
    path: Mapping[str, str],
    *,
    at_once: bool = False,
) -> Ask:
    """Check the credential, then the parameters, then what the key may do: a stranger learns nothing of the rest.

    Raises UnauthenticatedError, InvalidRequestError, ForbiddenError, ThrottledError. ``at_once``: NotAtOnceError where
    the registry would have to be asked or told.
    """
    principal, scope = ANYBODY, NOTHING
    if endpoint.action is not None:
        principal = authenticated(services, call, request_id, endpoint.schemes, endpoint.name, at_once=at_once)
    arguments = _arguments(endpoint, call.query)
    named = path.get("project") or (arguments.text("project") if PROJECT in endpoint.queries else "")
    project = check_project(named) if named else None
    if endpoint.action is not None:
        scope = allowed(services, call, request_id, principal, endpoint.action, project)
    if endpoint.asks:
        within_budget(services, call, request_id, principal, endpoint.name)
    return Ask(
        services=services,
        call=call,
        request_id=request_id,
        principal=principal,
        scope=scope,
        project=project,
        arguments=arguments,
        path=path,
        spent=services.turns.account(),
        most_bytes=services.settings.limits.decoded_bytes if endpoint.large else SMALL_BODY,
    )


def _arguments(endpoint: Endpoint, query: str) -> Arguments:
    """The parameters of a query. Raises InvalidRequestError."""
    return (_kept if len(query) <= _SHORT else _read)(endpoint, query)


def _read(endpoint: Endpoint, query: str) -> Arguments:
    return Arguments(endpoint.queries, read_parameters(query))


_kept = lru_cache(_QUERIES)(_read)


def in_turn(services: Services, endpoint: Endpoint, ask: Ask) -> Result | Waiting[Result]:
    """The answer to whoever was let in; or what has to wait for its turn."""
    if not endpoint.asks:
        return work(endpoint, ask)
    return services.turns.begin(ask.principal.id, ask.spent, partial(_in_turn, endpoint, ask))


def _in_turn(endpoint: Endpoint, ask: Ask, turn: Turn) -> Result:
    lasting = False
    try:
        result = turn.work(partial(work, endpoint, ask))
        if isinstance(result, Stream):
            turn.lasting()
            result, lasting = _accounted(result, turn), True
        return result
    finally:
        if not lasting:
            turn.end()


def _accounted(stream: Stream, turn: Turn) -> Stream:
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


def work(endpoint: Endpoint, ask: Ask) -> Result:
    """The answer to whoever was let in."""
    result = _worked(endpoint, ask)
    answer = Answer(200, msgspec.json.encode(result)) if isinstance(result, msgspec.Struct | list) else result
    damaged = ask.services.store.damaged()
    return _warned(answer, damaged, ask) if damaged and endpoint.asks else answer


def _worked(endpoint: Endpoint, ask: Ask) -> msgspec.Struct | list[Any] | Result:
    if endpoint.steps is not None:
        executor = ask.services.executor
        return drive(endpoint.steps(ask), lambda question: executor.run(question, ask.scope))
    if endpoint.work is None:
        raise TypeError(f"endpoint {endpoint.name} does nothing")
    return endpoint.work(ask)


def _warned(answer: Result, damaged: Sequence[DamagedPart], ask: Ask) -> Result:
    """The same answer with a header ``X-Jobmeter-Damaged`` for each part that may have held samples of its job or node.

    The first ten of them.
    """
    keys = _job_keys(ask)
    touching = [part for part in damaged if any(map(part.may_hold, keys))]
    headers = tuple(("X-Jobmeter-Damaged", part.summary) for part in touching[:_MOST_DAMAGED])
    return replace(answer, headers=(*answer.headers, *headers)) if isinstance(answer, Answer | Stream) else answer


def _job_keys(ask: Ask) -> Sequence[int]:
    """The job keys whose samples an answer tells; none where it is not about a job or a node."""
    if "job" in ask.path:
        projects = ask.scope.projects if ask.project is None else frozenset({ask.project})
        heads = ask.services.registry.job_head(projects, ask.path["job"], ask.services.clock.now_ms())
        return [job_key(head.project, head.id) for head in heads]
    return (NOBODY,) if "node" in ask.path else ()

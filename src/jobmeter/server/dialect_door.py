"""The door of every dialect: match, let in, answer what the operation asks. The dialect does the words."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from jobmeter.access.authenticate import Credential
from jobmeter.access.call import Call
from jobmeter.access.decide import writes
from jobmeter.access.principal import Principal
from jobmeter.access.scope import Scope
from jobmeter.dialects.base import Answer, Context, Dialect, Match, Operation, Run
from jobmeter.errors import JobmeterError, NotAtOnceError
from jobmeter.query.spent import Spent
from jobmeter.server.commands import from_memory, perform
from jobmeter.server.exchange import AT_ONCE_BYTES, Exchange, decoded_body
from jobmeter.server.gate import allowed, authenticated, identified, within_budget
from jobmeter.server.services import Services
from jobmeter.server.turns import Waiting, in_turn
from jobmeter.settings import Limits

Asker = tuple[Principal, Scope]
Begun = tuple[Run[Answer], Asker, Spent]


@dataclass(frozen=True, slots=True)
class PlainVisit:
    """See ``jobmeter.server.edge.Visit``: one for anybody, who needs no key and sends no body."""

    serve: Callable[[Exchange], Awaitable[None]]
    body_bytes: int = 0
    at_once_bytes: int = AT_ONCE_BYTES

    async def admit(self, exchange: Exchange) -> None:
        """See ``Visit.admit``."""

    def at_once(self, exchange: Exchange) -> Answer | None:
        """See ``Visit.at_once``."""


class DialectVisit:
    """See ``jobmeter.server.edge.Visit``. What was begun at once is gone on with on a thread.

    Who signed a request is let in when its body is read as well, who sent a token before that.
    """

    at_once_bytes = AT_ONCE_BYTES
    _credential: Credential | None = None
    _asker: Asker | None = None
    _begun: Begun | None = None

    def __init__(self, dialect: Dialect, services: Services, match: Match) -> None:
        self.body_bytes = match.operation.body_bytes
        self._dialect = dialect
        self._services = services
        self._match = match
        self._schemes = dialect.schemes if match.schemes is None else match.schemes
        self._lane = services.lanes.write if writes(match.operation.action) else services.lanes.read

    async def admit(self, exchange: Exchange) -> None:
        """See ``Visit.admit``."""
        try:
            self._admit(exchange, at_once=True)
        except NotAtOnceError:
            await self._lane.run(partial(self._admit, exchange, at_once=False))

    def _admit(self, exchange: Exchange, *, at_once: bool) -> None:
        call, name = exchange.call, self._match.operation.name
        self._credential = identified(self._services, call, exchange.request_id, self._schemes, name, at_once=at_once)
        if not self._credential.signed:
            self._asker = self._let_in(exchange, at_once=at_once)

    def _let_in(self, exchange: Exchange, *, at_once: bool) -> Asker:
        services, call, request_id, operation = (
            self._services,
            exchange.call,
            exchange.request_id,
            self._match.operation,
        )
        principal = authenticated(
            services,
            call,
            request_id,
            self._schemes,
            operation.name,
            operation.rate,
            credential=self._credential,
            at_once=at_once,
        )
        scope = allowed(services, call, request_id, principal, operation.action, None)
        if not writes(operation.action):
            within_budget(services, call, request_id, principal, operation.name)
        return principal, scope

    def at_once(self, exchange: Exchange) -> Answer | None:
        """See ``Visit.at_once``."""
        services = self._services
        if writes(self._match.operation.action):
            return None
        try:
            run, (principal, scope), spent = self._begun = self._begin(exchange, at_once=True)
        except NotAtOnceError:
            return None
        recall = partial(from_memory, services, scope=scope)
        return services.turns.recall(principal.id, spent, lambda: run.advance(recall))

    async def serve(self, exchange: Exchange) -> None:
        """See ``Visit.serve``."""
        work = partial(exchange.during, partial(self._answer, exchange))
        await exchange.reply(await in_turn(self._services.turns, self._lane, work))

    def _answer(self, exchange: Exchange) -> Answer | Waiting[Answer]:
        services = self._services
        run, asker, spent = self._begun or self._begin(exchange, at_once=False)
        answer = partial(run.finish, lambda question: perform(services, question, *asker))
        if writes(self._match.operation.action):
            return answer()
        return services.turns.begin(asker[0].id, spent, lambda turn: turn.whole(answer))

    def _begin(self, exchange: Exchange, *, at_once: bool) -> Begun:
        services, operation = self._services, self._match.operation
        asker = self._asker or self._let_in(exchange, at_once=at_once)
        call = exchange.call
        if call.body:
            call = _readable(call, operation, services.settings.limits)
        context = Context(
            services.clock.now_ms(),
            exchange.request_id,
            self._match.path,
            project=asker[0].project,
            caller=asker[0].name,
            limits=services.settings.limits,
        )
        return Run(operation.answer(call, context)), asker, services.turns.account()


def _readable(call: Call, operation: Operation, limits: Limits) -> Call:
    """The call with its body uncompressed, and what reading it takes accounted for.

    Signatures cover the body as sent; an operation reads it uncompressed.
    """
    encoding = call.header("content-encoding").strip().lower()
    if encoding and encoding not in operation.encodings:
        call = replace(call, body=decoded_body(call, min(operation.decoded_bytes, limits.decoded_bytes)))
    call.take(operation.read_bytes(call))
    return call


class DialectDoor:
    """See ``jobmeter.server.edge.Door``."""

    def __init__(self, dialect: Dialect, services: Services) -> None:
        self.name = dialect.name
        self._dialect = dialect
        self._services = services

    def open(self, call: Call) -> DialectVisit | None:
        """See ``Door.open``."""
        match = self._dialect.match(call)
        return None if match is None else DialectVisit(self._dialect, self._services, match)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:
        """See ``Door.refuse``."""
        return self._dialect.render_error(call, Context(self._services.clock.now_ms(), request_id), error)

"""The door of every dialect: match, let in, answer what the operation asks. The dialect does the words."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from jobmeter.access.call import Call
from jobmeter.access.decide import writes
from jobmeter.access.principal import Principal
from jobmeter.access.scope import Scope
from jobmeter.dialects.base import Answer, Context, Dialect, Match, Run
from jobmeter.errors import JobmeterError, NotAtOnceError
from jobmeter.query.spent import Spent
from jobmeter.server.commands import perform
from jobmeter.server.exchange import AT_ONCE_BYTES, Exchange, decoded_body
from jobmeter.server.gate import allowed, authenticated, within_budget
from jobmeter.server.services import Services
from jobmeter.server.turns import Waiting, in_turn

Asker = tuple[Principal, Scope]
Begun = tuple[Run, Asker, Spent]


@dataclass(frozen=True, slots=True)
class PlainVisit:
    """See ``jobmeter.server.edge.Visit``: one that always takes its time."""

    body_bytes: int
    serve: Callable[[Exchange], Awaitable[None]]
    at_once_bytes: int = AT_ONCE_BYTES

    def at_once(self, exchange: Exchange) -> Answer | None:
        """See ``Visit.at_once``."""


class DialectVisit:
    """See ``jobmeter.server.edge.Visit``. What was begun at once is gone on with on a thread."""

    at_once_bytes = AT_ONCE_BYTES

    def __init__(self, dialect: Dialect, services: Services, match: Match) -> None:
        self.body_bytes = match.operation.body_bytes
        self._dialect = dialect
        self._services = services
        self._match = match
        self._begun: Begun | None = None

    def at_once(self, exchange: Exchange) -> Answer | None:
        """See ``Visit.at_once``."""
        services = self._services.at_once
        if services is None or writes(self._match.operation.action):
            return None
        try:
            run, asker, spent = self._begun = self._begin(services, exchange)
            return services.turns.at_once(
                asker[0].id, spent, lambda: run.go_on(lambda question: perform(services, question, *asker))
            )
        except NotAtOnceError:
            return None

    async def serve(self, exchange: Exchange) -> None:
        """See ``Visit.serve``."""
        services = self._services
        lane = services.lanes.write if writes(self._match.operation.action) else services.lanes.read
        await exchange.reply(await in_turn(services.turns, lane, partial(self._answer, exchange)))

    def _answer(self, exchange: Exchange) -> Answer | Waiting[Answer]:
        services = self._services
        run, asker, spent = self._begun or self._begin(services, exchange)
        answer = partial(run.go_on, lambda question: perform(services, question, *asker))
        if writes(self._match.operation.action):
            return answer()
        return services.turns.begin(asker[0].id, spent, lambda turn: turn.whole(answer))

    def _begin(self, services: Services, exchange: Exchange) -> Begun:
        call, request_id, operation = exchange.call, exchange.request_id, self._match.operation
        schemes = self._dialect.schemes if self._match.schemes is None else self._match.schemes
        principal = authenticated(services, call, request_id, schemes, operation.name, operation.rate)
        scope = allowed(services, call, request_id, principal, operation.action, None)
        if not writes(operation.action):
            within_budget(services, call, request_id, principal, operation.name)
        # Signatures cover the body as sent; an operation reads it uncompressed.
        encoding = call.header("content-encoding").strip().lower()
        if encoding and encoding not in operation.encodings:
            call = replace(call, body=decoded_body(call, services.settings.limits.decoded_bytes))
        context = Context(
            services.clock.now_ms(), request_id, self._match.path, project=principal.project, caller=principal.name
        )
        return Run(operation.answer(call, context)), (principal, scope), services.turns.account()


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

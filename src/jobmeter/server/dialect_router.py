"""The router of every dialect: matches the path and runs the operation."""

from dataclasses import replace
from functools import partial

from jobmeter.access.call import Call
from jobmeter.access.decide import writes
from jobmeter.access.principal import Principal
from jobmeter.dialects.base import Answer, Context, Dialect, Match, Operation, Run
from jobmeter.errors import JobmeterError
from jobmeter.model.time import SECOND
from jobmeter.query.meter import Spent
from jobmeter.server.admission import Waiting
from jobmeter.server.commands import perform
from jobmeter.server.exchange import MEMORY_BYTES, Exchange, decoded_body
from jobmeter.server.pipeline import NOTHING, AccessRule, Request
from jobmeter.server.services import Services
from jobmeter.settings import Limits


class DialectHandler:
    """See ``jobmeter.server.pipeline.Handler``. A worker continues what was begun from memory."""

    _begun: tuple[Run[Answer], Spent] | None = None

    def __init__(self, dialect: Dialect, services: Services, match: Match) -> None:
        operation = match.operation
        changes = writes(operation.action)
        self.services = services
        self.rule = AccessRule(
            operation.name,
            operation.action,
            dialect.schemes if match.schemes is None else match.schemes,
            operation.rate,
            is_question=not changes,
            by_resource=operation.by_resource,
        )
        self.lane = services.lanes.write if changes else services.lanes.read
        self.body_bytes = operation.body_bytes
        self.memory_bytes = -1 if changes else MEMORY_BYTES
        self._match = match

    def project(self, call: Call) -> str | None:  # noqa: ARG002 - a handler's shape
        """See ``Handler.project``: the key's own, or all that it sees."""
        return None

    def from_memory(self, request: Request) -> Answer | None:
        """See ``Handler.from_memory``."""
        services, scope = self.services, request.scope or NOTHING
        run, spent = self._begun = self._begin(request)
        with services.admission.from_memory(request.principal.id, spent) as attempt:
            found = run.advance(partial(services.executor.from_memory, scope=scope))
            attempt.answered = found is not None
        return found

    def work(self, request: Request) -> Answer | Waiting[Answer]:
        """See ``Handler.work``."""
        services, principal, scope = self.services, request.principal, request.scope or NOTHING
        run, spent = self._begun or self._begin(request)

        def answer() -> Answer:
            return run.finish(lambda question: perform(services, question, principal, scope))

        if not self.rule.is_question:
            return answer()
        return services.admission.begin(principal.id, spent, lambda turn: turn.whole(answer))

    async def send(self, result: Answer, exchange: Exchange) -> None:
        """See ``Handler.send``."""
        await exchange.reply(result)

    def drop(self, result: object) -> None:
        """See ``Handler.drop``: nothing to release."""

    def _begin(self, request: Request) -> tuple[Run[Answer], Spent]:
        services, operation = self.services, self._match.operation
        call = request.call
        if call.body:
            call = _readable(call, operation, services.settings.limits)
        context = context_of(services, request.source.request_id, request.principal, self._match)
        return Run(operation.answer(call, context)), services.admission.account()


def context_of(services: Services, request_id: str, principal: Principal, match: Match) -> Context:
    """The context of a call: what an operation gets beside it."""
    return Context(
        services.clock.now_ms(),
        request_id,
        match.path,
        project=principal.project,
        caller=principal.name,
        limits=services.settings.limits,
        senders=services.pipeline.senders,
        public=services.public,
        silent_ms=services.settings.node_seconds * SECOND,
    )


def _readable(call: Call, operation: Operation, limits: Limits) -> Call:
    """The call with its body uncompressed, and what reading it takes accounted for.

    Signatures cover the body as sent; an operation reads it uncompressed.
    """
    encoding = call.header("content-encoding").strip().lower()
    if encoding and encoding not in operation.encodings:
        call = replace(call, body=decoded_body(call, min(operation.decoded_bytes, limits.decoded_bytes)))
    call.take(operation.read_bytes(call))
    return call


class DialectRouter:
    """See ``jobmeter.server.pipeline.Router``."""

    prefixes = ()

    def __init__(self, dialect: Dialect, services: Services) -> None:
        self.name = dialect.name
        self._dialect = dialect
        self._services = services

    def route(self, call: Call) -> DialectHandler | None:
        """See ``Router.route``."""
        match = self._dialect.match(call)
        return None if match is None else DialectHandler(self._dialect, self._services, match)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:
        """See ``Router.refuse``."""
        return self._dialect.render_error(call, Context(self._services.clock.now_ms(), request_id), error)

"""Router of every dialect: match the path and run the operation."""

from dataclasses import replace
from functools import partial

from jobmeter.access.call import Call
from jobmeter.access.decide import writes
from jobmeter.access.principal import Principal
from jobmeter.dialects.base import Answer, Context, Dialect, Match, Operation, OperationRun
from jobmeter.errors import JobmeterError
from jobmeter.model.time import SECOND
from jobmeter.query.meter import QueryCost
from jobmeter.server.admission import QueuedQuestion
from jobmeter.server.commands import perform
from jobmeter.server.exchange import MEMORY_BYTES, Exchange, decode_body
from jobmeter.server.pipeline import NOTHING, AccessRule, ServedRequest
from jobmeter.server.services import Services
from jobmeter.settings import Limits


class DialectHandler:
    """Handler of a dialect's operation. A worker continues a question that memory could not answer."""

    _begun: tuple[OperationRun[Answer], QueryCost] | None = None

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

    def find_project(self, call: Call) -> str | None:  # noqa: ARG002 - a handler's shape
        """Return None: a dialect's call covers all projects of its key."""
        return None

    def answer_from_memory(self, request: ServedRequest) -> Answer | None:
        """Answer from memory; None when a worker has to continue."""
        services, scope = self.services, request.scope or NOTHING
        run, spent = self._begun = self._begin(request)
        with services.admission.attempt_from_memory(request.principal.id, spent) as attempt:
            found = run.advance(partial(services.executor.answer_from_memory, scope=scope))
            attempt.answered = found is not None
        return found

    def work(self, request: ServedRequest) -> Answer | QueuedQuestion[Answer]:
        """Answer on a worker thread; return the question when it has to queue."""
        services, principal, scope = self.services, request.principal, request.scope or NOTHING
        run, spent = self._begun or self._begin(request)

        def answer() -> Answer:
            return run.finish(lambda question: perform(services, question, principal, scope))

        if not self.rule.is_question:
            return answer()
        return services.admission.begin(principal.id, spent, lambda ticket: ticket.run_and_end(answer))

    async def send(self, result: Answer, exchange: Exchange) -> None:
        """Send the answer."""
        await exchange.reply(result)

    def drop(self, result: object) -> None:
        """Release nothing: an answer holds no resources."""

    def _begin(self, request: ServedRequest) -> tuple[OperationRun[Answer], QueryCost]:
        services, operation = self.services, self._match.operation
        call = request.call
        if call.body:
            call = _make_readable(call, operation, services.settings.limits)
        context = make_context(services, request.source.request_id, request.principal, self._match)
        return OperationRun(operation.answer(call, context)), services.admission.open_account()


def make_context(services: Services, request_id: str, principal: Principal, match: Match) -> Context:
    """Build the context that an operation gets besides its call."""
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
        job=principal.run_job,
    )


def _make_readable(call: Call, operation: Operation, limits: Limits) -> Call:
    """Return the call with its body uncompressed and the cost of reading accounted for.

    Signatures cover the body as sent; operations read the uncompressed body.
    """
    encoding = call.get_header("content-encoding").strip().lower()
    if encoding and encoding not in operation.encodings:
        call = replace(call, body=decode_body(call, min(operation.decoded_bytes, limits.decoded_bytes)))
    call.take(operation.read_bytes(call))
    return call


class DialectRouter:
    """Router of one dialect, for any path or for paths with ``prefixes``."""

    def __init__(self, dialect: Dialect, services: Services, prefixes: tuple[str, ...] = ()) -> None:
        self.name = dialect.name
        self.prefixes = prefixes
        self._dialect = dialect
        self._services = services

    @property
    def owned(self) -> "DialectRouter | None":
        """Return a router for the dialect's own prefix of paths, which is matched first; None without a prefix."""
        prefix: str = getattr(self._dialect, "prefix", "")  # a dialect of a plug-in may know of none
        return DialectRouter(self._dialect, self._services, (prefix,)) if prefix else None

    def route(self, call: Call) -> DialectHandler | None:
        """Return the handler for the call; None if the dialect has no matching path."""
        match = self._dialect.find_operation(call)
        return None if match is None else DialectHandler(self._dialect, self._services, match)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:
        """Write an error in the dialect's own form."""
        return self._dialect.render_error(call, Context(self._services.clock.now_ms(), request_id), error)

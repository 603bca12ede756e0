"""The door of every dialect: match, let in, answer what the operation asks. The dialect does the words."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from jobmeter.access.call import Call
from jobmeter.access.decide import writes
from jobmeter.dialects.base import Answer, Context, Dialect, Match, drive
from jobmeter.errors import JobmeterError
from jobmeter.server.commands import perform
from jobmeter.server.exchange import Exchange, decoded_body
from jobmeter.server.gate import allowed, authenticated
from jobmeter.server.services import Services


@dataclass(frozen=True, slots=True)
class DialectVisit:
    """See ``jobmeter.server.edge.Visit``."""

    body_bytes: int
    serve: Callable[[Exchange], Awaitable[None]]


class DialectDoor:
    """See ``jobmeter.server.edge.Door``."""

    def __init__(self, dialect: Dialect, services: Services) -> None:
        self.name = dialect.name
        self._dialect = dialect
        self._services = services

    def open(self, call: Call) -> DialectVisit | None:
        """See ``Door.open``."""
        match = self._dialect.match(call)
        return None if match is None else DialectVisit(match.operation.body_bytes, partial(self._serve, match))

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:
        """See ``Door.refuse``."""
        return self._dialect.render_error(call, Context(self._services.clock.now_ms(), request_id), error)

    async def _serve(self, match: Match, exchange: Exchange) -> None:
        lanes = self._services.lanes
        lane = lanes.write if writes(match.operation.action) else lanes.read
        await exchange.reply(await lane.run(self._answer, match, exchange.call, exchange.request_id))

    def _answer(self, match: Match, call: Call, request_id: str) -> Answer:
        services, operation = self._services, match.operation
        schemes = self._dialect.schemes if match.schemes is None else match.schemes
        principal = authenticated(services, call, request_id, schemes, operation.name, operation.rate)
        scope = allowed(services, call, request_id, principal, operation.action, None)
        # Signatures cover the body as sent; an operation reads it uncompressed.
        encoding = call.header("content-encoding").strip().lower()
        if encoding and encoding not in operation.encodings:
            call = replace(call, body=decoded_body(call, services.settings.limits.decoded_bytes))
        now_ms = services.clock.now_ms()
        context = Context(now_ms, request_id, match.path, project=principal.project, caller=principal.name)
        return drive(operation.answer(call, context), lambda question: perform(services, question, principal, scope))

"""The door of our own API: finds the endpoint, works on its lane, sends what it gives.

Endpoints are found by the table itself: a framework's routing and response objects took longer than most answers. The
framework describes the API (``jobmeter.server.native.openapi``).
"""

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Run, path_parameters
from jobmeter.errors import JobmeterError, NotAtOnceError, NotFoundError
from jobmeter.server import turns
from jobmeter.server.commands import from_memory
from jobmeter.server.dialect_door import PlainVisit
from jobmeter.server.edge import Visit
from jobmeter.server.exchange import AT_ONCE_BYTES, Exchange
from jobmeter.server.live import Feed
from jobmeter.server.native import (
    catalog,
    compare,
    events,
    findings,
    ingest,
    jobs,
    keys,
    live,
    logs,
    metrics,
    nodes,
    problem,
    resolve,
    samples,
    session,
    share,
    status,
    streaming,
)
from jobmeter.server.native.endpoint import SMALL_BODY, Ask, Endpoint, Result, Stream, in_turn, let_in
from jobmeter.server.services import Services

BASE = "/api/jobmeter/v1"
BEGUN_BYTES = 64 * 1024
"""Body beyond which reading samples takes longer than the event loop may be held, even if they need no parsing."""

ENDPOINTS: Sequence[Endpoint] = (
    *jobs.ENDPOINTS,
    *resolve.ENDPOINTS,
    *metrics.ENDPOINTS,
    *live.ENDPOINTS,
    *compare.ENDPOINTS,
    *samples.ENDPOINTS,
    *logs.ENDPOINTS,
    *events.ENDPOINTS,
    *findings.ENDPOINTS,
    *share.ENDPOINTS,
    *nodes.ENDPOINTS,
    *catalog.ENDPOINTS,
    *ingest.ENDPOINTS,
    *keys.ENDPOINTS,
    *session.ENDPOINTS,
    *status.ENDPOINTS,
)
"""Every route of our own API."""


class NativeVisit:
    """See ``jobmeter.server.edge.Visit``. Whoever was let in is not asked again."""

    def __init__(self, services: Services, endpoint: Endpoint, path: Mapping[str, str], body_bytes: int) -> None:
        self.body_bytes = body_bytes
        self.at_once_bytes = AT_ONCE_BYTES if endpoint.begin is None else BEGUN_BYTES
        self._services = services
        self._endpoint = endpoint
        self._path = path
        self._ask: Ask | None = None

    async def admit(self, exchange: Exchange) -> None:
        """See ``Visit.admit``."""
        try:
            self._ask = self._let_in(self._services, exchange, at_once=True)
        except NotAtOnceError:
            lane = getattr(self._services.lanes, self._endpoint.lane)
            self._ask = await lane.run(partial(self._let_in, self._services, exchange, at_once=False))

    def _let_in(self, services: Services, exchange: Exchange, *, at_once: bool) -> Ask:
        call, request_id = exchange.call, exchange.request_id
        return let_in(services, self._endpoint, call, request_id, self._path, at_once=at_once)

    def at_once(self, exchange: Exchange) -> Answer | Awaitable[Answer] | None:
        """See ``Visit.at_once``."""
        services, endpoint = self._services, self._endpoint
        if (endpoint.begin or endpoint.steps) is None or services.store.damaged():
            return None  # which damaged parts an answer has to name is found out on a thread
        try:
            if self._ask is None:
                ask = self._ask = self._let_in(services, exchange, at_once=True)
            else:
                ask = replace(self._ask, call=exchange.call)
            if endpoint.begin is not None:
                return endpoint.begin(ask)
        except NotAtOnceError:
            return None
        if endpoint.steps is None:
            return None
        run, recall = Run(endpoint.steps(ask)), partial(from_memory, services, scope=ask.scope)
        result = services.turns.recall(ask.principal.id, ask.spent, lambda: run.advance(recall))
        return result if isinstance(result, Answer) else None

    async def serve(self, exchange: Exchange) -> None:
        """See ``Visit.serve``."""
        services = self._services
        lane = getattr(services.lanes, self._endpoint.lane)
        result: Result = await turns.in_turn(
            services.turns, lane, partial(exchange.during, partial(self._work, exchange)), _unwanted
        )
        if isinstance(result, Stream):
            await streaming.send(result, services.lanes, lane, exchange)
        elif isinstance(result, Feed):
            await services.hub.send(result, exchange)
        else:
            await exchange.reply(result if isinstance(result, Answer) else await result)

    def _work(self, exchange: Exchange) -> Result | turns.Waiting[Result]:
        services = self._services
        if self._ask is None:
            ask = self._let_in(services, exchange, at_once=False)
        else:
            ask = replace(self._ask, services=services, call=exchange.call)
        return in_turn(services, self._endpoint, ask)


def _unwanted(result: object) -> None:
    if isinstance(result, Stream | Coroutine):
        result.close()


class NativeDoor:
    """See ``jobmeter.server.edge.Door``."""

    name = "native"

    def __init__(self, services: Services) -> None:
        self._services = services
        self._document = b""

    def open(self, call: Call) -> Visit | None:
        """See ``Door.open``."""
        if call.raw_path != "/api/jobmeter" and not call.raw_path.startswith("/api/jobmeter/"):
            return None
        if call.raw_path == f"{BASE}/openapi.json":
            return PlainVisit(self._describe)
        if call.method == "OPTIONS":
            return PlainVisit(_tell_methods)
        endpoint, path = _find(call)
        body_bytes = self._services.settings.limits.body_bytes if endpoint.large else SMALL_BODY
        return NativeVisit(self._services, endpoint, path, body_bytes)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:  # noqa: ARG002 - a door's shape
        """See ``Door.refuse``."""
        return problem.render(request_id, error)

    async def _describe(self, exchange: Exchange) -> None:
        if exchange.call.method not in {"GET", "HEAD"}:
            raise NotFoundError("the API's description can only be read", "method", "GET, HEAD")
        # Made when somebody wants it: it takes longer than all the rest of the start.
        self._document = self._document or await self._services.lanes.control.run(_description)
        await exchange.reply(Answer(200, self._document))


def _description() -> bytes:
    from jobmeter.server.native.openapi import document  # noqa: PLC0415 - the framework is loaded for this alone

    return document(BASE, ENDPOINTS)


async def _tell_methods(exchange: Exchange) -> None:
    allowed = ", ".join((*_methods(exchange.call), "OPTIONS"))
    await exchange.reply(Answer(200, b"{}", (("Allow", allowed),)))


def _find(call: Call) -> tuple[Endpoint, Mapping[str, str]]:
    """The endpoint that a call names, and the values of its path. Raises NotFoundError."""
    method = "GET" if call.method == "HEAD" else call.method
    path = call.raw_path.removeprefix(BASE)
    if path != call.raw_path and "//" not in path and "%2f" not in path.lower():
        for endpoint in _BY_SHAPE.get((method, path.count("/")), ()):
            values = path_parameters(endpoint.path, path)
            if values is not None:
                return endpoint, values
    allowed = ", ".join(_methods(call))
    raise NotFoundError(f"{call.method} is not possible here: {allowed}", "method", allowed)


def _methods(call: Call) -> list[str]:
    """The methods of the endpoints at that path. Raises NotFoundError when there are none."""
    path = call.raw_path.removeprefix(BASE)
    found = {one.method for one in ENDPOINTS if path_parameters(one.path, path) is not None}
    if not found or "//" in path or "%2f" in path.lower():
        raise NotFoundError(f"there is nothing at {call.raw_path[:200]}", "path")
    return sorted(found | {"HEAD"} if "GET" in found else found)


def _by_shape() -> dict[tuple[str, int], list[Endpoint]]:
    found: dict[tuple[str, int], list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        found.setdefault((endpoint.method, endpoint.path.count("/")), []).append(endpoint)
    return found


_BY_SHAPE = _by_shape()

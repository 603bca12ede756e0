"""Router of our own API: finds the endpoint, runs it on its lane and sends the answer.

The table of endpoints serves as the routing table, because a framework's routing and response objects took longer than
most answers. ``jobmeter.server.native.openapi`` describes the endpoints.
"""

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from functools import partial
from typing import cast

from jobmeter.access.call import Call
from jobmeter.access.decide import EVERYTHING
from jobmeter.dialects.base import Answer, OperationRun
from jobmeter.dialects.base.routes import Routes
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.model.series import check_project
from jobmeter.query.administration import AllDamageQuestion
from jobmeter.query.meter import QueryCost
from jobmeter.server import admission
from jobmeter.server.exchange import Exchange
from jobmeter.server.live import Feed
from jobmeter.server.native import (
    alerts,
    annotations,
    catalog,
    compare,
    events,
    findings,
    fleet,
    idle,
    ingest,
    jobs,
    keys,
    links,
    live,
    live_logs,
    logs,
    metrics,
    node_logs,
    problem,
    resolve,
    samples,
    session,
    shippers,
    status,
    streaming,
    tasks,
    traces,
    usage,
    view_calls,
)
from jobmeter.server.native.api_page import HEADERS, make_api_page
from jobmeter.server.native.arguments import Arguments
from jobmeter.server.native.endpoint import (
    SMALL_BODY,
    CallContext,
    Endpoint,
    Operation,
    Result,
    Stream,
    list_endpoints,
    run_authorised,
)
from jobmeter.server.native.openapi import make_document
from jobmeter.server.pipeline import NOTHING, Handler, PublicHandler, ServedRequest
from jobmeter.server.services import Services

BASE = "/api/jobmeter/v1"
_MODULES = (
    jobs,
    links,
    annotations,
    resolve,
    metrics,
    view_calls,
    live,
    live_logs,
    compare,
    samples,
    logs,
    node_logs,
    events,
    traces,
    findings,
    alerts,
    idle,
    tasks,
    fleet,
    catalog,
    ingest,
    keys,
    usage,
    shippers,
    session,
    status,
)
"""Modules of endpoints, in the order of the documentation."""
ENDPOINTS: Sequence[Endpoint] = tuple(one for module in _MODULES for one in list_endpoints(module))
"""Every route of our own API."""
_NO_ARGUMENTS = Arguments({}, ())
_DAMAGE = AllDamageQuestion()


class NativeHandler:
    """Handler of an endpoint."""

    def __init__(self, services: Services, endpoint: Endpoint, path: Mapping[str, str], body_bytes: int) -> None:
        self.services = services
        self.rule = endpoint.rule
        self.lane = getattr(services.lanes, endpoint.lane)
        self.body_bytes = body_bytes
        self.memory_bytes = endpoint.memory_bytes
        self._endpoint = endpoint
        self._path = path
        self._arguments = _NO_ARGUMENTS
        self._spent: QueryCost | None = None

    def find_project(self, call: Call) -> str | None:
        """Return the project that the call names."""
        endpoint = self._endpoint
        if call.query or endpoint.allowed:
            self._arguments = Arguments(endpoint.allowed, call.parameters)
        named = self._path.get("project") or (self._arguments.read_text("project") if endpoint.of_project else "")
        return check_project(named) if named else None

    def answer_from_memory(self, request: ServedRequest) -> Answer | Awaitable[Answer] | None:
        """Answer from memory; None when a worker has to continue."""
        services, endpoint = self.services, self._endpoint
        context = self._context(request)
        if endpoint.begin is not None:
            return endpoint.begin(context)
        if not endpoint.is_operation:
            return None
        if services.executor.answer_from_memory(_DAMAGE, EVERYTHING):
            return None  # a worker has to find the damaged parts that the answer names
        operation = cast("Operation", endpoint.work(context))
        run, read = OperationRun(operation), partial(services.executor.answer_from_memory, scope=context.scope)
        with services.admission.attempt_from_memory(context.principal.id, self._account()) as attempt:
            result = run.advance(read)
            attempt.answered = result is not None
        return result if isinstance(result, Answer) else None

    def work(self, request: ServedRequest) -> Result | admission.QueuedQuestion[Result]:
        """Answer on a worker thread; return the question when it has to queue."""
        return run_authorised(self.services, self._endpoint, self._context(request), self._account)

    async def send(self, result: Result, exchange: Exchange) -> None:
        """Send the answer or the stream."""
        services = self.services
        if isinstance(result, Stream):
            await streaming.send(result, services.lanes, self.lane, exchange)
        elif isinstance(result, Feed):
            await services.hub.send(result, exchange)
        else:
            await exchange.reply(result if isinstance(result, Answer) else await result)

    def drop(self, result: object) -> None:
        """Close a stream or an awaitable that nobody will read."""
        if isinstance(result, Stream | Coroutine):
            result.close()

    def _account(self) -> QueryCost:
        """Cost account of the question, in memory and on a worker thread."""
        self._spent = self._spent or self.services.admission.open_account()
        return self._spent

    def _context(self, request: ServedRequest) -> CallContext:
        limits = self.services.settings.limits
        return CallContext(
            services=self.services,
            request=request,
            call=request.call,
            principal=request.principal,
            scope=request.scope or NOTHING,
            project=request.project,
            arguments=self._arguments,
            path=self._path,
            most_bytes=limits.decoded_bytes if self._endpoint.large else SMALL_BODY,
        )


class NativeRouter:
    """Router of our own API."""

    name = "native"
    prefixes = ("/api/jobmeter",)

    def __init__(self, services: Services) -> None:
        self._services = services
        self._document = self._page = b""

    def route(self, call: Call) -> Handler | PublicHandler:
        """Return the handler for the call. Raises NotFoundError."""
        if call.raw_path == f"{BASE}/openapi.json":
            return PublicHandler(self._describe)
        if call.raw_path == f"{BASE}/docs":
            return PublicHandler(self._show)
        if call.method == "OPTIONS":
            return PublicHandler(_answer_options)
        endpoint, path = _find(call)
        body_bytes = self._services.settings.limits.body_bytes if endpoint.large else SMALL_BODY
        return NativeHandler(self._services, endpoint, path, body_bytes)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:  # noqa: ARG002 - a router's shape
        """Write an error in the form of our own API."""
        return problem.render(request_id, error)

    async def _describe(self, exchange: Exchange) -> None:
        await exchange.reply(Answer(200, await self._serve_description(exchange.call)))

    async def _show(self, exchange: Exchange) -> None:
        described = await self._serve_description(exchange.call)
        self._page = self._page or await self._services.lanes.control.run(partial(make_api_page, described))
        await exchange.reply(Answer(200, self._page, HEADERS, "text/html; charset=utf-8"))

    async def _serve_description(self, call: Call) -> bytes:
        if call.method not in {"GET", "HEAD"}:
            raise NotFoundError("the API description is read-only: use GET", "method", "GET, HEAD")
        # Built on first use: it takes longer than the rest of the start.
        self._document = self._document or await self._services.lanes.control.run(
            partial(make_document, BASE, ENDPOINTS)
        )
        return self._document


async def _answer_options(exchange: Exchange) -> None:
    allowed = ", ".join((*_methods(exchange.call), "OPTIONS"))
    await exchange.reply(Answer(200, b"{}", (("Allow", allowed),)))


def _find(call: Call) -> tuple[Endpoint, Mapping[str, str]]:
    """Find the endpoint of a call, and the values in its path. Raises NotFoundError."""
    method = "GET" if call.method == "HEAD" else call.method
    fixed = _FIXED.get((method, call.raw_path))
    if fixed is not None:
        return fixed, _NO_VALUES
    path = call.raw_path.removeprefix(BASE)
    found = _ROUTES.find(method, path)
    if found is not None and path != call.raw_path and not _is_odd(path):
        return found
    allowed = ", ".join(_methods(call))
    raise NotFoundError(f"{call.method} is not allowed here: {allowed}", "method", allowed)


def _methods(call: Call) -> list[str]:
    """List the methods of the endpoints at that path. Raises NotFoundError when the path is unknown."""
    path = call.raw_path.removeprefix(BASE)
    found = _ROUTES.list_methods(path)
    if not found or _is_odd(path):
        raise NotFoundError(f"no such path: {call.raw_path[:200]}", "path")
    return sorted([*found, "HEAD"] if "GET" in found else found)


def _is_odd(path: str) -> bool:
    """True if a parameter is empty or contains a slash; no valid parameter does."""
    return "//" in path or ("%" in path and "%2f" in path.lower())


_ROUTES = Routes(ENDPOINTS)
_FIXED: Mapping[tuple[str, str], Endpoint] = {
    (one.method, BASE + one.path): one for one in ENDPOINTS if "{" not in one.path
}
"""Endpoints without path parameters, by method and path."""
_NO_VALUES: Mapping[str, str] = {}

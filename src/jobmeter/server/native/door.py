"""The door of our own API: a Litestar application behind the edge."""

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Request, Response
from litestar.exceptions import HTTPException
from litestar.response import Stream as StreamResponse

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, path_parameters
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError
from jobmeter.server.dialect_door import DialectVisit
from jobmeter.server.exchange import Exchange, report
from jobmeter.server.native import catalog, ingest, jobs, keys, logs, metrics, nodes, openapi, problem, share, status
from jobmeter.server.native.endpoint import Endpoint, Stream, run
from jobmeter.server.services import Services
from jobmeter.server.work import Lane

_log = logging.getLogger("jobmeter.server")

BASE = "/api/jobmeter/v1"
SMALL_BODY = 64 * 1024

ENDPOINTS: Sequence[Endpoint] = (
    *jobs.ENDPOINTS,
    *metrics.ENDPOINTS,
    *logs.ENDPOINTS,
    *share.ENDPOINTS,
    *nodes.ENDPOINTS,
    *catalog.ENDPOINTS,
    *ingest.ENDPOINTS,
    *keys.ENDPOINTS,
    *status.ENDPOINTS,
)
"""Every route of our own API."""


class NativeDoor:
    """See ``jobmeter.server.edge.Door``."""

    name = "native"

    def __init__(self, services: Services) -> None:
        self._services = services
        self._app = Litestar(
            path=BASE,
            route_handlers=[openapi.route(endpoint, self._handle) for endpoint in ENDPOINTS],
            openapi_config=openapi.CONFIG,
            exception_handlers={JobmeterError: _refused, HTTPException: _refused_by_framework, Exception: _bug},
            logging_config=None,
            debug=False,
        )
        self._document = b""

    def open(self, call: Call) -> DialectVisit | None:
        """See ``Door.open``."""
        if call.raw_path != "/api/jobmeter" and not call.raw_path.startswith("/api/jobmeter/"):
            return None
        if call.raw_path == f"{BASE}/openapi.json":
            return DialectVisit(SMALL_BODY, self._describe)
        body_bytes = self._services.settings.limits.body_bytes if call.method in {"POST", "PUT"} else SMALL_BODY
        return DialectVisit(body_bytes, self._serve)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:  # noqa: ARG002 - a door's shape
        """See ``Door.refuse``."""
        return problem.render(request_id, error)

    async def _describe(self, exchange: Exchange) -> None:
        if exchange.call.method not in {"GET", "HEAD"}:
            raise NotFoundError("the API's description can only be read", "method", "GET, HEAD")
        # Made when somebody wants it: it takes longer than all the rest of the start.
        self._document = self._document or await self._services.lanes.control.run(self._encoded)
        await exchange.reply(Answer(200, self._document))

    def _encoded(self) -> bytes:
        return msgspec.json.encode(self._app.openapi_schema.to_schema())

    async def _serve(self, exchange: Exchange) -> None:
        call = exchange.call
        if "//" in call.raw_path or "%2f" in call.raw_path.lower():
            raise NotFoundError(f"there is nothing at {call.raw_path[:200]}", "path")
        if call.method == "OPTIONS":
            allowed = ", ".join((*_methods(call), "OPTIONS"))
            await exchange.reply(Answer(200, b"{}", (("Allow", allowed),)))
            return
        # The framework wants a plain Host, which some clients do not send, and never reads it.
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in call.headers if name != "host"]
        scope = {
            **exchange.scope,
            "method": "GET" if call.method == "HEAD" else call.method,
            "headers": [*headers, (b"host", b"localhost")],
            "root_path": "",
            "jobmeter": exchange,
        }
        await self._app(scope, exchange.until_answered, exchange.send)  # type: ignore[arg-type]

    async def _handle(self, endpoint: Endpoint, request: Request[Any, Any, Any]) -> Response[Any]:
        exchange: Exchange = request.scope["jobmeter"]  # type: ignore[typeddict-item]
        path: Mapping[str, str] = request.path_params
        lane = getattr(self._services.lanes, endpoint.lane)
        result = await lane.run(run, self._services, endpoint, exchange.call, exchange.request_id, path)
        if isinstance(result, Stream):
            # The framework would prefer the media type of the route to that of a stream.
            headers = {**dict(result.headers), "content-type": result.content_type}
            return StreamResponse(_on_lane(lane, result.chunks), headers=headers)
        return _response(result)


def _methods(call: Call) -> list[str]:
    """The methods of the endpoints at that path. Raises NotFoundError when there are none."""
    path = call.raw_path.removeprefix(BASE)
    found = {one.method for one in ENDPOINTS if path_parameters(one.path, path) is not None}
    if not found:
        raise NotFoundError(f"there is nothing at {call.raw_path[:200]}", "path")
    return sorted(found | {"HEAD"} if "GET" in found else found)


async def _on_lane(lane: Lane, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (chunk := await lane.run(next, chunks, None)) is not None:
        yield chunk


def _response(answer: Answer) -> Response[bytes]:
    return Response(
        answer.body,
        status_code=answer.status,
        headers=dict(answer.headers),
        media_type=MediaType(answer.content_type) if answer.content_type in set(MediaType) else answer.content_type,
    )


def _refused(request: Request[Any, Any, Any], error: JobmeterError) -> Response[bytes]:
    exchange: Exchange = request.scope["jobmeter"]  # type: ignore[typeddict-item]
    report(exchange, error)
    return _response(problem.render(exchange.request_id, error))


def _refused_by_framework(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    exchange: Exchange = request.scope["jobmeter"]  # type: ignore[typeddict-item]
    if error.status_code == 405:
        allowed = ", ".join(_methods(exchange.call))
        return _refused(request, NotFoundError(f"{request.method} is not possible here: {allowed}", "method", allowed))
    if error.status_code == 404:
        return _refused(request, NotFoundError(f"there is nothing at {exchange.call.raw_path[:200]}", "path"))
    return _refused(request, InvalidRequestError(error.detail))


def _bug(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    exchange: Exchange = request.scope["jobmeter"]  # type: ignore[typeddict-item]
    _log.error("request %s failed: %s", exchange.request_id, exchange.call.raw_path, exc_info=error)
    return _refused(request, JobmeterError("internal error"))

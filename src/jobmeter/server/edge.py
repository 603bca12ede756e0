"""Front of the server: a bare ASGI application that finds the router for each request and catches every failure.

A web framework's router would refuse requests that vendors' SDKs send (a scheme in Host, ``%2F`` and ``//`` in the
path). So the routers are matched in order against the path as received. The steps that follow are in
``jobmeter.server.pipeline``.
"""

import logging
from collections.abc import Awaitable, Sequence

from jobmeter.access.call import Call, check_parameters
from jobmeter.access.forwarded import TrustedProxies
from jobmeter.access.memory import MemoryBudget, drop_frames
from jobmeter.access.usage import UsageMeter
from jobmeter.dialects.base import Answer
from jobmeter.errors import InvalidRequestError, JobmeterError, NotFoundError
from jobmeter.server.exchange import AsgiScope, ClientGoneError, Exchange, Receive, Send, report
from jobmeter.server.pipeline import (
    Handler,
    PublicHandler,
    Router,
    ServedRequest,
    answer_from_memory,
    finish,
    handle,
    take_arrived_body,
)
from jobmeter.server.telemetry import Telemetry

_log = logging.getLogger("jobmeter.server")

DROPPED = 2
"""Limit on reading and dropping the rest of a refused body, as a multiple of the largest body."""

_NO_WORDS = Answer(500, b"internal error\n", content_type="text/plain; charset=utf-8")
"""Answer when a router fails to describe a failure."""


class Edge:
    """ASGI application. ``routers`` are matched in order; the last one matches every path.

    ``body_bytes`` is the largest body of all routers. ``usage`` counts the calls. Only headers of ``proxies`` are
    trusted to name the client.
    """

    def __init__(
        self,
        routers: Sequence[Router],
        telemetry: Telemetry,
        memory: MemoryBudget,
        body_bytes: int,
        usage: UsageMeter,
        proxies: TrustedProxies | None = None,
    ) -> None:
        self._routers = routers
        self._proxies = proxies
        self._usage = usage
        self._telemetry = telemetry
        self._memory = memory
        self._most_dropped = DROPPED * body_bytes

    def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer an HTTP request. Returns the reply at once when it is from memory, and the body has arrived."""
        exchange = Exchange(scope, receive, send, self._proxies)
        router, handler = self.find(exchange)
        request, began = ServedRequest(exchange, router.name), self._telemetry.count_begin(router.name)
        waiting: Awaitable[Answer] | None = None
        if not isinstance(handler, Exception):
            try:
                if not exchange.has_body or take_arrived_body(request, exchange, handler, self._memory):
                    answer = answer_from_memory(request, exchange, handler)
                    if isinstance(answer, Answer):
                        reply = exchange.build_reply(answer)
                        exchange.close()
                        self._end(request, began)
                        return reply
                    waiting = answer
            except Exception as error:  # noqa: BLE001 - ``_finish`` answers with the error
                handler = error
        return self._finish(router, request, exchange, handler, waiting, began)

    async def _finish(
        self,
        router: Router,
        request: ServedRequest,
        exchange: Exchange,
        handler: Handler | PublicHandler | Exception,
        answer: Awaitable[Answer] | None,
        began: float,
    ) -> None:
        try:
            if isinstance(handler, Exception):
                raise handler  # noqa: TRY301 - what refuses it is below
            await handle(request, exchange, handler, self._memory, answer)
        except ClientGoneError:
            exchange.status = exchange.status or 499
        except JobmeterError as problem:
            drop_frames(problem)
            await _refuse(router, request, exchange, problem)
        except Exception as bug:  # noqa: BLE001 - a bug must neither reach the client nor end its connection
            _log.exception("request %s failed: %s", exchange.request_id, exchange.call.raw_path)
            drop_frames(bug)
            await _refuse(router, request, exchange, JobmeterError("internal error"))
        finally:
            exchange.close()
            self._end(request, began)
        await exchange.drop_rest(self._most_dropped)

    def _end(self, request: ServedRequest, began: float) -> None:
        self._telemetry.count_end(request.router, request.source.status, began)
        finish(self._usage, request)

    def find(self, exchange: Exchange) -> tuple[Router, Handler | PublicHandler | Exception]:
        """Find the router and the handler of a request, or the error if there is no handler."""
        try:
            check_parameters(exchange.call.query)
        except ValueError as error:
            # Route by the parameters that could be read; that router refuses the others in its own format.
            exchange.call = exchange.call.keep_first_parameters()
            router, _ = self._route(exchange.call)
            return router, InvalidRequestError(f"the query cannot be read: {error}", "query")
        return self._route(exchange.call)

    def _route(self, call: Call) -> tuple[Router, Handler | PublicHandler | Exception]:
        for router in self._routers:
            if router.prefixes and not call.raw_path.startswith(router.prefixes):
                continue
            try:
                handler = router.route(call)
            except Exception as error:  # noqa: BLE001 - ``_finish`` reports it: a bug is logged and answered too
                return router, error
            if handler is not None:
                return router, handler
        return self._routers[-1], NotFoundError(f"no such path: {call.raw_path[:200]}", "path")


async def _refuse(router: Router, request: ServedRequest, exchange: Exchange, error: JobmeterError) -> None:
    request.error = error
    if exchange.status:  # the answer has begun: the only way out is to close the connection
        raise error
    report(exchange.request_id, error)
    try:
        answer = router.refuse(exchange.call, exchange.request_id, error)
    except Exception:  # noqa: BLE001 - a refusal has no other router to go to
        _log.exception(
            "the refusal of request %s could not be written in the format of %s", exchange.request_id, router.name
        )
        answer = _NO_WORDS
    await exchange.reply(answer)

"""The routers at the root: health and metrics first, and last whatever nobody else took."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from jobmeter.access.call import Call
from jobmeter.access.signatures import ACS3, ROA, RPC, SDK_HMAC, Scheme
from jobmeter.dialects.base import Answer, Context, Dialect
from jobmeter.errors import JobmeterError, NotFoundError, UnauthenticatedError
from jobmeter.server import telemetry
from jobmeter.server.exchange import Exchange
from jobmeter.server.native import problem
from jobmeter.server.pipeline import PublicHandler
from jobmeter.server.ready import Readiness
from jobmeter.server.services import Services

_SIGNATURES: Sequence[Scheme] = (ACS3, ROA, RPC, SDK_HMAC)
_PAGE = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Jobmeter</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}</style></head>
<body>
<h1>Jobmeter</h1>
<p>This server measures jobs and serves what it measured.</p>
<ul>
<li><a href="/api/jobmeter/v1/openapi.json">What its API offers</a></li>
<li><a href="/metrics">The server's own metrics</a></li>
<li><a href="/readyz">Whether it is ready</a></li>
</ul>
</body></html>
"""


class HealthRouter:
    """``/healthz``, ``/readyz`` and ``/metrics``: no key, and no sign of life for an idle server."""

    name = "health"
    prefixes = ("/healthz", "/readyz", "/metrics")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._readiness = Readiness(services)
        self._paths: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/healthz": _alive,
            "/readyz": self._readiness.answer,
            "/metrics": self._metrics,
        }

    def route(self, call: Call) -> PublicHandler | None:
        """See ``Router.route``."""
        work = self._paths.get(call.raw_path)
        if work is None:
            return None
        _only_reading(call)
        return PublicHandler(partial(self._serve, work))

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:  # noqa: ARG002 - a router's shape
        """See ``Router.refuse``."""
        return problem.render(request_id, error)

    async def _serve(self, work: Callable[[], Awaitable[Answer]], exchange: Exchange) -> None:
        await exchange.reply(await work())

    async def _metrics(self) -> Answer:
        text = await self._services.lanes.control.run(self._services.telemetry.text)
        return Answer(200, text, content_type=telemetry.CONTENT_TYPE)


class RootRouter:
    """``/``, and the refusal of every path that no other router took."""

    name = "root"
    prefixes = ()

    def __init__(self, services: Services, dialects: Sequence[Dialect] = ()) -> None:
        """``dialects`` in the order in which they are tried for a credential."""
        self._services = services
        self._dialects = dialects

    def route(self, call: Call) -> PublicHandler | None:
        """See ``Router.route``."""
        if call.raw_path != "/":
            raise NotFoundError(f"there is nothing at {call.raw_path[:200]}", "path")
        _only_reading(call)
        return PublicHandler(_page)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:
        """See ``Router.refuse``: in the words of the vendor whose SDK signed the call, where one did."""
        dialect = next((one for one in self._dialects if _signed_for(one, call)), None)
        if dialect is None:
            return problem.render(request_id, error)
        return dialect.render_error(call, Context(self._services.clock.now_ms(), request_id), error)


def _signed_for(dialect: Dialect, call: Call) -> bool:
    """True when the call has a credential of a form that the dialect's SDKs alone send."""
    return any(_has(scheme, call) for scheme in dialect.schemes if scheme in _SIGNATURES)


def _has(scheme: Scheme, call: Call) -> bool:
    try:
        return scheme.claim(call) is not None
    except UnauthenticatedError:
        return True


def _only_reading(call: Call) -> None:
    if call.method not in {"GET", "HEAD"}:
        raise NotFoundError(f"{call.method} is not possible here, GET and HEAD are", "method", "GET, HEAD")


async def _alive() -> Answer:
    return Answer(200, b"ok\n", content_type="text/plain; charset=utf-8")


def _page(exchange: Exchange) -> Awaitable[None]:
    headers = (("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'"),)
    return exchange.reply(Answer(200, _PAGE, headers, "text/html; charset=utf-8"))

"""The routers at the root: health and metrics first, and last whatever nobody else took."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from jobmeter.access.call import Call
from jobmeter.access.signatures import ACS3, ROA, RPC, SDK_HMAC, Scheme
from jobmeter.dialects.base import Answer, Context, Dialect
from jobmeter.errors import JobmeterError, NotFoundError, UnauthenticatedError, UnavailableError
from jobmeter.model.series import NO_JOB
from jobmeter.server import telemetry
from jobmeter.server.admission import Lane
from jobmeter.server.exchange import Exchange
from jobmeter.server.native import problem
from jobmeter.server.pipeline import PublicHandler
from jobmeter.server.services import Services
from jobmeter.store.base import Selector
from jobmeter.store.damage import DamagedPart

if TYPE_CHECKING:
    from concurrent.futures import Future

CHECK_SECONDS = 2.0
"""How long one probe waits for the registry and the store."""
_TEXT = "text/plain; charset=utf-8"
_PROBE = Selector(jobs=(NO_JOB,), metrics=frozenset({"-"}), limit=1)
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
        self._paths: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/healthz": _alive,
            "/readyz": Readiness(services).answer,
            "/metrics": self._metrics,
        }

    def route(self, call: Call) -> PublicHandler | None:
        """See ``Router.route``."""
        work = self._paths.get(call.raw_path)
        if work is None:
            return None
        _only_reading(call)

        async def serve(exchange: Exchange) -> None:
            await exchange.reply(await work())

        return PublicHandler(serve)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:  # noqa: ARG002 - a router's shape
        """See ``Router.refuse``."""
        return problem.render(request_id, error)

    async def _metrics(self) -> Answer:
        text = await self._services.lanes.control.run(self._services.telemetry.text)
        return Answer(200, text, content_type=telemetry.CONTENT_TYPE)


class Readiness:
    """Whether a server can do its work. Belongs to the event loop's thread.

    The registry and the store are each checked by one thread at a time, however many probes come and however long
    a database takes: probes that come meanwhile wait for the same answer, two seconds at most.
    """

    def __init__(self, services: Services) -> None:
        registry, store = services.registry, services.store
        self._store = store
        self._lane = services.lanes.control
        self._checks = (
            _Check("registry", lambda: registry.key_by_token(b"")),
            _Check("telemetry store", lambda: store.find(_PROBE)),
        )

    async def answer(self) -> Answer:
        """200 where both answer, whether or not parts of the store are damaged, which the text says.

        Raises UnavailableError where one does not, or not in time.
        """
        await asyncio.gather(*(check.passed(self._lane) for check in self._checks))
        damaged = self._store.damaged()
        if not damaged:
            return Answer(200, b"ready\n", content_type=_TEXT)
        counts = ", ".join(_counted(table, damaged) for table in sorted({part.table for part in damaged}))
        text = f"ready, degraded: damaged parts of the store ({counts}); the server's log says what to do\n"
        return Answer(200, text.encode(), content_type=_TEXT)


def _counted(table: str, damaged: Sequence[DamagedPart]) -> str:
    """Say how many parts of a table are damaged and, where that is known, how many rows they lost."""
    own = [part for part in damaged if part.table == table]
    if any(part.rows is None for part in own):
        return f"{len(own)} of {table}"
    rows = sum(part.rows or 0 for part in own)
    return f"{len(own)} of {table} with {'at most ' if any(part.at_most for part in own) else ''}{rows} rows"


class _Check:
    """One question that is under way at most once."""

    def __init__(self, name: str, check: Callable[[], object]) -> None:
        self._name = name
        self._check = check
        self._running: Future[object] | None = None

    async def passed(self, lane: Lane) -> None:
        """Return when the question was answered. Raises UnavailableError after ``CHECK_SECONDS``, or what it raised."""
        if self._running is None or self._running.done():
            self._running = lane.submit(self._check)
        answer = asyncio.wrap_future(self._running)
        done, _ = await asyncio.wait((answer,), timeout=CHECK_SECONDS)
        if not done:
            answer.add_done_callback(_read)
            raise UnavailableError(f"the {self._name} did not answer within {CHECK_SECONDS:g} s")
        answer.result()


def _read(answer: asyncio.Future[object]) -> None:
    """Nobody waits for it any more: what it raised is of no use."""
    if not answer.cancelled():
        answer.exception()


class RootRouter:
    """``/``, and the refusal of every path that no other router took."""

    name = "root"
    prefixes = ()

    def __init__(self, services: Services, dialects: Sequence[Dialect]) -> None:
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
    return Answer(200, b"ok\n", content_type=_TEXT)


def _page(exchange: Exchange) -> Awaitable[None]:
    headers = (("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'"),)
    return exchange.reply(Answer(200, _PAGE, headers, "text/html; charset=utf-8"))

"""Routers at the root: first health and metrics, last a fallback for all other paths."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from jobmeter.access.call import Call
from jobmeter.access.decide import EVERYTHING
from jobmeter.access.signatures import ACS3, ROA, RPC, SDK_HMAC, Scheme
from jobmeter.dialects.base import Answer, Context, Dialect
from jobmeter.errors import JobmeterError, NotFoundError, UnauthenticatedError, UnavailableError
from jobmeter.query.administration import AllDamageQuestion, ProbeQuestion
from jobmeter.server import telemetry
from jobmeter.server.admission import Lane
from jobmeter.server.exchange import Exchange
from jobmeter.server.native import problem
from jobmeter.server.pipeline import PublicHandler
from jobmeter.server.services import Services
from jobmeter.store.damage import DamagedPart

if TYPE_CHECKING:
    from concurrent.futures import Future

CHECK_SECONDS = 2.0
"""Longest wait of a probe in seconds for the registry and the store."""
_TEXT = "text/plain; charset=utf-8"
_SIGNATURES: Sequence[Scheme] = (ACS3, ROA, RPC, SDK_HMAC)
_PAGE = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Jobmeter</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:4rem auto;padding:0 1rem}</style></head>
<body>
<h1>Jobmeter</h1>
<p>This server stores and serves measurements of jobs.</p>
<ul>
<li><a href="/api/jobmeter/v1/docs">What its API offers</a></li>
<li><a href="/metrics">The server's own metrics</a></li>
<li><a href="/readyz">Whether it is ready</a></li>
</ul>
</body></html>
"""


class HealthRouter:
    """Router of ``/healthz``, ``/readyz`` and ``/metrics``: needs no key, and does not count as activity."""

    name = "health"
    prefixes = ("/healthz", "/readyz", "/metrics")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._paths: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/healthz": _answer_alive,
            "/readyz": Readiness(services).answer,
            "/metrics": self._metrics,
        }

    def route(self, call: Call) -> PublicHandler | None:
        """Return the handler for a health or metrics path; None for other paths."""
        work = self._paths.get(call.raw_path)
        if work is None:
            return None
        _require_reading(call)

        async def serve(exchange: Exchange) -> None:
            await exchange.reply(await work())

        return PublicHandler(serve)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:  # noqa: ARG002 - a router's shape
        """Write an error in the form of our own API."""
        return problem.render(request_id, error)

    async def _metrics(self) -> Answer:
        text = await self._services.lanes.control.run(self._services.telemetry.render)
        return Answer(200, text, content_type=telemetry.CONTENT_TYPE)


class Readiness:
    """Readiness of the server. Belongs to the event loop's thread.

    The registry and the store are each checked by one thread at a time, however many probes arrive and however slow a
    database is. Concurrent probes wait for the same check, at most two seconds.
    """

    def __init__(self, services: Services) -> None:
        self._executor = services.executor
        self._lane = services.lanes.control
        self._checks = (
            _Check("registry", lambda: services.executor.run(ProbeQuestion("registry"), EVERYTHING)),
            _Check("telemetry store", lambda: services.executor.run(ProbeQuestion("store"), EVERYTHING)),
        )

    async def answer(self) -> Answer:
        """Return 200 if both answer. Damaged parts of the store do not change the status; the text counts them.

        Raises UnavailableError if either fails or is too slow.
        """
        await asyncio.gather(*(check.wait(self._lane) for check in self._checks))
        damaged = self._executor.answer_from_memory(AllDamageQuestion(), EVERYTHING)
        if not damaged:
            return Answer(200, b"ready\n", content_type=_TEXT)
        counts = ", ".join(_describe_damage(table, damaged) for table in sorted({part.table for part in damaged}))
        text = f"ready, degraded: damaged parts of the store ({counts}); see the server's log\n"
        return Answer(200, text.encode(), content_type=_TEXT)


def _describe_damage(table: str, damaged: Sequence[DamagedPart]) -> str:
    """Describe the damaged parts of a table, and their lost rows if known."""
    own = [part for part in damaged if part.table == table]
    if any(part.rows is None for part in own):
        return f"{len(own)} of {table}"
    rows = sum(part.rows or 0 for part in own)
    return f"{len(own)} of {table} with {'at most ' if any(part.at_most for part in own) else ''}{rows} rows"


class _Check:
    """Check that runs at most once at a time."""

    def __init__(self, name: str, check: Callable[[], object]) -> None:
        self._name = name
        self._check = check
        self._running: Future[object] | None = None

    async def wait(self, lane: Lane) -> None:
        """Wait for the check. Raises UnavailableError after ``CHECK_SECONDS``, or the check's own error."""
        if self._running is None or self._running.done():
            self._running = lane.submit(self._check)
        answer = asyncio.wrap_future(self._running)
        done, _ = await asyncio.wait((answer,), timeout=CHECK_SECONDS)
        if not done:
            answer.add_done_callback(_read)
            raise UnavailableError(f"the {self._name} did not answer within {CHECK_SECONDS:g} s")
        answer.result()


def _read(answer: asyncio.Future[object]) -> None:
    """Discard the error of a check that nobody waits for any more."""
    if not answer.cancelled():
        answer.exception()


class RootRouter:
    """Router of ``/``, and the refusal of every path that no other router handled."""

    name = "root"
    prefixes = ()

    def __init__(self, services: Services, dialects: Sequence[Dialect]) -> None:
        """``dialects`` in the order in which they are tried for a credential."""
        self._services = services
        self._dialects = dialects

    def route(self, call: Call) -> PublicHandler | None:
        """Return the handler of ``/``. Raises NotFoundError for every other path."""
        if call.raw_path != "/":
            raise NotFoundError(f"no such path: {call.raw_path[:200]}", "path")
        _require_reading(call)
        return PublicHandler(_page)

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:
        """Write an error in the format of the vendor whose SDK signed the call, else in our own."""
        dialect = next((one for one in self._dialects if _is_signed_for(one, call)), None)
        if dialect is None:
            return problem.render(request_id, error)
        return dialect.render_error(call, Context(self._services.clock.now_ms(), request_id), error)


def _is_signed_for(dialect: Dialect, call: Call) -> bool:
    """True if the call has a credential that only the dialect's SDKs send."""
    return any(_has(scheme, call) for scheme in dialect.schemes if scheme in _SIGNATURES)


def _has(scheme: Scheme, call: Call) -> bool:
    try:
        return scheme.claim(call) is not None
    except UnauthenticatedError:
        return True


def _require_reading(call: Call) -> None:
    if call.method not in {"GET", "HEAD"}:
        raise NotFoundError(f"{call.method} is not allowed here, use GET or HEAD", "method", "GET, HEAD")


async def _answer_alive() -> Answer:
    return Answer(200, b"ok\n", content_type=_TEXT)


def _page(exchange: Exchange) -> Awaitable[None]:
    headers = (("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'"),)
    return exchange.reply(Answer(200, _PAGE, headers, "text/html; charset=utf-8"))

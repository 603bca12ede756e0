"""Answers of a worker process to live questions, from the storage process's window and from cached records.

A worker answers a GET with a key's token and without a rate limit, if all data is in memory. It runs the same steps as
the storage process (``answer_from_memory``). Nonces, sessions, rates and the audit log exist only in the storage
process: every use in a worker raises OwnerNeededError. The worker forwards every other call, and every call that it
would refuse.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from jobmeter.access.authenticate import Authenticator
from jobmeter.access.call import Call, Claim, ClaimKind, Scheme
from jobmeter.access.forwarded import TrustedProxies, parse_public_url
from jobmeter.access.limit import Budget, Rate, RateLimiter, parse_budget, parse_rates
from jobmeter.access.principal import Scope
from jobmeter.dialects.base import Answer
from jobmeter.errors import JobmeterError
from jobmeter.model.question import Question
from jobmeter.model.time import Clock, SystemClock
from jobmeter.model.token_bucket import TokenBucket
from jobmeter.query.execute import Executor
from jobmeter.server.admission import Admission
from jobmeter.server.edge import Edge
from jobmeter.server.exchange import AsgiScope, Exchange, Receive, Reply, Send
from jobmeter.server.native.metrics import ENCODERS
from jobmeter.server.pipeline import PublicHandler, ServedRequest, answer_from_memory, finish
from jobmeter.server.routing import routers_of
from jobmeter.server.services import Services
from jobmeter.server.workers.frames import Channel, Counts, LookupResult
from jobmeter.server.workers.records import OwnerNeededError, RecordSearch, WorkerRegistry, WorkerStore
from jobmeter.settings import Settings
from jobmeter.store.cache import Cache
from jobmeter.store.window.revisions import KEYS
from jobmeter.store.window.shared import SharedWindow

_log = logging.getLogger("jobmeter.server")

R = TypeVar("R")

CACHE_BYTES = 16 * 2**20
"""Bytes of a worker's cache of records and layouts."""
COUNT_SECONDS = 0.05
"""Seconds between two messages with counts of answers."""
_SEARCHES_A_SECOND, _SEARCHES_AT_ONCE = 50, 200
"""Rate limit and burst of a worker's searches. A search costs the storage process more than an answer."""
_MOST_WAITING = 100
"""Largest number of waiting and running searches."""


class OwnedPart:
    """Placeholder for a part that only the storage process has: every use raises OwnerNeededError."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - never returns
        """Raise OwnerNeededError."""
        raise OwnerNeededError(name)


class _TokenAuthenticator(Authenticator):
    """Authenticator of tokens alone: signatures and sessions need the nonces of the storage process."""

    def find(self, call: Call, schemes: Sequence[Scheme]) -> tuple[Scheme, Claim]:
        scheme, claim = super().find(call, schemes)
        if claim.kind is not ClaimKind.TOKEN:
            raise OwnerNeededError(claim.kind)
        return scheme, claim


class _OwnedRates(RateLimiter):
    """Limiter that leaves limited operations to the storage process."""

    def take(self, key: str, operation: str, documented: Rate | None = None, account: str = "") -> None:  # noqa: ARG002
        if self.rate_of(operation, documented) is not None:
            raise OwnerNeededError(operation)


class _NotingExecutor(Executor):
    """Executor that notes the last question without an answer from memory, and the function that caches its data."""

    missed: tuple[Hashable, Callable[[], object] | None] | None = None

    def from_memory(self, question: Question[R], scope: Scope) -> R | None:
        found = super().from_memory(question, scope)
        if found is None:
            self.missed = question, self.preparation(question, scope)
        return found


class WorkerAnswers:
    """Answers calls in a worker process. All but the searches runs on the event loop's thread."""

    def __init__(
        self,
        settings: Settings,
        window: SharedWindow,
        channel: Channel,
        clock: Clock = SystemClock(),  # noqa: B008
    ) -> None:
        self._window, self._channel, self._clock = window, channel, clock
        self._search = search = RecordSearch(channel, clock)
        self._counts = Counts([], [], [])
        self._costs: list[tuple[int, float]] = []
        self._is_stopping = False
        self._counting: asyncio.TimerHandle | None = None
        owned: Any = OwnedPart()
        registry, store, cache = (
            WorkerRegistry(search, window.revisions),
            WorkerStore(search, window),
            Cache(CACHE_BYTES),
        )
        self._executor = _NotingExecutor(
            cast("Any", store), cast("Any", registry), self._clock, settings.limits, cache, ENCODERS
        )
        self._authenticator = _TokenAuthenticator(
            cast("Any", registry.keys),
            owned,  # the vault: tokens need no secret from it
            self._clock,
            owned,
            owned,
            lambda: window.revisions.of((KEYS,)),
        )
        parts: dict[str, Any] = dict.fromkeys(Services.__struct_fields__, owned)
        services = Services(
            **{
                **parts,
                "settings": settings,
                "public": parse_public_url(settings.public_url),
                "clock": self._clock,
                "executor": self._executor,
                "authenticator": self._authenticator,
                "limiter": _OwnedRates(self._clock, parse_rates(settings.rate_limits)),
                "admission": Admission(self._clock, Budget(), self._note_cost),
                "pipeline": SimpleNamespace(senders=None),
                "lanes": SimpleNamespace(read=None, write=None, control=None),
            }
        )
        budget = parse_budget(settings.query_budgets)
        self._has_budget = bool(budget.rows or budget.seconds)
        proxies = TrustedProxies.parse(settings.trusted_proxies)
        self._edge = Edge(routers_of(services), owned, owned, settings.limits.body_bytes, owned, proxies)
        self._proxies = proxies
        self._thread = ThreadPoolExecutor(1, "jobmeter-searches")
        self._allowance = TokenBucket(_SEARCHES_A_SECOND, _SEARCHES_AT_ONCE, self._clock.monotonic())
        self._searching: set[Hashable] = set()

    @classmethod
    def open(cls, settings: Settings, descriptor: int, channel: Channel) -> "WorkerAnswers | None":
        """Open the window of a file descriptor, and close the descriptor. None if the worker must forward all calls."""
        try:
            window = SharedWindow.open(descriptor)
        except (ValueError, ProcessLookupError) as error:
            _log.warning("this worker process forwards every request: %s", error)
            return None
        finally:
            os.close(descriptor)
        return cls(settings, window, channel)

    def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> Reply | None:
        """Return the answer to a request; None if the storage process has to answer."""
        may_answer = scope["method"] == "GET" and not (self._has_budget or self._window.is_closed)
        reply = self._reply(scope, receive, send) if may_answer else None
        if reply is None:
            self._send_counts()  # counts go first, so that the storage process counts in the order of the requests
        return reply

    def _reply(self, scope: AsgiScope, receive: Receive, send: Send) -> Reply | None:
        began = self._clock.monotonic()
        exchange = Exchange(scope, receive, send, self._proxies)
        if exchange.has_body:
            return None
        router, handler = self._edge.find(exchange)
        if isinstance(handler, Exception | PublicHandler):
            return None
        request = ServedRequest(exchange, router.name)
        self._executor.missed = None
        self._costs.clear()
        try:
            answer = answer_from_memory(request, exchange, handler)
        except (JobmeterError, OwnerNeededError):
            return None
        except Exception:  # noqa: BLE001 - the storage process can answer it
            _log.exception("a worker could not answer %s; the storage process answers", exchange.call.raw_path)
            return None
        if not isinstance(answer, Answer):
            self._prepare(request, scope)
            return None
        reply = exchange.whole(answer)
        self._counts.requests.append((router.name, reply.status, self._clock.monotonic() - began))
        self._counts.questions.extend(self._costs)
        finish(self, request)
        self._count_soon()
        return reply

    def count(self, account: str, api: str, operation: str, *, failed: bool) -> None:
        """Count a call of an account; see ``UsageMeter.count``."""
        self._counts.calls.append((account, api, operation, failed))

    @property
    def is_searching(self) -> bool:
        """True while searches wait or run."""
        return bool(self._searching)

    def begin(self) -> None:
        """Allow searches: the channel is connected."""
        self._search.begin()

    def take(self, found: LookupResult) -> None:
        """Take the result of a search."""
        self._search.take(found)

    def stop(self) -> None:
        """Send counts at once from now on, because the worker is about to end."""
        self._is_stopping = True
        self._send_counts()

    def close(self) -> None:
        """End the searches."""
        self._search.close()
        self._thread.shutdown(cancel_futures=True)
        self._window.close()

    def _note_cost(self, rows: int, seconds: float) -> None:
        self._costs.append((rows, seconds))

    def _count_soon(self) -> None:
        if self._counting is None:
            delay = 0.0 if self._is_stopping else COUNT_SECONDS
            self._counting = asyncio.get_running_loop().call_later(delay, self._send_counts)

    def _send_counts(self) -> None:
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None
        counts, self._counts = self._counts, Counts([], [], [])
        if counts.requests:
            self._channel.send(counts)

    def _prepare(self, request: ServedRequest, scope: AsgiScope) -> None:
        """Start a search for the key, or for the job and series of the question. The next request uses the result.

        A key is searched for once the storage process has authenticated the call: unknown tokens cost no search.
        """
        missed, call, rule = self._executor.missed, request.call, request.rule

        def authenticated() -> None:
            call.authenticated()
            self._begin(call.header("authorization"), lambda: self._authenticator.identify(call, rule.schemes))

        if missed is not None:
            self._begin(*missed)
        elif request.scope is None and rule.action is not None:
            scope["extensions"] = {"jobmeter.call": {"authenticated": authenticated}}

    def _begin(self, name: Hashable, work: Callable[[], object] | None) -> None:
        if work is None or name in self._searching or len(self._searching) >= _MOST_WAITING:
            return
        if self._allowance.take(1, self._clock.monotonic()):
            self._searching.add(name)
            self._thread.submit(self._run, name, work)

    def _run(self, name: Hashable, work: Callable[[], object]) -> None:
        try:
            work()
        except (JobmeterError, OwnerNeededError):
            pass  # the storage process reports the error to the client
        except Exception:  # noqa: BLE001 - the next request searches again
            _log.exception("a search of a worker failed")
        finally:
            self._searching.discard(name)

"""Answers of a worker process to live questions, from the storage process's window and from cached records.

A worker answers a call with a key's token or signature, if all data is in memory. It runs the same steps as the storage
process (``answer_from_memory``). Sessions and the audit log exist only in the storage process: every use in a worker
raises OwnerNeededError. Nonces, rates and budgets exist only there too: the storage process admits an answer that needs
them before the worker sends the answer. The worker forwards every other call, and every call that it would refuse.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec

from jobmeter.access.authenticate import Authenticator
from jobmeter.access.call import Call, Claim, ClaimKind, Scheme
from jobmeter.access.forwarded import TrustedProxies, parse_public_url
from jobmeter.access.limit import Budget, parse_budget, parse_rates
from jobmeter.access.principal import Scope
from jobmeter.dialects.base import Answer
from jobmeter.errors import JobmeterError
from jobmeter.model.question import Question
from jobmeter.model.time import Clock, SystemClock
from jobmeter.model.token_bucket import TokenBucket
from jobmeter.query.execute import Executor
from jobmeter.server.admission import Admission
from jobmeter.server.edge import Edge
from jobmeter.server.exchange import AsgiScope, Exchange, Message, Receive, Reply, Send
from jobmeter.server.native.metrics import ENCODERS
from jobmeter.server.pipeline import Handler, PublicHandler, ServedRequest, answer_from_memory, check_headers, finish
from jobmeter.server.routing import list_routers
from jobmeter.server.services import Services
from jobmeter.server.workers.admissions import Admissions, NotedNonces, NotedRates
from jobmeter.server.workers.frames import AdmissionRequest, AdmissionResult, Counts, LookupResult, SamplesStored, Setup
from jobmeter.server.workers.owned import OwnedPart, OwnerNeededError
from jobmeter.server.workers.records import RecordSearch, WorkerRegistry, WorkerStore
from jobmeter.server.workers.samples import WorkerPipeline, WorkerTelemetry
from jobmeter.settings import Settings
from jobmeter.store.cache import Cache
from jobmeter.store.channel import Channel
from jobmeter.store.window.revisions import KEYS
from jobmeter.store.window.shared import SharedWindow
from jobmeter.wire.native.series_lists import ListDigester

_log = logging.getLogger("jobmeter.server")

R = TypeVar("R")

_METHODS = frozenset({"GET", "POST"})

CACHE_BYTES = 16 * 2**20
"""Bytes of a worker's cache of records and layouts."""
COUNT_SECONDS = 0.05
"""Seconds between two messages with counts of answers."""
_SEARCHES_A_SECOND, _SEARCHES_AT_ONCE = 50, 200
"""Rate limit and burst of a worker's searches. A search costs the storage process more than an answer."""
_MOST_WAITING = 100
"""Largest number of waiting and running searches."""


class _KeyAuthenticator(Authenticator):
    """Authenticator of a key's token and signature: every other credential needs parts of the storage process.

    ``search`` runs a function on the thread of the searches, once at a time for each name.
    """

    def __init__(self, *parts: Any, search: Callable[[Hashable, Callable[[], object]], None]) -> None:  # noqa: ANN401
        super().__init__(*parts)
        self._search = search

    def find(self, call: Call, schemes: Sequence[Scheme]) -> tuple[Scheme, Claim]:
        scheme, claim = super().find(call, schemes)
        if claim.kind not in {ClaimKind.TOKEN, ClaimKind.ACCESS_KEY}:
            raise OwnerNeededError(claim.kind)
        return scheme, claim

    def _renew_soon(self, name: bytes | str) -> None:
        # So calls need not be forwarded each second, when the key expires.
        self._search(name, lambda: self._load(name))


class _OwnCall(msgspec.Struct, eq=False):
    """Call that the worker tries to answer itself. ``scope`` belongs to the connection."""

    scope: AsgiScope
    exchange: Exchange
    request: ServedRequest
    handler: Handler
    began: float

    def keep_open(self) -> None:
        """Keep the connection open after the answer: its client has a key."""
        self.scope["extensions"]["jobmeter.call"]["authenticated"]()


def _make_receive(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives this body before anything else."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


class _NotingExecutor(Executor):
    """Executor that notes the last question without an answer from memory, and the function that caches its data."""

    missed: tuple[Hashable, Callable[[], object] | None] | None = None

    def answer_from_memory(self, question: Question[R], scope: Scope) -> R | None:
        found = super().answer_from_memory(question, scope)
        if found is None:
            self.missed = question, self.make_preparation(question, scope)
        return found


class WorkerAnswers:
    """Answers calls in a worker process. All but the searches runs on the event loop's thread."""

    def __init__(
        self,
        settings: Settings,
        window: SharedWindow,
        channel: Channel,
        clock: Clock = SystemClock(),  # noqa: B008
        digester: ListDigester | None = None,
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
        nonces, rates = NotedNonces(), NotedRates(self._clock, parse_rates(settings.rate_limits))
        self._admissions = Admissions(channel, nonces, rates)
        self._authenticator = _KeyAuthenticator(
            cast("Any", registry.keys),
            registry.keys.vault,
            self._clock,
            cast("Any", nonces),
            owned,
            lambda: window.revisions.get_revision((KEYS,)),
            search=self._begin,
        )
        self._pipeline = WorkerPipeline(channel, settings.limits, digester or ListDigester())
        parts: dict[str, Any] = dict.fromkeys(Services.__struct_fields__, owned)
        services = Services(
            **{
                **parts,
                "settings": settings,
                "public": parse_public_url(settings.public_url),
                "clock": self._clock,
                "executor": self._executor,
                "authenticator": self._authenticator,
                "limiter": rates,
                "admission": Admission(self._clock, Budget(), self._note_cost),
                "pipeline": self._pipeline,
                "telemetry": WorkerTelemetry(),
                "lanes": SimpleNamespace(read=None, write=None, control=None),
            }
        )
        budget = parse_budget(settings.query_budgets)
        self._has_budget = bool(budget.rows or budget.seconds)
        proxies = TrustedProxies.parse(settings.trusted_proxies)
        self._edge = Edge(list_routers(services), owned, owned, settings.limits.body_bytes, owned, proxies)
        self._proxies = proxies
        self._thread = ThreadPoolExecutor(1, "jobmeter-searches")
        self._allowance = TokenBucket(_SEARCHES_A_SECOND, _SEARCHES_AT_ONCE, self._clock.monotonic())
        self._searching: set[Hashable] = set()

    @classmethod
    def open(cls, setup: Setup, descriptor: int, channel: Channel) -> "WorkerAnswers | None":
        """Open the window of a file descriptor, and close the descriptor. None if the worker must forward all calls."""
        try:
            window = SharedWindow.open(descriptor)
        except (ValueError, ProcessLookupError) as error:
            _log.warning("this worker process forwards every request: %s", error)
            return None
        finally:
            os.close(descriptor)
        return cls(setup.settings, window, channel, digester=ListDigester(setup.digest_key))

    def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> Reply | Awaitable[Reply | Receive] | None:
        """Return the answer to a request; None if the storage process has to answer.

        An awaitable gives the answer later, or the function that receives the body of a call to forward.
        """
        answer: Reply | Awaitable[Reply | Receive] | None = None
        if scope["method"] in _METHODS and not self._window.ended:
            own = self._read_own_call(scope, receive, send)
            if own is not None and own.exchange.has_body:
                answer = self._answer_with_body(own, receive)
            elif own is not None:
                answer = self._answer(own, receive)
        if answer is None:
            self._send_counts()  # counts go first, so that the storage process counts in the order of the requests
        return answer

    def _read_own_call(self, scope: AsgiScope, receive: Receive, send: Send) -> _OwnCall | None:
        began = self._clock.monotonic()
        # Without the extensions: only an admitted call may keep its connection open.
        exchange = Exchange({**scope, "extensions": {}}, receive, send, self._proxies)
        router, handler = self._edge.find(exchange)
        if isinstance(handler, Exception | PublicHandler):
            return None
        return _OwnCall(scope, exchange, ServedRequest(exchange, router.name), handler, began)

    def _may_read_body(self, own: _OwnCall) -> bool:
        """Return True if the worker may read a small body: that of a question, or of a caller who may write.

        A call whose rate is limited is forwarded: another call may begin before its body is complete.
        """
        if not own.exchange.may_have_arrived or own.handler.rule.is_question:
            return own.exchange.may_have_arrived
        self._admissions.clear()
        self._executor.missed = None
        own.request.rule = own.handler.rule
        try:
            known = check_headers(own.handler.services, own.request, own.handler.find_project, from_memory=True)
        except (JobmeterError, OwnerNeededError):
            return False
        if not known:
            self._prepare(own)
        return known and self._admissions.request(own.request.principal, None) is None

    def _answer_with_body(self, own: _OwnCall, receive: Receive) -> Reply | Awaitable[Reply | Receive] | None:
        """Answer a call whose whole body has arrived; every other call with a body is forwarded."""
        exchange = own.exchange
        if not self._may_read_body(own) or not exchange.take_arrived_body(own.handler.memory_bytes, None):
            return None
        again = _make_receive(exchange.call.body, receive)
        answer = self._answer(own, again)
        exchange.close()
        return self._give_back(again) if answer is None else answer

    async def _give_back(self, receive: Receive) -> Receive:
        """Return the function that receives the body of a call to forward."""
        self._send_counts()
        return receive

    def _answer(self, own: _OwnCall, receive: Receive) -> Reply | Awaitable[Reply | Receive] | None:
        """Answer from memory; None if the storage process has to answer. ``receive`` is for a call to forward."""
        request, exchange = own.request, own.exchange
        self._executor.missed = None
        self._costs.clear()
        self._admissions.clear()
        try:
            answer = answer_from_memory(request, exchange, own.handler)
        except (JobmeterError, OwnerNeededError):
            return None
        except Exception:  # noqa: BLE001 - the storage process can answer it
            _log.exception("a worker could not answer %s; the storage process answers", exchange.call.raw_path)
            return None
        if answer is None:
            self._prepare(own)
            return None
        if not isinstance(answer, Answer):
            return self._await_answer(own, answer, receive)
        costs = self._costs.copy()
        limited = costs if self._has_budget and request.rule.is_question else None
        about = self._admissions.request(request.principal, limited)
        if about is not None:
            return self._await_admission(own, answer, about, costs if limited is None else [], receive)
        return self._finish(own, answer, costs)

    async def _await_answer(self, own: _OwnCall, answer: Awaitable[Answer], receive: Receive) -> Reply | Receive:
        """Return the reply once the storage process has stored the body, else the function for a call to forward.

        Such a call has no nonce and no limited rate (``_may_read_body``).
        """
        try:
            found = await answer
        except (JobmeterError, OwnerNeededError):
            self._send_counts()
            return receive
        return self._finish(own, found, [])

    async def _await_admission(
        self,
        own: _OwnCall,
        answer: Answer,
        about: Callable[[int], AdmissionRequest],
        costs: list[tuple[int, float]],
        receive: Receive,
    ) -> Reply | Receive:
        """Return the reply once the storage process has admitted the answer, else the function for a call to forward.

        ``costs`` are counted here: the storage process does not charge them.
        """
        if await self._admissions.admit(about):
            return self._finish(own, answer, costs)
        self._send_counts()
        return receive

    def _finish(self, own: _OwnCall, answer: Answer, costs: list[tuple[int, float]]) -> Reply:
        request = own.request
        own.keep_open()
        reply = own.exchange.build_reply(answer)
        self._counts.requests.append((request.router, reply.status, self._clock.monotonic() - own.began))
        self._counts.questions.extend(costs)
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

    def take(self, found: LookupResult | AdmissionResult | SamplesStored) -> None:
        """Take the result of a search, of an admission request, or of a body of samples."""
        if isinstance(found, AdmissionResult):
            self._admissions.take(found)
        elif isinstance(found, SamplesStored):
            self._pipeline.take(found)
        else:
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

    def _prepare(self, own: _OwnCall) -> None:
        """Start a search for the key, or for the job and series of the question. The next request uses the result.

        The search for a key starts after the storage process has authenticated the call: unknown tokens cost no search.
        """
        missed, call, rule = self._executor.missed, own.exchange.call, own.request.rule
        keep_open = own.scope["extensions"]["jobmeter.call"]["authenticated"]

        def authenticated() -> None:
            keep_open()
            try:
                _, claim = self._authenticator.find(call, rule.schemes)
            except OwnerNeededError:
                return  # a session, a link or a share token: only the storage process knows it
            self._begin((claim.kind, claim.value), lambda: self._authenticator.identify(call, rule.schemes))

        if missed is not None:
            self._begin(*missed)
        elif own.request.scope is None and rule.action is not None:
            own.scope["extensions"] = {"jobmeter.call": {"authenticated": authenticated}}

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

"""Composition root: builds a running application from settings."""

import logging
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from functools import partial

import msgspec

from jobmeter.access.audit import Audit
from jobmeter.access.authenticate import Authenticator
from jobmeter.access.forwarded import TrustedProxies, parse_public_url
from jobmeter.access.limit import RateLimiter, parse_budget, parse_rates
from jobmeter.access.memory import MemoryBudget
from jobmeter.access.months import Calendar
from jobmeter.access.nonces import NonceMemory, SharedNonces
from jobmeter.access.prices import load_prices
from jobmeter.access.session import LIFE_MS, MOST_ENDED, Sessions
from jobmeter.access.shared_rates import FLUSH_SECONDS, SharedRates
from jobmeter.access.usage import UsageMeter
from jobmeter.access.vault import Vault
from jobmeter.alerts.config import load_config
from jobmeter.alerts.rules import load_rules
from jobmeter.diagnose.registry import load_thresholds
from jobmeter.dialects.registry import list_dialects
from jobmeter.errors import ConfigurationError, JobmeterError
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.ingest.sender_cache import SenderCache
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import SECOND, Clock, SystemClock
from jobmeter.query.execute import Executor
from jobmeter.registry.base import Registry
from jobmeter.registry.database import POSTGRESQL
from jobmeter.registry.open import open_registry
from jobmeter.registry.refresh import READ_SECONDS
from jobmeter.server.admission import Admission, ConcurrencyLimiter, Lane
from jobmeter.server.alert_delivery import AlertDelivery, make_recorder
from jobmeter.server.alerting import Alerting
from jobmeter.server.background import (
    Background,
    Filling,
    Leased,
    Periodic,
    Work,
    make_loss_check,
    make_node_watch,
    make_pruning,
    roll_ups,
)
from jobmeter.server.diagnosing import Diagnosing
from jobmeter.server.edge import Edge
from jobmeter.server.exchange import AsgiScope, Receive, Send
from jobmeter.server.figures import iterate_finding_metrics, iterate_server_metrics
from jobmeter.server.live import Hub
from jobmeter.server.memory import Tidying
from jobmeter.server.missing import Recreate, check_complete
from jobmeter.server.native.metrics import ENCODERS
from jobmeter.server.opening import Opening
from jobmeter.server.routing import list_routers
from jobmeter.server.running import RunningJobs
from jobmeter.server.server_group import make_group_opener
from jobmeter.server.services import Lanes, Services
from jobmeter.server.tasks import Tasks
from jobmeter.server.telemetry import Telemetry
from jobmeter.server.workers.owner import raise_jobs, raise_keys
from jobmeter.settings import Settings
from jobmeter.ship.late import LateGroups
from jobmeter.ship.outbox import ShippingOutbox
from jobmeter.ship.settings import load as load_sinks
from jobmeter.ship.shipping import Shipping
from jobmeter.store.base import Store
from jobmeter.store.cache import Cache
from jobmeter.store.registry import is_shared, open_store
from jobmeter.store.window.store import WindowedStore

_log = logging.getLogger("jobmeter.server")

READ_THREADS, WRITE_THREADS, CONTROL_THREADS = 24, 16, 4
"""Threads of each lane. Readers exceed the running queries, so that a new caller can always be authenticated."""
WAITING = 512
NONCES, ENDED_SESSIONS, AUDIT = "nonces", "ended-sessions", "audit.log"
WINDOW_SECONDS = 7_200
CACHE_SHARE = 6
"""Divisor of ``window_bytes``: the query cache gets a sixth."""
SENDER_SHARE = 6
"""Divisor of ``window_bytes``: the cache of repeated sender data gets a sixth; the window gets the rest."""


class Application(msgspec.Struct, frozen=True):
    """ASGI application of a server with its services. Call ``close`` after the last request is answered."""

    edge: Edge
    services: Services
    background: Sequence[Background]

    def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request."""
        return self.edge(scope, receive, send)

    def start(self) -> None:
        """Start the background work."""
        self.services.registry.prepare()
        for work in self.background:
            work.start()
        self.services.shipping.start()

    def close(self) -> None:
        """Finish accepted work, then release all resources. Acknowledged data is durable even without this call."""
        for work in self.background:
            work.stop()
        self.services.shipping.stop()
        for lane in self.services.lanes.list_lanes():
            lane.close()
        with ExitStack() as stack:
            stack.callback(self.services.registry.close)
            stack.callback(self.services.sessions.close)
            stack.callback(self.services.store.close)
            stack.callback(self.services.nonces.close)  # first: afterwards another server may be alone
            stack.callback(self.services.pipeline.close)
            stack.callback(self._count_the_last)

    def _count_the_last(self) -> None:
        try:
            self.services.usage.flush()
        except JobmeterError as error:
            _log.warning("the API calls of the last second were not counted: %s", error.message)


def build(
    settings: Settings,
    clock: Clock | None = None,
    recreate: Recreate = Recreate(),  # noqa: B008 - frozen
    opening: Opening | None = None,
) -> Application:
    """Build the application; open and migrate its store and registry.

    ``recreate`` lists the missing parts that may be created again. ``opening`` is the engine if it is already being
    opened. Raises ConfigurationError or UnavailableError when the store or the registry is missing or cannot be
    opened.
    """
    clock = clock or SystemClock()
    with ExitStack() as opened:
        opening = opening or Opening(
            partial(
                open_store,
                settings.store_dsn,
                clock,
                settings.journals,
                discard=recreate.journals,
                peer_listen=settings.peer_listen,
                open_group=make_group_opener(settings),
            )
        )
        opened.callback(opening.close)
        registry = open_registry(settings.registry_url, settings.retention)
        opened.callback(registry.close)
        list_dialects()
        engine = opening.wait()
        opened.callback(engine.close)
        store = _add_window(engine, settings, clock)
        check_complete(settings, registry, store, recreate)
        application = assemble(settings, clock, registry, store, shared=is_shared(settings.store_dsn))
        opened.pop_all()
    return application


def assemble(
    settings: Settings, clock: Clock, registry: Registry, store: Store, *, shared: bool = False
) -> Application:
    """Build the application on an open store and registry; ``Application.close`` closes them.

    With ``shared`` other servers may use the same store and registry.
    """
    budget = parse_budget(settings.query_budgets)
    proxies = TrustedProxies.parse(settings.trusted_proxies)
    calendar = Calendar(settings.usage_zone)
    vault = Vault.load(settings)
    telemetry = Telemetry(clock)
    outbox = ShippingOutbox(store, registry, clock)
    shipping = Shipping(store, registry, clock, load_sinks(settings.sinks), outbox)
    nonces, rates = _admitted(settings, clock, registry, store, shared=shared)
    ended = NonceMemory(clock, settings.data / ENDED_SESSIONS, window_ms=LIFE_MS, most=MOST_ENDED)
    sessions = Sessions(vault, clock, nonces, ended)
    lanes = _lanes()
    cache, senders = _shared_memory(store, settings)
    executor = Executor(store, registry, clock, settings.limits, cache, ENCODERS)
    late = LateGroups(store, registry, clock, outbox)
    pipeline = IngestPipeline(store, registry, clock, settings.limits, senders, outbox.put, late)
    services = Services(
        settings=settings,
        public=parse_public_url(settings.public_url),
        clock=clock,
        registry=registry,
        store=store,
        vault=vault,
        nonces=nonces,
        sessions=sessions,
        authenticator=Authenticator(registry.keys, vault, clock, nonces, sessions, changed=partial(raise_keys, store)),
        limiter=RateLimiter(clock, parse_rates(settings.rate_limits), shared=rates),
        usage=UsageMeter(registry.usage.add, clock, calendar),
        calendar=calendar,
        prices=load_prices(settings.prices),
        audit=Audit(clock, settings.data / AUDIT),
        pipeline=pipeline,
        executor=executor,
        telemetry=telemetry,
        lanes=lanes,
        admission=Admission(clock, budget, telemetry.requests.count_question, rates),
        exports=ConcurrencyLimiter(budget.exports, clock),
        hub=Hub(lanes.read),
        memory=MemoryBudget(settings.request_bytes),
        thresholds=load_thresholds(settings.rules),
        shipping=shipping,
        alerting=_alerting(settings, clock, registry, executor, pipeline, shared=shared),
    )
    registry.memory.changed = partial(raise_jobs, store)
    telemetry.register(partial(iterate_server_metrics, services))
    works = _works(services, shared=shared)
    if rates is not None:
        works.append(Periodic("limits", FLUSH_SECONDS, rates.work))
    background = [Background(work, telemetry) for work in works]
    return Application(
        Edge(list_routers(services), telemetry, services.memory, settings.limits.body_bytes, services.usage, proxies),
        services,
        background,
    )


def _admitted(
    settings: Settings, clock: Clock, registry: Registry, store: Store, *, shared: bool
) -> tuple[NonceMemory, SharedRates | None]:
    """Return the nonces, and the shared rates if other servers may use the registry.

    With ``shared`` both are in the registry while other servers use the engine, which announce changed jobs.
    """
    file = settings.data / NONCES
    if registry.database.kind == POSTGRESQL:
        registry.refresh.join(store.engine_use, alone=not shared)
    if not shared or registry.database.kind != POSTGRESQL:
        return NonceMemory(clock, file), None
    use = store.engine_use
    nonces = SharedNonces(clock, file, registry.signatures, (lambda: None) if use is None else use.check)
    rates = SharedRates(clock, registry.rates)
    if use is not None:
        for listener in (rates.use_alone, nonces.use_alone):
            use.watch(listener)
    return nonces, rates


def _alerting(
    settings: Settings, clock: Clock, registry: Registry, executor: Executor, pipeline: IngestPipeline, *, shared: bool
) -> Alerting:
    """Read the rules and receivers of alerts. Raises ConfigurationError."""
    if settings.alert_shipped not in {"on", "off"}:
        raise ConfigurationError(f"JOBMETER_ALERT_SHIPPED must be on or off, got {settings.alert_shipped[:64]!r}")
    paths = [path.strip() for path in settings.alert_rules.split(",") if path.strip()]
    groups = load_rules(paths, shipped=settings.alert_shipped == "on")
    config = load_config(settings.alert_config)
    return Alerting(executor, registry, clock, settings, groups, config, make_recorder(pipeline), shared=shared)


def _works(services: Services, *, shared: bool) -> list[Work]:
    """List the background work. Work that must not run twice takes a lease when servers share a registry."""
    registry, store, clock, settings = services.registry, services.store, services.clock, services.settings
    executor, thresholds = services.executor, services.thresholds
    running = RunningJobs(executor, registry, thresholds, clock, shared=shared, task_seconds=settings.task_seconds)
    services.telemetry.register(partial(iterate_finding_metrics, running))
    works: list[Work] = [
        roll_ups(store, clock, services.telemetry),
        make_loss_check(registry, clock, settings.lease_seconds),
        Diagnosing(executor, registry, thresholds, clock),
        Tasks(executor, registry, thresholds, clock),
        make_node_watch(registry, clock, settings.node_seconds),
    ]
    if shared:
        works = [Leased(work, registry.leases, clock) for work in works]
    alerting = services.alerting
    works += [alerting, AlertDelivery(alerting.config, executor, registry, clock, thresholds, shared=shared)]
    works += [running, make_pruning(registry, clock), Tidying(settings.data), services.usage]
    if registry.database.kind == POSTGRESQL:
        works.append(Periodic("records", READ_SECONDS, registry.refresh.read_unannounced))
    if isinstance(store, WindowedStore):
        works.append(Filling(store, clock))
    return works


def _shared_memory(store: Store, settings: Settings) -> tuple[Cache, SenderCache]:
    """Return the caches of queries and of senders. They use the cache and the table of series of a window."""
    cache, series = Cache(settings.window_bytes // CACHE_SHARE), SeriesTable()
    if isinstance(store, WindowedStore):
        cache, series = store.cache, store.window.series
    return cache, SenderCache(series, settings.window_bytes // SENDER_SHARE)


def _lanes() -> Lanes:
    return Lanes(
        read=Lane("read", READ_THREADS, WAITING),
        write=Lane("write", WRITE_THREADS, WAITING),
        control=Lane("control", CONTROL_THREADS, WAITING),
    )


def _add_window(engine: Store, settings: Settings, clock: Clock) -> Store:
    """Put a hot window in front of the engine, unless the settings disable it.

    If other servers may exist and the engine does not report them, the window is off by default.
    """
    unaware = is_shared(settings.store_dsn) and engine.engine_use is None
    seconds = settings.window_seconds
    if seconds is None:
        seconds = 0 if unaware else WINDOW_SECONDS
        if unaware:
            _log.info(
                "the newest samples are not cached in memory because other servers may write to the same engine; "
                "if no other server does, set JOBMETER_WINDOW_SECONDS=%d to speed up recent queries",
                WINDOW_SECONDS,
            )
    elif seconds and unaware:
        _log.warning(
            "the newest samples are cached in memory: answers lack samples that other servers write to the same engine"
        )
    if not seconds:
        return engine
    cache = Cache(settings.window_bytes // CACHE_SHARE)
    bound = settings.window_bytes - settings.window_bytes // CACHE_SHARE - settings.window_bytes // SENDER_SHARE
    return WindowedStore(engine, clock, length_ms=seconds * SECOND, bound=bound, cache=cache)

"""Shared services of the routers, created once by the composition root."""

from collections.abc import Sequence

import msgspec

from jobmeter.access.audit import Audit
from jobmeter.access.authenticate import Authenticator
from jobmeter.access.forwarded import PublicAddress
from jobmeter.access.limit import RateLimiter
from jobmeter.access.memory import MemoryBudget
from jobmeter.access.months import Calendar
from jobmeter.access.nonces import NonceMemory
from jobmeter.access.prices import Prices
from jobmeter.access.session import Sessions
from jobmeter.access.usage import UsageMeter
from jobmeter.access.vault import Vault
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.model.time import Clock
from jobmeter.query.execute import Executor
from jobmeter.registry.base import Registry
from jobmeter.server.admission import Admission, ConcurrencyLimiter, Lane
from jobmeter.server.alerting import Alerting
from jobmeter.server.live import Hub
from jobmeter.server.telemetry import Telemetry
from jobmeter.settings import Settings
from jobmeter.ship.shipping import Shipping
from jobmeter.store.base import Store


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """Threads by kind of work, so that one kind does not block another."""

    read: Lane
    """Lane of queries."""
    write: Lane
    """Lane of ingest; a thread waits until its samples are durable."""
    control: Lane
    """Lane of health, status and backup."""

    def list_lanes(self) -> Sequence[Lane]:
        """List every lane."""
        return (self.read, self.write, self.control)


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a running server. Each is thread-safe."""

    settings: Settings
    public: PublicAddress | None
    """Public address from the settings."""
    clock: Clock
    registry: Registry
    store: Store
    vault: Vault
    nonces: NonceMemory
    sessions: Sessions
    authenticator: Authenticator
    limiter: RateLimiter
    usage: UsageMeter
    calendar: Calendar
    prices: Prices
    audit: Audit
    pipeline: IngestPipeline
    executor: Executor
    telemetry: Telemetry
    lanes: Lanes
    admission: Admission
    exports: ConcurrencyLimiter
    hub: Hub
    memory: MemoryBudget
    """Memory budget of all running requests."""
    thresholds: Thresholds
    shipping: Shipping
    alerting: Alerting

    @property
    def public_url(self) -> str:
        """Public address of the server, empty if the settings have none."""
        return "" if self.public is None else self.public.url

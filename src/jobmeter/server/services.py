"""What the doors work with: made once by the composition root, shared by every request."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobmeter.access.audit import Audit
from jobmeter.access.authenticate import Authenticator
from jobmeter.access.limit import RateLimiter
from jobmeter.access.memory import MemoryBudget
from jobmeter.access.nonces import NonceMemory
from jobmeter.access.session import Sessions
from jobmeter.access.vault import Vault
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.ingest.funnel import Funnel
from jobmeter.model.time import Clock
from jobmeter.query.execute import Executor
from jobmeter.registry.base import Registry
from jobmeter.server.live import Hub
from jobmeter.server.telemetry import Telemetry
from jobmeter.server.turns import Seats, Turns
from jobmeter.server.work import Lane
from jobmeter.settings import Settings
from jobmeter.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Threads by kind of work, so that one kind does not hold up another."""

    read: Lane
    """Questions."""
    write: Lane
    """Ingest; a thread waits until its samples are durable."""
    control: Lane
    """Health, status, backup."""

    def all(self) -> Sequence[Lane]:
        """Every lane."""
        return (self.read, self.write, self.control)


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of a running server. Each is safe to use from several threads."""

    settings: Settings
    clock: Clock
    registry: Registry
    store: Store
    vault: Vault
    nonces: NonceMemory
    sessions: Sessions
    authenticator: Authenticator
    limiter: RateLimiter
    audit: Audit
    funnel: Funnel
    executor: Executor
    telemetry: Telemetry
    lanes: Lanes
    turns: Turns
    exports: Seats
    hub: Hub
    memory: MemoryBudget
    """What the requests under way may take."""
    thresholds: Thresholds

"""Cost of queries, and the total cost of one request.

An operation may run many queries. The server opens a request's account in the context of the answering thread; every
query there spends from the same budget. Without an account each query has its own.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field

import msgspec

from jobmeter.errors import LimitExceededError, LongQuestionError, QueryTimeoutError
from jobmeter.model.time import Clock
from jobmeter.settings import Limits
from jobmeter.store.base import ReadBudget, Tier

_NAMES = {None: "raw", Tier.MINUTE: "minute", Tier.HOUR: "hour"}


class QueryCost(msgspec.Struct, eq=False):
    """Cost of one request: its start (monotonic seconds) and the stored rows read.

    ``planned`` are rows that were to be read from the store: more than ``short_rows`` raise LongQuestionError.
    ``short_rows`` is unset for a request without that limit. ``counted`` are the rows already charged to the key.
    """

    since: float
    rows: int = 0
    counted: int = 0
    planned: int = 0
    short_rows: int | None = None


ACCOUNT: ContextVar[QueryCost | None] = ContextVar("account", default=None)
"""Account of the request that this thread is answering."""


@dataclass(slots=True, eq=False)
class Meter:
    """Cost of one query so far, and the rest of its request's budget."""

    clock: Clock
    limits: Limits
    started: float = 0.0
    rows: int = 0
    tiers: set[str] = field(default_factory=set)
    spent: QueryCost = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()
        self.spent = ACCOUNT.get() or QueryCost(self.started)

    def make_budget(self, expected: int = 0) -> ReadBudget:
        """Return the remaining budget for a read of about ``expected`` rows.

        Raises LimitExceededError or QueryTimeoutError when it is used up, LongQuestionError if a short question reads
        too much.
        """
        self.spent.planned += expected
        if self.spent.short_rows is not None and self.spent.planned > self.spent.short_rows:
            raise LongQuestionError
        rows = self.limits.query_rows - self.spent.rows
        seconds = self.limits.query_seconds - (self.clock.monotonic() - self.spent.since)
        self._check()
        if seconds <= 0:
            raise QueryTimeoutError(f"the question took longer than {self.limits.query_seconds} s")
        return ReadBudget(rows=rows, seconds=seconds)

    def count(self, rows: int, tier: Tier | None) -> None:
        """Count rows that were read, and their source. Raises LimitExceededError beyond the limit."""
        self.rows += rows
        self.spent.rows += rows
        if rows:
            self.tiers.add(_NAMES[tier])
        self._check()

    def count_cached(self, rows: int, tiers: frozenset[str]) -> None:
        """Count values cached from an earlier question, and their sources. Raises as ``count``."""
        self.count(rows, None)
        self.tiers = (self.tiers - {_NAMES[None]}) | tiers

    def _check(self) -> None:
        if self.spent.rows > self.limits.query_rows:
            raise LimitExceededError(f"a question may read {self.limits.query_rows} stored rows", "range")

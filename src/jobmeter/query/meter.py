"""What a query costs, and what one request has spent over all its queries.

An operation may run many queries. The server of a request opens its account in the context of the thread that
answers it; every query there spends from the same budget. Without an account each query has its own.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field

import msgspec

from jobmeter.errors import LimitExceededError, LongQuestionError, QueryTimeoutError
from jobmeter.model.time import Clock
from jobmeter.settings import Limits
from jobmeter.store.base import ReadBudget, Tier

_NAMES = {None: "raw", Tier.MINUTE: "minute", Tier.HOUR: "hour"}


class Spent(msgspec.Struct, eq=False):
    """Since when (the clock's monotonic seconds), and how many stored rows were read. Belongs to one request.

    ``planned`` are those that were to be read from the store: LongQuestionError beyond ``short_rows``, which is None
    for a request that may take its time. ``counted`` are the rows that the key was charged for.
    """

    since: float
    rows: int = 0
    counted: int = 0
    planned: int = 0
    short_rows: int | None = None


ACCOUNT: ContextVar[Spent | None] = ContextVar("account", default=None)
"""The account of the request that this thread answers now."""


@dataclass(slots=True, eq=False)
class Meter:
    """What one query has cost so far, and the rest of its request's budget."""

    clock: Clock
    limits: Limits
    started: float = 0.0
    rows: int = 0
    tiers: set[str] = field(default_factory=set)
    spent: Spent = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()
        self.spent = ACCOUNT.get() or Spent(self.started)

    def budget(self, expected: int = 0) -> ReadBudget:
        """What is left for a read of about so many rows.

        Raises LimitExceededError or QueryTimeoutError when nothing is, LongQuestionError for too much for a short one.
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
        """Note rows that were read, and from where. Raises LimitExceededError when they are more than there may be."""
        self.rows += rows
        self.spent.rows += rows
        if rows:
            self.tiers.add(_NAMES[tier])
        self._check()

    def count_cached(self, rows: int, tiers: frozenset[str]) -> None:
        """Note values that were cached from an earlier question, and what they were made from. Raises as ``count``."""
        self.count(rows, None)
        self.tiers = (self.tiers - {_NAMES[None]}) | tiers

    def _check(self) -> None:
        if self.spent.rows > self.limits.query_rows:
            raise LimitExceededError(f"a question may read {self.limits.query_rows} stored rows", "range")

"""Meters the budget of a read."""

from time import monotonic
from typing import Self

import msgspec

from jobmeter.errors import LimitExceededError, QueryTimeoutError
from jobmeter.store.base import ReadBudget


class BudgetMeter(msgspec.Struct):
    """The rest of a budget: rows, and the time (of ``monotonic``) at which its ``seconds`` are over."""

    rows: int
    deadline: float
    seconds: float

    @classmethod
    def start(cls, budget: ReadBudget) -> Self:
        """Start a budget now."""
        return cls(budget.rows, monotonic() + budget.seconds, round(budget.seconds, 3))

    def take(self, rows: int) -> None:
        """Count rows. Raises LimitExceededError past the budget, QueryTimeoutError past the deadline."""
        self.rows -= rows
        if self.rows < 0:
            raise LimitExceededError("the question reads more stored rows than one may: narrow its range", "range")
        self.compute_seconds_left()

    def compute_seconds_left(self) -> float:
        """Return the remaining time. Raises QueryTimeoutError if none is left."""
        left = self.deadline - monotonic()
        if left <= 0:
            raise QueryTimeoutError("the question took longer than it may and was stopped")
        return left

    def compute_rest(self) -> ReadBudget:
        """Return the rest as a budget. Raises QueryTimeoutError if no time is left."""
        return ReadBudget(rows=self.rows, seconds=self.compute_seconds_left())

"""The bound of one query: how many values it may compute."""

from jobmeter.errors import LimitExceededError

LOOPED = 100
"""Cost, in values, of one round of a Python loop: it takes about as long as this many array elements."""


class EvaluationBudget:
    """Counts computed values. For one query, on one thread."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def spend(self, values: int) -> None:
        """Count values before they are computed. Raises LimitExceededError above the limit."""
        self._left -= values
        if self._left < 0:
            raise LimitExceededError(
                f"The query needs more than {self._most} values: use a shorter range, a longer step or fewer series.",
                "range",
            )

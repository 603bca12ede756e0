"""What one request has spent, over all its queries.

An operation may run many queries. The server of a request opens its account in the context of the thread that
answers it; every query there spends from the same budget. Without an account each query has its own.
"""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Spent:
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

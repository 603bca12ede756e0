"""Cache of encoded answers, valid while their sources are unchanged.

A dashboard with several viewers, or with frequent polls, repeats the question. An answer is valid while its series were
not written (``StoreMemory.write_revision``) and its ``Layout`` is the identical object. Samples expire without a write,
so an answer is valid at most to the end of the hour in which it was made.
"""

from collections.abc import Hashable

import msgspec

from jobmeter.query.layout import Layout
from jobmeter.query.request import EncodedQuestion, MetricQuery
from jobmeter.store.cache import Cache

_LARGEST = 2 * 2**20
_QUESTION, _NAME = 2_000, 150
"""Approximate memory of a question, and of each name in it, in bytes: many answers are shorter."""


class Validator(msgspec.Struct, frozen=True):
    """Sources of an answer: a layout, the limits of the job, and the last write to its series.

    ``hour`` is the hour since the epoch in which it was made. ``revision`` is the revision of roll-ups, if the answer
    may use them: it determines the reported tiers.
    """

    layout: Layout
    limits: dict[str, float]
    written: int
    hour: int
    revision: Hashable = None


class ResponseCache:
    """Cached answers by question. Thread-safe."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(self, question: EncodedQuestion, validator: Validator) -> tuple[bytes, int] | None:
        """Return the answer and the rows read for it; None if it is not valid."""
        found: tuple[bytes, int] | None = self._cache.get((question.query, question.form), validator)
        return found

    def put(self, question: EncodedQuestion, validator: Validator, answer: bytes, rows: int) -> None:
        """Cache an answer for which ``rows`` rows were read. Build ``validator`` before the answer."""
        if len(answer) <= _LARGEST:
            name = (question.query, question.form)
            self._cache.put(name, validator, (answer, rows), estimate_size(question.query, answer))


def estimate_size(query: MetricQuery, answer: bytes) -> int:
    """Estimate the memory of a cached answer in bytes."""
    names = len(query.metrics) + len(query.replicas) + len(query.devices) + len(query.labels)
    return len(answer) + _QUESTION + _NAME * names

"""Encoded answers, cached while nothing that they were made from has changed.

A dashboard that several people look at, or that polls more often than samples come, sends the same question again. An
answer is valid while nobody wrote to its series (``Memory.written``) and its ``Layout`` is the very same. Samples whose
time is over go without a write: an answer is valid to the end of the hour in which it was made at most.
"""

from collections.abc import Hashable

import msgspec

from jobmeter.query.layout import Layout
from jobmeter.query.request import EncodedQuestion, MetricQuery
from jobmeter.store.cache import Cache

_LARGEST = 2 * 2**20
_QUESTION, _NAME = 2_000, 150
"""What a question takes, about, and each name in it: many answers are shorter."""


class Validator(msgspec.Struct, frozen=True):
    """What an answer was made from: a layout, the limits of the job, and the last write to its series.

    ``hour``: in which hour since the epoch that was so. ``revision``: that of roll-ups, where the answer may be made of
    them: it tells which tiers it comes from.
    """

    layout: Layout
    limits: dict[str, float]
    written: int
    hour: int
    revision: Hashable = None


class ResponseCache:
    """Answers by question, in the cache. Safe to use from any thread."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(self, question: EncodedQuestion, validator: Validator) -> tuple[bytes, int] | None:
        """The answer and how many rows were read for it; None where it is no longer valid."""
        found: tuple[bytes, int] | None = self._cache.get((question.query, question.form), validator)
        return found

    def put(self, question: EncodedQuestion, validator: Validator, answer: bytes, rows: int) -> None:
        """Cache an answer for which so many rows were read. ``validator`` was taken before it was made."""
        if len(answer) <= _LARGEST:
            name = (question.query, question.form)
            self._cache.put(name, validator, (answer, rows), size_of(question.query, answer))


def size_of(query: MetricQuery, answer: bytes) -> int:
    """Memory that a cached answer takes, about."""
    names = len(query.metrics) + len(query.replicas) + len(query.devices) + len(query.labels)
    return len(answer) + _QUESTION + _NAME * names

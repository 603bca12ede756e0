"""Encoded answers, kept while nothing that they were made from has changed.

A dashboard that several people look at, or that asks more often than samples come, asks the same thing again. Whether
an answer still holds is known exactly: nobody wrote to its series (``Store.written``), and the registry and the store
say the same of the job and its series (its ``Layout`` is the very same). Samples whose time is over go without a write:
an answer holds to the end of the hour in which it was made, and outlives them by no more than that.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from jobmeter.query.layout import Layout
from jobmeter.query.request import MetricQuery

BOUND = 64 * 2**20
"""Bytes of answers that are kept at most, with their questions."""
_LARGEST = 2 * 2**20
_QUESTION, _NAME = 2_000, 150
"""What a question takes, about, and each name in it: many answers are shorter."""


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """What an answer was made from: a layout, the limits of the job, and the last write to its series.

    ``hour``: in which hour since the epoch that was so. ``revision``: that of roll-ups, where the answer may be made of
    them: it tells which tiers it comes from.
    """

    layout: Layout
    limits: dict[str, float]
    written: int
    hour: int
    revision: Hashable = None

    def agrees(self, other: "Witness") -> bool:
        """True when the same would be answered."""
        same_time = self.written == other.written and self.hour == other.hour and self.revision == other.revision
        return same_time and self.layout is other.layout and self.limits == other.limits


class Answers:
    """Answers by question, the least lately asked for going first. Safe to use from any thread."""

    def __init__(self, bound: int = BOUND) -> None:
        self._bound = bound
        self._kept: OrderedDict[MetricQuery, tuple[Witness, bytes, int]] = OrderedDict()
        self.bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, query: MetricQuery, witness: Witness) -> tuple[bytes, int] | None:
        """The answer and how many rows were read for it, where it still holds."""
        with self._lock:
            kept = self._kept.get(query)
            if kept is None or not kept[0].agrees(witness):
                return None
            self._kept.move_to_end(query)
        return kept[1:]

    def put(self, query: MetricQuery, witness: Witness, answer: bytes, rows: int) -> None:
        """Keep an answer for which so many rows were read. ``witness`` was taken before it was made."""
        if len(answer) > _LARGEST:
            return
        with self._lock:
            before = self._kept.pop(query, None)
            self.bytes += size_of(query, answer) - (size_of(query, before[1]) if before else 0)
            self._kept[query] = witness, answer, rows
            while self.bytes > self._bound:
                oldest, (_, text, _) = self._kept.popitem(last=False)
                self.bytes -= size_of(oldest, text)


def size_of(query: MetricQuery, answer: bytes) -> int:
    """Memory that a kept answer takes, about."""
    names = len(query.metrics) + len(query.replicas) + len(query.devices) + len(query.labels)
    return len(answer) + _QUESTION + _NAME * names

"""Series that other systems send, known again by their encoded labels: a look-up each, the rest in arrays."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters.place import Placed, place
from jobmeter.ingest.units import round_significant
from jobmeter.model.batch import Float64s, Int64s, SampleBatch, Uint32s
from jobmeter.model.series import Series
from jobmeter.model.time import MAX_TIME_MS

_MOST = 500_000
_UNKNOWN = -1
_REASONS = ("name", "labels")
"""Why a series is not kept; its slot is below ``_UNKNOWN``, in this order."""
_FIRST = 1024

Place = Callable[[Any, str], Placed]
"""The place of what a sender calls a series, in a project. Raises InvalidRequestError naming metric or labels."""


class _Known:
    """What is known of the series of one project: a slot for each of ours, and what to do with its values."""

    def __init__(self) -> None:
        self.slots: dict[bytes, int] = {}
        self.places: dict[Series, int] = {}
        self.series: list[Series] = []
        self.rules: Float64s = np.empty((_FIRST, 3))

    def learn(self, key: bytes, placed: Placed | str) -> int:
        """The slot of new labels."""
        if isinstance(placed, str):
            slot = _UNKNOWN - 1 - _REASONS.index(placed)
        else:
            slot = self.places.setdefault(placed.series, len(self.series))
            if slot == len(self.series):
                self._add(placed)
        self.slots[key] = slot
        return slot

    def _add(self, placed: Placed) -> None:
        if len(self.series) == len(self.rules):
            self.rules = np.r_[self.rules, np.empty_like(self.rules)]
        self.rules[len(self.series)] = placed.factor, placed.lowest, placed.highest
        self.series.append(placed.series)


class Places:
    """Places of series, kept between requests. Safe for several threads."""

    def __init__(self, place: Place = place) -> None:
        """``place``: by default, that of labels of Prometheus."""
        self._place = place
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], _Known] = {}

    def batch(
        self,
        names: tuple[str, str],
        keys: Sequence[bytes],
        labels: Callable[[int], Any],
        columns: tuple[Uint32s, Int64s, Float64s],
    ) -> tuple[SampleBatch, Counter[str]]:
        """The samples that can be kept, and the count of the others by reason: name, labels, time, value.

        ``names``: the project and the kind of key. ``keys`` stand for the labels of the series, which ``labels`` reads
        by position; ``columns`` are index, time and value of the samples.
        """
        with self._lock:
            known = self._known.get(names)
            if known is None or len(known.slots) > _MOST:
                known = self._known[names] = _Known()
            slots = np.fromiter(map(known.slots.get, keys, repeat(_UNKNOWN)), np.int64, len(keys))
        new = [(at, self._placed(labels, at, names[0])) for at in np.flatnonzero(slots == _UNKNOWN).tolist()]
        with self._lock:
            for at, placed in new:
                slots[at] = known.learn(keys[at], placed)
            series, rules = known.series, known.rules
        index, time, value = columns
        refused: Counter[str] = Counter()
        row = slots[index]
        for reason, mask in ((reason, row == _UNKNOWN - 1 - at) for at, reason in enumerate(_REASONS)):
            refused[reason] += int(np.count_nonzero(mask))
        row, time, value = _kept(row >= 0, row, time, value)
        good = (time >= 0) & (time <= MAX_TIME_MS)
        refused["time"] += len(good) - int(np.count_nonzero(good))
        row, time, value = _kept(good, row, time, value)
        value = _in_our_units(value, rules[row, 0])
        good = (value >= rules[row, 1]) & (value <= rules[row, 2])
        refused["value"] += len(good) - int(np.count_nonzero(good))
        return _batch(series, *_kept(good, row, time, value)), +refused

    def _placed(self, labels: Callable[[int], Any], at: int, project: str) -> Placed | str:
        try:
            return self._place(labels(at), project)
        except InvalidRequestError as error:
            return "name" if error.field == "metric" else "labels"


def _kept(
    good: "np.typing.NDArray[np.bool_]", row: Int64s, time: Int64s, value: Float64s
) -> tuple[Int64s, Int64s, Float64s]:
    return (row, time, value) if good.all() else (row[good], time[good], value[good])


def _in_our_units(value: Float64s, factors: Float64s) -> Float64s:
    changed = factors != 1.0
    if not changed.any():
        return value
    value = value.copy()
    value[changed] = round_significant(value[changed] * factors[changed])
    return value


def _batch(series: Sequence[Series], row: Int64s, time: Int64s, value: Float64s) -> SampleBatch:
    """Only the series that have a sample, in the order in which the request has them."""
    first = np.full(len(series), -1, np.int64)
    first[row[::-1]] = np.arange(len(row) - 1, -1, -1)
    used = np.flatnonzero(first >= 0)
    used = used[np.argsort(first[used])]
    place_of = np.empty(len(series), np.uint32)
    place_of[used] = np.arange(len(used), dtype=np.uint32)
    return SampleBatch([series[at] for at in used.tolist()], place_of[row], time, value)

"""Detect gaps from sampling times, without sample values.

A step has the times of its first and last sample and their number. So a gap between steps is known to the millisecond;
for a gap inside a step only the number of missing samples is known.
"""

from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Bools, Float64s, Int64s, find_runs

FEWEST = 4
"""Fewest samples that reveal their interval."""
MISSING = 2
"""Missing samples in a row that count as a gap: a single one may have been taken late."""
_JITTER = 0.01
"""Share of the samples in a step that may be missing without a gap, because intervals vary."""
_MANY = 4
_FEWEST_STEPS = 7
"""Fewest steps with several samples each in which a gap is distinguishable from the usual pattern."""
_AROUND = 31
"""Fewest pauses that determine the usual interval, because an agent's interval may change."""


class Presence(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Sampling times: ``first`` and ``last`` of each step, int64[n] ms, ascending, and their ``count``."""

    first: Int64s
    last: Int64s
    count: Int64s

    @property
    def samples(self) -> int:
        """Number of samples."""
        return int(self.count.sum())

    @property
    def key(self) -> bytes:
        """Times and counts as bytes: equal for equal sampling times."""
        return b"".join((self.first.tobytes(), self.last.tobytes(), self.count.tobytes()))

    @classmethod
    def from_samples(cls, time: Int64s) -> "Presence":
        """Build the presence of steps with one sample each."""
        return cls(time, time, np.ones(len(time), np.int64))

    @cached_property
    def until(self) -> Int64s:
        """End of the time that the samples of each step cover, int64[n] ms.

        They cover the time up to the first sample of the next step. Before a gap they cover one interval after the last
        sample. Time that is missing inside a step is subtracted from the end of the step. A single sample covers no
        time.
        """
        start, end, count, sure = _pauses(self)
        if not len(start):
            return self.last
        length = (end - start).astype(np.float64)
        each = length / count
        usual = np.full(len(each), np.median(each[sure] if sure.any() else each))
        if sure.any() and len(_find_gaps(length, count, usual)[0]):  # the interval may have changed meanwhile
            usual = _find_usual_pause(each, sure)
        found, missing = _find_gaps(length, count, usual)
        lost = np.rint(missing * usual[found]).astype(np.int64)
        until: Int64s = np.append(self.first[1:], self.last[-1] + max(round(usual[-1]), 1))
        step = np.searchsorted(self.first, start[found], side="right") - 1
        between = start[found] == self.last[step]
        until[step[between]] = end[found][between] - lost[between]
        until[step[~between]] -= lost[~between]
        np.maximum(until, self.first + 1, out=until)
        return until

    @classmethod
    def combine(cls, first: Int64s, last: Int64s, count: Int64s, step_ms: int) -> "Presence":
        """Combine several series of one member, in any order: in each step the series with the most samples counts."""
        order = np.argsort(first, kind="stable")
        first, last, count = first[order], last[order], count[order]
        number = first // step_ms
        starts = find_runs(number)
        if len(starts) == len(first):
            return cls(first, last, count)
        return cls(first[starts], np.maximum.reduceat(last, starts), np.maximum.reduceat(count, starts))


class Gaps(msgspec.Struct, frozen=True, eq=False):
    """Gaps in order of time, and their number: see ``jobmeter.model.quality.SampleGap``.

    ``interval`` is the usual interval in milliseconds, None with too few samples or steps. ``lost_ms`` is the total
    length of the gaps.
    """

    start: Int64s
    end: Int64s
    missing: Int64s
    exact: Bools
    interval: float | None
    lost_ms: float

    def __len__(self) -> int:
        return len(self.start)


def find_gaps(presence: Presence) -> Gaps:
    """Find the gaps of a member with a regular interval, which may change during its life."""
    start, end, count, sure = _pauses(presence)
    enough = FEWEST - 1 if not sure.any() or count[sure].max() == 1 else _FEWEST_STEPS
    if presence.samples < FEWEST or sure.sum() < enough:
        none = np.empty(0, np.int64)
        return Gaps(none, none, none, np.empty(0, np.bool_), None, 0.0)
    length = (end - start).astype(np.float64)
    usual = _find_usual_pause(length / count, sure)
    found, missing = _find_gaps(length, count, usual)
    interval = float(np.sort(usual)[(len(usual) - 1) // 2])
    lost = float((missing * usual[found]).sum())
    return Gaps(start[found], end[found], missing, count[found] == 1, interval, lost)


def _find_gaps(length: Float64s, count: Int64s, usual: Float64s) -> tuple[NDArray[np.intp], Int64s]:
    """Return the pauses, each of ``count`` intervals, that are gaps, and the number of missing samples in each."""
    missing = np.rint(length / usual).astype(np.int64) - count
    found = np.flatnonzero(missing >= np.maximum(MISSING, count * _JITTER))
    return found, missing[found]


def _pauses(presence: Presence) -> tuple[Int64s, Int64s, Int64s, Bools]:
    """Return the pauses inside and between steps: start, end, number of intervals, and reliability.

    Reliable pauses determine the usual interval: the mean of a step with many samples is better than a single pause.
    """
    size = max(2 * len(presence.first) - 1, 0)
    start, end, count = np.empty(size, np.int64), np.empty(size, np.int64), np.ones(size, np.int64)
    sure = np.ones(size, np.bool_)
    start[::2], end[::2], count[::2] = presence.first, presence.last, presence.count - 1
    start[1::2], end[1::2] = presence.last[:-1], presence.first[1:]
    many = presence.count > _MANY
    sure[1::2] = ~(many[:-1] | many[1:])
    real = (count > 0) & (end > start)
    return start[real], end[real], count[real], sure[real]


def _find_usual_pause(length: Float64s, sure: Bools) -> Float64s:
    """Return for each pause the median of the reliable pauses around it; of two middle ones the lower."""
    measured = length[sure]
    if len(measured) <= _AROUND:
        return np.full(len(length), np.sort(measured)[(len(measured) - 1) // 2])
    around = np.lib.stride_tricks.sliding_window_view(measured, _AROUND)
    median = np.partition(around, _AROUND // 2, axis=1)[:, _AROUND // 2]
    places = np.cumsum(sure) - 1 - _AROUND // 2
    usual: Float64s = median[np.clip(places, 0, len(median) - 1)]
    return usual

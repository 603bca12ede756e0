"""Where samples are missing: arithmetic on when they were taken, without the samples themselves.

A step has the times of its first and last sample and their number. So a gap from one step to another is known to
the millisecond, and of one inside a step, how many samples are missing in it.
"""

from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Bools, Float64s, Int64s

FEWEST = 4
"""Samples below which nobody can say at which interval they were taken."""
MISSING = 2
"""Samples in a row that are missing in the shortest gap: one alone may have been taken late."""
_JITTER = 0.01
"""Share of the samples of one step that may be missing without notice: intervals are not all alike."""
_MANY = 4
_FEWEST_STEPS = 7
"""Of fewer steps with several samples in each, a gap in some could pass for what is usual."""
_AROUND = 31
"""Least number of pauses that gives the usual interval: an agent may be set to another interval."""


class Presence(msgspec.Struct, frozen=True, eq=False, dict=True):
    """When samples were taken: ``first`` and ``last`` of each step, int64[n] ms, ascending, and their ``count``."""

    first: Int64s
    last: Int64s
    count: Int64s

    @property
    def samples(self) -> int:
        """How many there are."""
        return int(self.count.sum())

    @property
    def key(self) -> bytes:
        """The times and counts as bytes: the same for what was sampled alike."""
        return b"".join((self.first.tobytes(), self.last.tobytes(), self.count.tobytes()))

    @classmethod
    def of_samples(cls, time: Int64s) -> "Presence":
        """The presence of steps with one sample each."""
        return cls(time, time, np.ones(len(time), np.int64))

    @cached_property
    def until(self) -> Int64s:
        """Until when the samples of each step stand for what was measured, int64[n] ms.

        They do so up to the first sample of the next step or, where a gap begins, for one interval after the last
        sample before the gap. Time that is missing inside a step is taken from the end of the step. A single sample
        stands for no time.
        """
        start, end, count, sure = _pauses(self)
        if not len(start):
            return self.last
        length = (end - start).astype(np.float64)
        each = length / count
        usual = np.full(len(each), np.median(each[sure] if sure.any() else each))
        if sure.any() and len(_missing(length, count, usual)[0]):  # the interval may have changed meanwhile
            usual = _usual(each, sure)
        found, missing = _missing(length, count, usual)
        lost = np.rint(missing * usual[found]).astype(np.int64)
        until: Int64s = np.append(self.first[1:], self.last[-1] + max(round(usual[-1]), 1))
        step = np.searchsorted(self.first, start[found], side="right") - 1
        between = start[found] == self.last[step]
        until[step[between]] = end[found][between] - lost[between]
        until[step[~between]] -= lost[~between]
        np.maximum(until, self.first + 1, out=until)
        return until

    @classmethod
    def joined(cls, first: Int64s, last: Int64s, count: Int64s, step_ms: int) -> "Presence":
        """Of several series that stand for one, in any order: of those in the same step the fullest one counts."""
        order = np.argsort(first, kind="stable")
        first, last, count = first[order], last[order], count[order]
        number = first // step_ms
        starts = np.flatnonzero(np.append(True, number[1:] != number[:-1])) if len(first) else np.empty(0, np.int64)
        if len(starts) == len(first):
            return cls(first, last, count)
        return cls(first[starts], np.maximum.reduceat(last, starts), np.maximum.reduceat(count, starts))


class Gaps(msgspec.Struct, frozen=True, eq=False):
    """Where samples are missing, in order of time, and how many: see ``jobmeter.model.quality.Gap``.

    ``interval`` is the usual one in milliseconds, None where there are too few samples or steps. ``lost_ms`` is
    how much of the time the gaps make up.
    """

    start: Int64s
    end: Int64s
    missing: Int64s
    exact: Bools
    interval: float | None
    lost_ms: float

    def __len__(self) -> int:
        return len(self.start)


def gaps(presence: Presence) -> Gaps:
    """The gaps of something that is sampled at an interval of its own, which may change during its life."""
    start, end, count, sure = _pauses(presence)
    enough = FEWEST - 1 if not sure.any() or count[sure].max() == 1 else _FEWEST_STEPS
    if presence.samples < FEWEST or sure.sum() < enough:
        none = np.empty(0, np.int64)
        return Gaps(none, none, none, np.empty(0, np.bool_), None, 0.0)
    length = (end - start).astype(np.float64)
    usual = _usual(length / count, sure)
    found, missing = _missing(length, count, usual)
    interval = float(np.sort(usual)[(len(usual) - 1) // 2])
    lost = float((missing * usual[found]).sum())
    return Gaps(start[found], end[found], missing, count[found] == 1, interval, lost)


def _missing(length: Float64s, count: Int64s, usual: Float64s) -> tuple[NDArray[np.intp], Int64s]:
    """Return which pauses, each of ``count`` intervals, are gaps, and how many samples are missing in each of these."""
    missing = np.rint(length / usual).astype(np.int64) - count
    found = np.flatnonzero(missing >= np.maximum(MISSING, count * _JITTER))
    return found, missing[found]


def _pauses(presence: Presence) -> tuple[Int64s, Int64s, Int64s, Bools]:
    """What lies between samples: inside each step, and from each to the next; and how many pauses each stands for.

    And which of them give the usual interval: the mean of a step with many samples says more than one pause.
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


def _usual(length: Float64s, sure: Bools) -> Float64s:
    """For each pause the median of the sure ones around it, the lower one where there are two."""
    measured = length[sure]
    if len(measured) <= _AROUND:
        return np.full(len(length), np.sort(measured)[(len(measured) - 1) // 2])
    around = np.lib.stride_tricks.sliding_window_view(measured, _AROUND)
    median = np.partition(around, _AROUND // 2, axis=1)[:, _AROUND // 2]
    places = np.cumsum(sure) - 1 - _AROUND // 2
    usual: Float64s = median[np.clip(places, 0, len(median) - 1)]
    return usual

"""The samples of one series in memory: two columns that readers may hold on to while a writer goes on."""

from dataclasses import dataclass

import numpy as np

from jobmeter.model.batch import Float64s, Int64s

_FIRST_CAPACITY = 16
SAMPLE_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What a series held at one moment: ``time`` int64[n] ms ascending, each once, and ``value`` float64[n].

    ``since_ms``: every sample of the series at or after that time is here.
    """

    time: Int64s
    value: Float64s
    since_ms: int


class Column:
    """One series. One writer at a time; ``view`` may be called from any thread and never waits.

    Rows are only ever written behind the end that a view was given, so a view stays what it was. Everything else (a
    late sample, a repeated one, forgetting) makes new arrays.
    """

    __slots__ = ("_end", "_last_ms", "_time", "_value", "_view")

    def __init__(self, time: Int64s, value: Float64s, since_ms: int) -> None:
        """Begin with some samples, ascending in time, each time once."""
        self._time, self._value, self._end = time, value, len(time)
        self._view = View(time, value, since_ms)
        self._last_ms = int(time[-1]) if len(time) else 0

    @property
    def view(self) -> View:
        """What the series holds now."""
        return self._view

    @property
    def bytes(self) -> int:
        """Memory that the arrays take."""
        return len(self._time) * SAMPLE_BYTES

    @property
    def last_ms(self) -> int:
        """The time of the newest sample that was ever here, 0 without one."""
        return self._last_ms

    def write(self, time: Int64s, value: Float64s, keep_from_ms: int) -> None:
        """Add samples (ascending, each time once); what is older than ``keep_from_ms`` may be forgotten on the way."""
        since = self._view.since_ms
        self._last_ms = max(self._last_ms, int(time[-1]))
        if time[0] < since:
            fits = int(np.searchsorted(time, since))
            time, value = time[fits:], value[fits:]
            if not len(time):
                return
        if self._end and time[0] <= self._time[self._end - 1]:
            self._merge(time, value)
        else:
            self._extend(time, value, keep_from_ms)

    def forget(self, before_ms: int) -> None:
        """Drop samples before a time; from then on the column vouches for what comes after it only."""
        view = self._view
        if before_ms <= view.since_ms:
            return
        first = int(np.searchsorted(view.time, before_ms))
        self._adopt(view.time[first:].copy(), view.value[first:].copy(), before_ms)

    def _extend(self, time: Int64s, value: Float64s, keep_from_ms: int) -> None:
        end = self._end + len(time)
        if end > len(self._time):
            self.forget(keep_from_ms)
            end = self._end + len(time)
            capacity = max(_FIRST_CAPACITY, end + end // 2)
            self._time = np.concatenate([self._time[: self._end], np.empty(capacity - self._end, np.int64)])
            self._value = np.concatenate([self._value[: self._end], np.empty(capacity - self._end)])
        self._time[self._end : end] = time
        self._value[self._end : end] = value
        self._end = end
        self._view = View(self._time[:end], self._value[:end], self._view.since_ms)

    def _merge(self, time: Int64s, value: Float64s) -> None:
        view = self._view
        times = np.concatenate([view.time, time])
        order = np.argsort(times, kind="stable")
        times = times[order]
        values = np.concatenate([view.value, value])[order]
        # The stable order puts the newer of two equal times behind the older one: the last of a run wins.
        last = np.append(times[1:] != times[:-1], True)
        self._adopt(times[last], values[last], view.since_ms)

    def _adopt(self, time: Int64s, value: Float64s, since_ms: int) -> None:
        self._time, self._value, self._end = time, value, len(time)
        self._view = View(time, value, since_ms)

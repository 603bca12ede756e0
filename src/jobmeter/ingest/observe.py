"""What the registry must hear of samples: what is new at once, what merely goes on now and then."""

import threading
from collections.abc import Iterable
from typing import NamedTuple

from jobmeter.ingest.join import extremes
from jobmeter.model.batch import SampleBatch
from jobmeter.model.log import LogLine
from jobmeter.model.series import Series
from jobmeter.model.time import MINUTE, SECOND, Clock
from jobmeter.registry.base import Observation, Registry

NOTICEABLE_MS = 10 * SECOND
"""A live thing that went on for less than this waits for a quiet moment; where very many are live, for up to a minute.
"""
_MANY = 1_000
_LIVE_MS = MINUTE
_MOST = 1_000_000


class _Thing(NamedTuple):
    project: str
    job: str
    replica: str
    attempt: int
    cluster: str
    node: str
    device: str


_Times = tuple[int, int]


class Observer:
    """Tells the registry of batches that are kept. Safe for several threads.

    A thing (job, replica, node, device) that is new, began earlier than known, or went on noticeably is told before
    ``observe`` returns; so is everything that lies in the past, where no later batch will tell. The rest is told by
    ``flush``. Where more than a thousand things are known, up to a minute of what goes on waits for that, past or not:
    a sender that catches up would otherwise pay a row of the registry for each sample.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[_Thing, _Times] = {}
        self._waiting: dict[_Thing, _Times] = {}

    def observe(self, batch: SampleBatch) -> None:
        """Tell of one batch. A failure of the registry passes through, and all of it is told again the next time."""
        self._see(_things(batch))

    def observe_lines(self, lines: Iterable[LogLine]) -> None:
        """The same for log lines: they tell of jobs and replicas alone, since they do not name a node's cluster."""
        seen: dict[_Thing, _Times] = {}
        for line in lines:
            thing = _Thing(line.project, line.job, line.replica, line.attempt, "", "", "")
            time_ms = line.time_ns // 1_000_000
            seen[thing] = _widen(seen.get(thing), (time_ms, time_ms))
        self._see(seen)

    def _see(self, seen: dict[_Thing, _Times]) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            urgent = {thing: times for thing, times in seen.items() if self._is_urgent(thing, times, now_ms)}
            for thing, times in seen.items():
                if thing not in urgent and times[1] > self._told[thing][1]:
                    self._waiting[thing] = _widen(self._waiting.get(thing), times)
        self._tell(urgent, now_ms)

    def flush(self) -> None:
        """Tell what waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        try:
            self._tell(waiting, self._clock.now_ms())
        except BaseException:
            with self._lock:
                for thing, times in waiting.items():
                    self._waiting[thing] = _widen(self._waiting.get(thing), times)
            raise

    def forget(self, project: str, job: str) -> None:
        """Take it that the registry no longer knows a job: the next sample of it makes it known again."""
        with self._lock:
            for table in (self._told, self._waiting):
                for thing in [thing for thing in table if thing.project == project and thing.job == job]:
                    del table[thing]

    def _is_urgent(self, thing: _Thing, times: _Times, now_ms: int) -> bool:
        told = self._told.get(thing)
        if told is None or times[0] < told[0]:
            return True
        gone_on = times[1] - told[1]
        many = len(self._told) // _MANY
        if many:
            return gone_on >= min(NOTICEABLE_MS * (1 + many), MINUTE)
        return gone_on >= NOTICEABLE_MS or (gone_on > 0 and times[1] < now_ms - _LIVE_MS)

    def _tell(self, things: dict[_Thing, _Times], now_ms: int) -> None:
        if not things:
            return
        self._registry.observe(list(_observations(things)), now_ms)
        with self._lock:
            if len(self._told) + len(things) > _MOST:
                self._told.clear()
            for thing, times in things.items():
                self._told[thing] = _widen(self._told.get(thing), times)


def _widen(known: _Times | None, times: _Times) -> _Times:
    return times if known is None else (min(known[0], times[0]), max(known[1], times[1]))


def _things(batch: SampleBatch) -> dict[_Thing, _Times]:
    positions, first, last = extremes(batch)
    seen: dict[_Thing, _Times] = {}
    for position, start, end in zip(positions.tolist(), first.tolist(), last.tolist(), strict=True):
        thing = _thing(batch.series[position])
        if thing.job or thing.node:
            seen[thing] = _widen(seen.get(thing), (start, end))
    return seen


def _thing(series: Series) -> _Thing:
    return _Thing(
        series.project, series.job, series.replica, series.attempt, series.cluster, series.node, series.device
    )


def _observations(things: dict[_Thing, _Times]) -> Iterable[Observation]:
    for thing, (first_ms, last_ms) in things.items():
        yield Observation(**thing._asdict(), first_ms=first_ms, last_ms=last_ms)

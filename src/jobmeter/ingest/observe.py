"""What the registry must hear of samples: what is new at once, what merely goes on now and then."""

import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np

from jobmeter.errors import UnavailableError
from jobmeter.ingest.things import NEVER, NOTHING, Seen, Spans, Thing, Things, merged
from jobmeter.model.batch import Int64s, SampleBatch
from jobmeter.model.log import LogLine
from jobmeter.model.time import MINUTE, SECOND, Clock
from jobmeter.registry.base import Registry

_LOG = logging.getLogger(__name__)
NOTICEABLE_MS = 10 * SECOND
"""A live thing that went on for less than this waits for a quiet moment; where very many are live, for up to a minute.
"""
_MANY = 1_000
_SOME, _LATELY_SECONDS = 8, 0.25
"""So many things that go on are told together, so many seconds after the ones before: requests that follow each other
quickly would pay for a transaction each."""
_TOGETHER = 2_000
"""So many that waited are told in one transaction, some 50 ms: samples that arrive meanwhile wait for its end."""
_ALONG = 500
"""So many that waited longest are told along with one that has to be told: a transaction for each of very many things
would cost ten times as much, and what is kept of a job is read again after each."""
_RETRY_SECONDS = 1.0
"""How often the registry is tried again that could not be reached."""
_UNREACHABLE = "the registry does not work now: what it was never told of is refused"
_LIVE_MS = MINUTE
_MOST = 1_000_000


class _Known:
    """Things, what the registry was told of them, and what it has yet to hear."""

    def __init__(self) -> None:
        self.things = Things()
        self.told = Spans()
        self.waiting = Spans()
        self._told_things = 0

    def urgent(self, seen: Seen, now_ms: int, *, lately: bool = False) -> tuple[Seen, Seen]:
        """What of this is to be told now, and what is told along with it; the rest waits, as far as it is news.

        ``lately``: the registry was told of something a moment ago, and hears of many that go on a moment later.
        """
        self._fit()
        gone_on = seen.last - self.told.last[seen.thing]
        many = self._told_things // _MANY
        urgent = gone_on >= (min(NOTICEABLE_MS * (1 + many), MINUTE) if many else NOTICEABLE_MS)
        if not many:
            urgent |= (gone_on > 0) & (seen.last < now_ms - _LIVE_MS)
        if lately and np.count_nonzero(urgent) >= _SOME:
            urgent[:] = False
        due = bool(many and urgent.any())
        # True of what was never seen, too.
        urgent |= seen.first < self.told.first[seen.thing]
        self.waiting.widen(seen.where(~urgent & (gone_on > 0)))
        return seen.where(urgent), self._longest_waiting() if due else NOTHING

    def _longest_waiting(self) -> Seen:
        """Those of which the registry heard longest ago, as many as are told along; they wait no longer."""
        waiting = self.waiting.all()
        if len(waiting.thing) > _ALONG:
            heard = self.told.last[waiting.thing]
            longest = np.zeros(len(heard), bool)
            longest[np.argpartition(heard, _ALONG)[:_ALONG]] = True
            waiting = waiting.where(longest)
        self.waiting.forget(waiting.thing)
        return waiting

    def all_told(self, seen: Seen) -> bool:
        """Whether the registry was told of every one of these before."""
        self._fit()
        return bool((self.told.first[seen.thing] != NEVER).all())

    def tell(self, seen: Seen) -> None:
        """Take it that the registry knows this."""
        self._told_things += int(np.count_nonzero(self.told.first[seen.thing] == NEVER))
        self.told.widen(seen)

    def wait(self, of: "_Known", seen: Seen) -> None:
        """Take it that the registry does not know this; its numbers are those of ``of``."""
        numbers = [self.things.number(thing) for thing in of.things.of(seen)]
        self._fit()
        self.waiting.widen(seen._replace(thing=np.array(numbers, np.int64)))

    def forget(self, things: Int64s) -> None:
        """Take it that the registry does not know these any more."""
        self._fit()
        self._told_things -= int(np.count_nonzero(self.told.first[things] != NEVER))
        self.told.forget(things)
        self.waiting.forget(things)

    def _fit(self) -> None:
        self.told.fit(len(self.things))
        self.waiting.fit(len(self.things))


class Observer:
    """Tells the registry of batches that are kept. Safe for several threads.

    A thing (job, replica, node, device) that is new, began earlier than known, or went on noticeably is told before
    ``observe`` returns; so is everything that lies in the past, where no later batch will tell. The rest is told by
    ``flush``, and so are several things that go on a moment after others were told. Where more than a
    thousand things are known, up to a minute of what goes on waits for that, past or not:
    a sender that catches up would otherwise pay a row of the registry for each sample.

    While the registry cannot be reached, what it was told of before goes on: its times wait in memory, a row for each
    thing, and are told when it can be reached again. What it was never told of is refused.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._known = _Known()
        self._told_at = -_LATELY_SECONDS
        self._unreachable = False
        self._retry_at = 0.0
        self._behind = False

    def admit(self, batch: SampleBatch) -> None:
        """Raise UnavailableError where the registry would have to be told of the batch and cannot be reached.

        So a sender of something new is refused alone, before its samples share a commit with those of others.
        """
        if self._resting:
            with self._lock:
                known = self._current()
                told = known.all_told(known.things.seen(batch))
            if not told:
                raise UnavailableError(_UNREACHABLE)

    def observe(self, batch: SampleBatch) -> None:
        """Tell of one batch. A failure of the registry passes through, and all of it is told again the next time."""
        self.observe_all((batch,))

    def observe_all(self, batches: Sequence[SampleBatch]) -> None:
        """The same for several batches."""
        with self._lock:
            known = self._current()
            lately = self._clock.monotonic() - self._told_at < _LATELY_SECONDS
            seen = merged([known.things.seen(batch) for batch in batches])
            urgent, along = known.urgent(seen, self._clock.now_ms(), lately=lately)
        self._tell_or_wait(known, urgent, along)

    def observe_lines(self, lines: Iterable[LogLine]) -> None:
        """The same for log lines: they tell of jobs and replicas alone, since they do not name a node's cluster."""
        spans: dict[Thing, tuple[int, int]] = {}
        for line in lines:
            thing = Thing(line.project, line.job, line.replica, line.attempt, "", "", "")
            time_ms = line.time_ns // 1_000_000
            first, last = spans.get(thing, (time_ms, time_ms))
            spans[thing] = min(first, time_ms), max(last, time_ms)
        times = np.array(list(spans.values()), np.int64).reshape(-1, 2)
        with self._lock:
            known = self._current()
            numbers = np.array([known.things.number(thing) for thing in spans], np.int64)
            urgent, along = known.urgent(Seen(numbers, times[:, 0], times[:, 1]), self._clock.now_ms())
        self._tell_or_wait(known, urgent, along)

    def flush(self) -> bool:
        """Tell what waits, as much of it as takes a moment; True while more of it does."""
        with self._lock:
            known = self._known
            everything = known.waiting.all()
            waiting = everything.part(_TOGETHER)
            known.waiting.forget(waiting.thing)
        self._tell(known, NOTHING, waiting)
        return len(waiting.thing) < len(everything.thing)

    def forget(self, project: str, job: str) -> None:
        """Take it that the registry no longer knows a job: the next sample of it makes it known again."""
        with self._lock:
            self._known.forget(self._known.things.of_job(project, job))

    def _tell_or_wait(self, known: _Known, urgent: Seen, along: Seen) -> None:
        """Tell of both; where the registry cannot be reached they wait. Raises where it was never told of one."""
        if self._resting:
            self._postpone(known, along)
            self._postpone(known, urgent, UnavailableError(_UNREACHABLE))
            return
        before = self._unreachable
        try:
            self._tell(known, urgent, along)
        except UnavailableError as error:
            self._postpone(known, urgent, error)
            if not before:
                _LOG.warning("what samples tell waits for the registry: %s", error.message)
            return
        if self._behind:
            with suppress(UnavailableError):  # it waits on
                self._behind = self.flush()

    def _postpone(self, known: _Known, seen: Seen, error: UnavailableError | None = None) -> None:
        """Let it wait. Raises the error, if one is given, where the registry was never told of one of these."""
        with self._lock:
            if error is not None and not known.all_told(seen):
                raise error
            self._known.wait(known, seen)

    @property
    def _resting(self) -> bool:
        """True for a moment after the registry could not be reached."""
        return self._unreachable and self._clock.monotonic() < self._retry_at

    def _tell(self, known: _Known, urgent: Seen, waited: Seen) -> None:
        """Tell of both; what waited before waits on where that fails."""
        seen = merged([part for part in (urgent, waited) if len(part.thing)])
        if not len(seen.thing):
            return
        try:
            self._registry.observe(known.things.observations(seen), self._clock.now_ms())
        except BaseException as error:
            self._postpone(known, waited)
            if isinstance(error, UnavailableError):
                self._unreachable = self._behind = True
                self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
            raise
        self._unreachable = False
        self._told_at = self._clock.monotonic()
        with self._lock:
            known.tell(seen)

    def _current(self) -> _Known:
        if len(self._known.things) > _MOST:
            known = _Known()
            known.wait(self._known, self._known.waiting.all())
            self._known = known
        return self._known

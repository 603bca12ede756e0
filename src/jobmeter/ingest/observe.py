"""Reports jobs, replicas, nodes and devices of samples to the registry: new ones immediately, the others in batches."""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from jobmeter.errors import UnavailableError
from jobmeter.ingest.entities import NEVER, NOTHING, Entities, Entity, Sighting, Spans, merge_sightings
from jobmeter.model.batch import Int64s, SampleBatch
from jobmeter.model.log import LogLine
from jobmeter.model.log_batch import LogBatch, LogSource
from jobmeter.model.series_table import SeriesTable, grow
from jobmeter.model.span import Span
from jobmeter.model.time import MINUTE, NS_PER_MS, SECOND, Clock
from jobmeter.registry.base import Registry

_LOG = logging.getLogger(__name__)
NOTICEABLE_MS = 10 * SECOND
"""Smallest growth of an entity's last time that is reported at once; less waits for ``flush``.

With very many entities the threshold rises up to a minute, and a further report waits equally long. Otherwise a sender
that catches up would report hours of samples within seconds.
"""
_MANY = 1_000
_SOME, _LATELY_SECONDS = 8, 0.25
"""From this many entities on, an update within this many seconds of the last report waits.

Otherwise requests in quick succession would pay for a transaction each.
"""
_TOGETHER = 2_000
"""Most waiting entities in one transaction.

It takes about 50 ms, and samples that arrive meanwhile wait for its end.
"""
_ALONG = 500
"""Most waiting entities that are reported together with an urgent one, the oldest first.

Separate transactions would cost ten times as much, and each makes the registry read the rows of the job again.
"""
_RETRY_SECONDS = 1.0
"""Seconds between two attempts while the registry is unreachable."""
_UNREACHABLE = "the registry cannot be reached: samples of new jobs, replicas, nodes and devices are refused"
_LIVE_MS = MINUTE
_MOST = 1_000_000


def _sources(lines: Iterable[LogLine | Span]) -> Iterator[tuple[LogLine | Span | LogSource, int, int]]:
    """Yield the source of the lines, with their first and last time."""
    if isinstance(lines, LogBatch):
        yield from lines.list_source_spans()
        return
    for line in lines:
        yield line, line.time_ns, line.time_ns


class _ReportedSpans:
    """Entities, the times of them that were reported to the registry, and the times that wait to be reported."""

    def __init__(self, entities: Entities) -> None:
        self.entities = entities
        self.reported = Spans()
        self.waiting = Spans()
        self._reported_ms: Int64s = np.empty(0, np.int64)  # time of the last report by the clock
        self._reported_entities = 0

    def split_urgent(self, sighting: Sighting, now_ms: int, *, lately: bool = False) -> tuple[Sighting, Sighting]:
        """Split a sighting into the entities to report now, and the waiting ones to report with them.

        The rest waits. ``lately``: the last report is less than ``_LATELY_SECONDS`` ago, so an update of many known
        entities waits.
        """
        self._fit()
        gone_on = sighting.last - self.reported.last[sighting.entity]
        many = self._reported_entities // _MANY
        noticeable_ms = min(NOTICEABLE_MS * (1 + many), MINUTE)
        urgent = gone_on >= noticeable_ms
        if many:
            urgent &= np.abs(now_ms - self._reported_ms[sighting.entity]) >= noticeable_ms
        else:
            urgent |= (gone_on > 0) & (sighting.last < now_ms - _LIVE_MS)
        if lately and np.count_nonzero(urgent) >= _SOME:
            urgent[:] = False
        due = bool(many and urgent.any())
        # Also true of an entity that was never reported.
        urgent |= sighting.first < self.reported.first[sighting.entity]
        self.waiting.widen(sighting.select(~urgent & (gone_on > 0)))
        return sighting.select(urgent), self._pop_longest_waiting() if due else NOTHING

    def _pop_longest_waiting(self) -> Sighting:
        """Remove and return the ``_ALONG`` waiting entities whose last report is oldest."""
        waiting = self.waiting.list_all()
        if len(waiting.entity) > _ALONG:
            heard = self.reported.last[waiting.entity]
            longest = np.zeros(len(heard), bool)
            longest[np.argpartition(heard, _ALONG)[:_ALONG]] = True
            waiting = waiting.select(longest)
        self.waiting.forget(waiting.entity)
        return waiting

    def are_reported(self, sighting: Sighting) -> bool:
        """Return True if each of these entities was reported before."""
        self._fit()
        return bool((self.reported.first[sighting.entity] != NEVER).all())

    def note_reported(self, sighting: Sighting, now_ms: int) -> None:
        """Record that these times were reported."""
        self._reported_entities += int(np.count_nonzero(self.reported.first[sighting.entity] == NEVER))
        self.reported.widen(sighting)
        self._reported_ms[sighting.entity] = now_ms

    def wait(self, of: "_ReportedSpans", sighting: Sighting) -> None:
        """Add times to the waiting ones; ``of`` gave the entity numbers."""
        numbers = [self.entities.assign_number(entity) for entity in of.entities.get_entities(sighting)]
        self._fit()
        self.waiting.widen(sighting._replace(entity=np.array(numbers, np.int64)))

    def forget(self, entities: Int64s) -> None:
        """Treat these entities as never reported."""
        self._fit()
        self._reported_entities -= int(np.count_nonzero(self.reported.first[entities] != NEVER))
        self.reported.forget(entities)
        self.waiting.forget(entities)

    def _fit(self) -> None:
        self.reported.fit(len(self.entities))
        self.waiting.fit(len(self.entities))
        if len(self.reported.first) > len(self._reported_ms):
            self._reported_ms = grow(self._reported_ms, len(self.reported.first), 0)


class Observer:
    """Reports the entities of stored batches to the registry. Safe for several threads.

    An entity is a job, replica, node or device. ``observe`` reports it before it returns in four cases. The entity is
    new. Its first time is earlier than reported. Its last time grew by ``NOTICEABLE_MS``. Its samples are older than a
    minute, because no later batch may follow. ``flush`` reports the rest. With more than a thousand entities, up to a
    minute of progress waits for ``flush``, old samples included. Otherwise a sender that catches up would cost a
    registry row for each sample.

    While the registry is unreachable, entities that were reported before wait in memory, one row each. New entities are
    rejected.
    """

    def __init__(self, registry: Registry, clock: Clock, table: SeriesTable) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._table = table
        self._state = _ReportedSpans(Entities(table))
        self._reported_at = -_LATELY_SECONDS
        self._unreachable = False
        self._retry_at = 0.0
        self._behind = False

    def admit(self, batch: SampleBatch) -> None:
        """Raise UnavailableError for a batch with new entities while the registry is unreachable.

        So only this sender is rejected, before its samples share a group commit with other senders.
        """
        if self._resting:
            with self._lock:
                state = self._renew_if_full()
                reported = state.are_reported(state.entities.make_sighting(batch))
            if not reported:
                raise UnavailableError(_UNREACHABLE)

    def observe_all(self, batches: Sequence[SampleBatch]) -> None:
        """Report batches. Raises the registry's error; the next call then reports the same entities again."""
        with self._lock:
            state = self._renew_if_full()
            lately = self._clock.monotonic() - self._reported_at < _LATELY_SECONDS
            sighting = merge_sightings([state.entities.make_sighting(batch) for batch in batches])
            urgent, along = state.split_urgent(sighting, self._clock.now_ms(), lately=lately)
        self._report_or_defer(state, urgent, along)

    def observe_lines(self, lines: Iterable[LogLine | Span]) -> None:
        """Report log lines and spans: jobs and replicas only, because lines name no cluster.

        Lines of system logs report nothing.
        """
        spans: dict[Entity, tuple[int, int]] = {}
        for source, earliest, latest in _sources(lines):
            if not source.job or (not isinstance(source, Span) and source.facility):
                continue
            entity = Entity(source.project, source.job, source.replica, source.attempt, "", "", "")
            first, last = spans.get(entity, (NEVER, -NEVER))
            spans[entity] = min(first, earliest // NS_PER_MS), max(last, latest // NS_PER_MS)
        if not spans:
            return
        times = np.array(list(spans.values()), np.int64).reshape(-1, 2)
        with self._lock:
            state = self._renew_if_full()
            numbers = np.array([state.entities.assign_number(entity) for entity in spans], np.int64)
            urgent, along = state.split_urgent(Sighting(numbers, times[:, 0], times[:, 1]), self._clock.now_ms())
        self._report_or_defer(state, urgent, along)

    def flush(self) -> bool:
        """Report up to ``_TOGETHER`` waiting entities. Return True if more of them wait."""
        with self._lock:
            state = self._state
            everything = state.waiting.list_all()
            waiting = everything.select(slice(_TOGETHER))
            state.waiting.forget(waiting.entity)
        self._report(state, NOTHING, waiting)
        return len(waiting.entity) < len(everything.entity)

    def forget(self, project: str, job: str) -> None:
        """Treat a job as never reported: its next sample creates it in the registry again."""
        with self._lock:
            self._state.forget(self._state.entities.find_by_job(project, job))

    def _report_or_defer(self, state: _ReportedSpans, urgent: Sighting, along: Sighting) -> None:
        """Report an urgent sighting with waiting entities ``along``.

        While the registry is unreachable they wait. Raises UnavailableError if an urgent entity is new.
        """
        if self._resting:
            self._postpone(state, along)
            self._postpone(state, urgent, UnavailableError(_UNREACHABLE))
            return
        before = self._unreachable
        try:
            self._report(state, urgent, along)
        except UnavailableError as error:
            self._postpone(state, urgent, error)
            if not before:
                _LOG.warning("times of jobs, replicas and nodes wait for the registry: %s", error.message)
            return
        if self._behind:
            with suppress(UnavailableError):  # the entities stay waiting
                self._behind = self.flush()

    def _postpone(self, state: _ReportedSpans, sighting: Sighting, error: UnavailableError | None = None) -> None:
        """Let these entities wait. Raises the given error if any of them was never reported."""
        with self._lock:
            if error is not None and not state.are_reported(sighting):
                raise error
            self._state.wait(state, sighting)

    @property
    def _resting(self) -> bool:
        """True for ``_RETRY_SECONDS`` after the registry was unreachable."""
        return self._unreachable and self._clock.monotonic() < self._retry_at

    def _report(self, state: _ReportedSpans, urgent: Sighting, waited: Sighting) -> None:
        """Report an urgent sighting and entities that waited. After a failure the latter wait again."""
        sighting = merge_sightings([part for part in (urgent, waited) if len(part.entity)])
        if not len(sighting.entity):
            return
        try:
            self._registry.observe(state.entities.make_observations(sighting), self._clock.now_ms())
        except BaseException as error:
            self._postpone(state, waited)
            if isinstance(error, UnavailableError):
                self._unreachable = self._behind = True
                self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
            raise
        self._unreachable = False
        self._reported_at = self._clock.monotonic()
        with self._lock:
            state.note_reported(sighting, self._clock.now_ms())

    def _renew_if_full(self) -> _ReportedSpans:
        if len(self._state.entities) > _MOST:
            state = _ReportedSpans(Entities(self._table, self._state.entities.of_series))
            state.wait(self._state, self._state.waiting.list_all())
            self._state = state
        return self._state

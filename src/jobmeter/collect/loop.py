"""Loop of the agent: at every interval, run the collectors and put their samples into the outbox."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from threading import Event

from jobmeter.collect.agent_metrics import AgentMetrics
from jobmeter.collect.base import RecordSource, Samples
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.pods.jobs import PodJobs
from jobmeter.collect.worker import Outcome, Worker
from jobmeter.errors import InvalidRequestError
from jobmeter.model.record import Records
from jobmeter.wire.native.encode import make_records_frame, make_samples_frame

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Loop:
    """Ticks by the monotonic clock, so that a step of the wall clock changes no interval.

    Each function of ``watch`` gets the samples of every tick, and may return samples derived from them. ``refused``
    returns the counts of samples that the server refused. ``attribution`` renames samples and records before they go
    into the outbox.
    """

    workers: Sequence[Worker]
    sources: Sequence[RecordSource]
    outbox: Outbox
    metrics: AgentMetrics
    clock: SampleClock
    _: KW_ONLY
    watch: Sequence[Callable[[Samples], Samples | None]] = ()
    refused: Callable[[], dict[str, int]] = dict
    attribution: PodJobs | None = None
    _taken: int = 0
    _unfinite: int = 0

    def run(self, stop: Event, interval_ms: int, ramp_ms: Sequence[int] = ()) -> None:
        """Tick at once, after each of ``ramp_ms`` (milliseconds from the start), then every interval until ``stop``.

        A late tick is skipped. ``stop`` also ends the wait for collectors.
        """
        start = self.clock.monotonic()
        early = [ms for ms in ramp_ms if ms < interval_ms]
        turn = 0
        while True:
            self.tick(stop=stop)
            passed = (self.clock.monotonic() - start) * 1000
            due_ms = next((ms for ms in early if ms > passed), None)
            if due_ms is None:
                turn = max(turn + 1, int(passed // interval_ms) + 1)
                due_ms = turn * interval_ms
            if stop.wait(max(due_ms - passed, 0.0) / 1000):
                return

    def tick(self, *, force: bool = False, stop: Event | None = None, longest: float = math.inf) -> int | None:
        """Run the due collectors (``force``: all) and put their samples into the outbox. Return the samples' time.

        A collector that has not returned after ``longest`` seconds, or when ``stop`` is set, is skipped. While the
        clock gives no time (see ``SampleClock.stamp``), nothing runs and None is returned, unless ``force`` is set.
        """
        now_ms = self.clock.stamp(needed=force)
        if now_ms is None:
            return None
        started = self.clock.monotonic()
        running = [worker for worker in self.workers if worker.begin(now_ms, force=force)]
        outcomes = {worker.name: worker.finish(started + min(worker.timeout, longest), stop) for worker in running}
        samples = [sample for outcome in outcomes.values() for sample in outcome.samples]
        for watch in self.watch:
            try:
                samples += watch(samples) or []
            except Exception:  # noqa: BLE001 - what was measured must not be lost with it
                _log.exception("the samples of a tick cannot be processed further")
        self._taken += len(samples)
        samples += self._measure_agent(now_ms, outcomes)
        self._deliver(self.attribution.rename_samples(samples) if self.attribution else samples)
        for source in self.sources:
            try:
                records = source.take_records(now_ms)
                self.spool_records(self.attribution.rename_records(records) if self.attribution else records)
            except Exception:  # noqa: BLE001 - a source may fail in any way and must not take others along
                _log.exception("records cannot be made")
        if self.attribution:
            self.spool_records(self.attribution.take_released())
        return now_ms

    def release(self) -> None:
        """Put waiting samples and records whose names are known by now into the outbox."""
        if self.attribution:
            if samples := self.attribution.rename_samples([]):
                self._deliver(samples)
            self.spool_records(self.attribution.take_released())

    def _measure_agent(self, now_ms: int, outcomes: dict[str, Outcome]) -> Samples:
        dropped = {**self.outbox.dropped, "not.finite": self._unfinite, **self.refused()}
        return self.metrics.take_samples(
            now_ms,
            outcomes,
            self._taken,
            dropped,
            self.outbox,
            clock_offset=self.clock.difference,
            waiting=self.attribution.waiting if self.attribution else None,
        )

    def _deliver(self, samples: Samples) -> None:
        finite = [sample for sample in samples if math.isfinite(sample.value)]
        self._unfinite += len(samples) - len(finite)
        try:
            self.outbox.put(make_samples_frame(finite))
        except InvalidRequestError as error:
            _log.warning("a tick's samples cannot be written: %s", error.message)

    def spool_records(self, records: Records) -> None:
        """Put records into the outbox, unless they are empty."""
        if records.jobs or records.nodes or records.events:
            self.outbox.put(make_records_frame(records))

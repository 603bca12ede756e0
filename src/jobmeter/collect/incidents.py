"""Events derived from the samples of a tick: out-of-memory kills, throttling, errors of devices."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from jobmeter.collect.base import Samples
from jobmeter.model.event import EventSource, Level
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.sample import Sample
from jobmeter.model.time import SECOND

if TYPE_CHECKING:
    from jobmeter.model.series import Series

THROTTLED, FREE = 0.25, 0.05
"""Share of time throttled from which, for ``HOLD`` ticks, throttling begins; share below which it ends."""
HOLD = 3
MOST = 100
"""Most events of one tick: counters that grow everywhere at once have one cause."""
OOM_KILLED = "OOMKilled"
_MOST_SERIES = 20_000
_UNCORRECTED = ("EccUncorrected", "{count:.0f} memory errors were not corrected. Reset the device.")
_COUNTS: Mapping[str, tuple[str, str]] = {
    "memory.oom.kills": (OOM_KILLED, "{count:.0f} of its processes were killed because memory ran out."),
    "gpu.ecc.uncorrected": _UNCORRECTED,
    "npu.ecc.uncorrected": _UNCORRECTED,
}
"""Counters whose increase is an event: its reason and its message."""
_SHARES: Mapping[str, tuple[str, str]] = {
    "cpu.throttled.time": ("Cpu", "Its CPU quota"),
    "gpu.throttle.thermal.hardware": ("Device", "Its temperature"),
    "gpu.throttle.thermal.software": ("Device", "Its temperature"),
    "gpu.throttle.power.brake": ("Device", "An external power brake"),
}
"""Counters of seconds throttled: the prefix of the events' reasons, and the cause of throttling."""


class IncidentWatch:
    """Record source: events of the samples that ``watch`` gets. The first reading of a counter is no event."""

    def __init__(self) -> None:
        self._last: dict[Series, Sample] = {}
        self._above: dict[Series, int] = {}
        self._failed: set[Series] = set()
        self._events: list[EventRecord] = []

    def watch(self, samples: Samples) -> None:
        """Check the samples of a tick."""
        for sample in samples:
            metric = sample.series.metric
            if metric in _COUNTS:
                self._count(sample)
            elif metric in _SHARES:
                self._watch_share(sample)
            elif metric == "gpu.remapped.rows.failed":
                self._remap(sample)

    def take_records(self, now_ms: int) -> Records:  # noqa: ARG002 - events have the times of their samples
        """Return the events since the last call."""
        found, self._events = self._events[:MOST], []
        return Records(events=found)

    def _swap_last_sample(self, sample: Sample) -> Sample | None:
        """Return the last reading of a counter and store the new one. The least recent series are dropped."""
        before = self._last.pop(sample.series, None)
        self._last[sample.series] = sample
        if len(self._last) > _MOST_SERIES:
            oldest = next(iter(self._last))
            del self._last[oldest]
            self._above.pop(oldest, None)
        return before

    def _count(self, sample: Sample) -> None:
        before = self._swap_last_sample(sample)
        if before is not None and sample.value > before.value:
            reason, message = _COUNTS[sample.series.metric]
            self._report(sample, reason, message.format(count=sample.value - before.value), Level.ERROR)

    def _watch_share(self, sample: Sample) -> None:
        before = self._swap_last_sample(sample)
        if before is None or sample.time_ms <= before.time_ms or sample.value < before.value:
            return
        share = (sample.value - before.value) * SECOND / (sample.time_ms - before.time_ms)
        kind, what = _SHARES[sample.series.metric]
        ticks = self._above.get(sample.series, 0)
        if share >= THROTTLED:
            self._above[sample.series] = ticks + 1
            if ticks + 1 == HOLD:
                message = f"{what} throttled it {share:.2f} s in each second."
                self._report(sample, f"{kind}Throttled", message, Level.WARNING)
        elif ticks < HOLD:
            self._above.pop(sample.series, None)
        elif share < FREE:
            del self._above[sample.series]
            self._report(sample, f"{kind}ThrottlingEnded", f"{what} no longer throttles it.", Level.INFO)

    def _remap(self, sample: Sample) -> None:
        if not sample.value:
            self._failed.discard(sample.series)
        elif sample.series not in self._failed and len(self._failed) < _MOST_SERIES:
            self._failed.add(sample.series)
            self._report(sample, "RemapFailed", "Remapping a memory row failed. Replace the device.", Level.ERROR)

    def _report(self, sample: Sample, reason: str, message: str, level: Level) -> None:
        series = sample.series
        self._events.append(
            EventRecord(
                time=sample.time_ms,
                project=series.project,
                job=series.job,
                replica=series.replica if series.job else "",
                attempt=series.attempt,
                cluster=series.cluster,
                node=series.node,
                source=EventSource.REPLICA if series.replica and series.job else EventSource.NODE,
                level=level,
                reason=reason,
                message=message,
                subject=f"device {series.device}" if series.device else "",
            )
        )


class RunIncidents:
    """Record source: the incidents of a run, with one event for one out-of-memory kill.

    If the kill ended the replica, the end is the event, else the counter's growth. So a kill waits for one tick, in
    which its replica may end. ``killed`` returns True if a replica has ended by SIGKILL. For the thread of the loop;
    ``finish`` comes after it.
    """

    def __init__(self, killed: Callable[[str], bool]) -> None:
        self._incidents = IncidentWatch()
        self._killed = killed
        self._waiting: list[EventRecord] = []

    def watch(self, samples: Samples) -> None:
        """Check the samples of a tick."""
        self._incidents.watch(samples)

    def take_records(self, now_ms: int) -> Records:
        """Return the events since the last call."""
        fresh = self._incidents.take_records(now_ms).events
        kills = [one for one in fresh if one.reason == OOM_KILLED and one.replica]
        due = [one for one in self._waiting if not self._killed(one.replica)]
        self._waiting = [*(one for one in self._waiting if self._killed(one.replica)), *kills]
        return Records(events=[*due, *(one for one in fresh if one not in kills)])

    def finish(self, is_reported: Callable[[str], bool]) -> Records:
        """Return the waiting kills, except for replicas whose ends report them."""
        left, self._waiting = self._waiting, []
        return Records(events=[one for one in left if not is_reported(one.replica)])

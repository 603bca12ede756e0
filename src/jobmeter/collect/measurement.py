"""Measurement of jobs, by an agent or a run of one job: collectors, their loop, and the delivery."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from jobmeter.collect.agent_metrics import AgentMetrics
from jobmeter.collect.base import NodeIdentity, RecordSource, Samples
from jobmeter.collect.checks.poll import CheckPoller
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.deliver import Delivery
from jobmeter.collect.loop import Loop
from jobmeter.collect.pods.jobs import PodJobs
from jobmeter.collect.process.stat import read_stat
from jobmeter.collect.registry import JobCollectors, Planned
from jobmeter.collect.reports.programs import ProgramReceiver
from jobmeter.collect.stacks.collect import GoneRank, StackCollector
from jobmeter.collect.worker import Worker

_FILES_MS, _FILES_OF_JOB_MS = 30_000, 2_000
"""Intervals of searches for event files that processes have open: on a node, and of one job."""


def turn_seconds(interval_ms: int, longest: float = math.inf) -> float:
    """Return the seconds for which one turn waits for its collectors."""
    return min(longest, max(0.8 * interval_ms / 1000, 0.5))


class Measurement:
    """Measures jobs on a node and delivers the results. ``job`` is set if a run of one job measures itself."""

    def __init__(
        self, place: NodeIdentity, collectors: JobCollectors, delivery: Delivery, clock: SampleClock, job: str = ""
    ) -> None:
        self.collectors = collectors
        self.delivery = delivery
        self.programs = ProgramReceiver(place, collectors, clock, _FILES_OF_JOB_MS if job else _FILES_MS)
        """Receiver of the numbers that programs report. The caller opens its places."""
        self._place = place
        self._clock = clock
        self._job = job

    def make_loop(
        self,
        seconds: float,
        sources: Sequence[RecordSource],
        watch: Sequence[Callable[[Samples], Samples | None]],
        *,
        node: Sequence[Planned] = (),
        counters: Callable[[], Mapping[str, int]] = dict,
        attribution: PodJobs | None = None,
    ) -> Loop:
        """Create the loop of the collectors. ``seconds``: see ``turn_seconds``. For the others see ``Loop``.

        The loop of one job also has the record sources of its devices. ``node`` are collectors of the whole node, and
        ``counters`` further metrics of the agent.
        """
        collectors = self.collectors
        planned = (*node, *collectors.planned, *self.programs.planned)
        own = [*collectors.allocations, *collectors.device_events] if self._job else []
        processes = None if self._job else lambda: (collectors.table.missed, collectors.watch.active)
        return Loop(
            [Worker(one.collector, one.every_ms, self._clock, seconds) for one in planned],
            [*own, *sources, self.programs.reports],
            self.delivery.outbox,
            AgentMetrics(self._place, self._job, processes, counters),
            self._clock,
            watch=watch,
            refused=lambda: {**self.delivery.refused, **self.programs.dropped},
            attribution=attribution,
        )

    def make_poller(self, interval_ms: int, gone: Callable[[], Sequence[GoneRank]] = lambda: ()) -> CheckPoller:
        """Return the poller that answers the server's requests for evidence. ``gone`` returns the ended ranks."""
        stacks = StackCollector(self.collectors.list_processes_of, lambda _job: gone())
        return CheckPoller(self._place, lambda: self.delivery.requester, None, stacks, interval_ms, self._job)

    def close_allocations(self, loop: Loop, now_ms: int) -> None:
        """End the allocations of devices when the job is over."""
        for allocations in self.collectors.allocations:
            allocations.close(now_ms)
            loop.spool_records(allocations.take_records(now_ms))

    def find_living(self, more: Iterable[int] = ()) -> frozenset[int]:
        """Return the processes of jobs, and of ``more``, that still run."""
        found = {process.stat.key.pid for process in self.collectors.table.list_processes()}.union(more)
        stats = (read_stat("/proc", pid) for pid in found)
        return frozenset(stat.key.pid for stat in stats if stat and not stat.ended)

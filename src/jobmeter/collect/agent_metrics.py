"""Metrics of the agent: its costs and its health."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jobmeter.collect import files
from jobmeter.collect.base import Labels, NodeIdentity, Owner, Samples
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.worker import Outcome
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True, eq=False)
class AgentMetrics:
    """Makes the ``agent.*`` samples.

    ``job`` is set if a run of one job measures instead of an agent, so that two runs on a node never write to one
    series. ``processes`` returns the number of unseen short processes, and whether the kernel's events are read.
    ``counters`` returns further metrics by name.
    """

    place: NodeIdentity
    job: str = ""
    processes: Callable[[], tuple[int, bool]] | None = None
    counters: Callable[[], Mapping[str, int]] = dict

    def take_samples(
        self,
        now_ms: int,
        outcomes: dict[str, Outcome],
        taken: int,
        dropped: dict[str, int],
        outbox: Outbox,
        *,
        clock_offset: float = 0.0,
        waiting: int | None = None,
    ) -> Samples:
        """Return the current samples. ``taken`` and ``dropped`` (by reason) count since the start.

        ``waiting`` is the number of samples whose job is unknown; None if samples are not assigned to jobs.
        """
        missed, active = self.processes() if self.processes else (None, None)
        values: dict[tuple[str, Labels], float | None] = {
            ("agent.cpu.time", ()): time.process_time(),
            ("agent.clock.offset", ()): clock_offset,
            ("agent.samples", ()): taken,
            ("agent.spool.size", ()): outbox.size,
            ("agent.spool.damaged", ()): outbox.damaged,
            ("agent.samples.waiting", ()): waiting,
            ("agent.processes.missed", ()): missed,
            ("agent.processes.events", ()): active,
            ("agent.memory.usage", ()): _read_resident_memory(),
            **{(name, ()): count for name, count in self.counters().items()},
            **{("agent.dropped", (("reason", name),)): count for name, count in dropped.items()},
        }
        for name, outcome in outcomes.items():
            values["agent.collect.success", (("collector", name),)] = outcome.success
            values["agent.collect.duration", (("collector", name),)] = outcome.duration
        return [
            Sample(self._make_series(*series), now_ms, float(value))
            for series, value in values.items()
            if value is not None
        ]

    def _make_series(self, metric: str, labels: Labels) -> Series:
        if self.job:
            return self.place.make_replica_series(metric, Owner(self.job, ""), labels)
        return self.place.make_node_series(metric, labels)


def _read_resident_memory() -> float | None:
    text = files.read("/proc/self/statm")
    return float(int(text.split()[1]) * _PAGE) if text else None

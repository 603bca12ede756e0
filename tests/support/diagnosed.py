"""Runs the diagnosis rules on a job whose samples are in a memory store, without a server."""

from collections.abc import Mapping, Sequence

import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Case
from jobmeter.diagnose.gather import gather
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.report import diagnose
from jobmeter.diagnose.running import evaluate_running
from jobmeter.diagnose.thresholds import Thresholds, load
from jobmeter.model.batch import SampleBatch
from jobmeter.model.catalog import CATALOG, MetricScope
from jobmeter.model.finding import Finding
from jobmeter.model.job import Allocation, Job, JobState, JobView, Replica
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR
from jobmeter.query.execute import Executor
from jobmeter.query.request import JobRef
from jobmeter.settings import Limits
from tests.support.fakes import NOW, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

ALL = Scope(None)
THRESHOLDS = load()
Measured = Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]]
"""Times (ms) and values by metric and replica. Device metrics belong to the replica's ``gpu0``."""


class Sampled:
    """Job with replicas ``worker-N``, each on its own node with one device, and its samples.

    ``state`` is the state of the job. ``end`` is its end if that state is final.
    """

    def __init__(
        self, measured: Measured, start: int, end: int = NOW, state: JobState = JobState.SUCCEEDED, ranks: int = 0
    ) -> None:
        self.store, self.registry = MemoryStore(), FakeRegistry()
        names = list(dict.fromkeys(replica for _, replica in measured)) or [f"worker-{rank}" for rank in range(ranks)]
        self._append(measured)
        ended = end if state.finished else None
        replicas = [
            Replica(name=name, rank=_number(name), node=node_of(name), state=state, start=start, end=ended)
            for name in names
        ]
        devices = [
            Allocation(replica=name, node=node_of(name), device="gpu0", start=start, end=ended)
            for name in names
            if any(replica == name and _is_device(metric) for metric, replica in measured)
        ]
        last = max((int(time[-1]) for time, _ in measured.values() if len(time)), default=None)
        job = Job(id="j", project="lab", state=state, start=start, end=ended, recorded=True, last_sample=last)
        self.registry.add_job(job, replicas, devices)
        self.view = JobView(job=job, replicas=replicas, allocations=devices)
        self.clock = SetClock(end if ended is None else end + HOUR)
        self.executor = Executor(self.store, self.registry, self.clock, Limits())

    def _append(self, measured: Measured) -> None:
        series = [
            Series(metric, "lab", node=node_of(name), device=_device(metric), job="j", replica=name)
            for metric, name in measured
        ]
        index = np.repeat(np.arange(len(series), dtype=np.uint32), [len(time) for time, _ in measured.values()])
        times = [np.asarray(time, np.int64) for time, _ in measured.values()]
        values = [np.asarray(value, np.float64) for _, value in measured.values()]
        self.store.append_all((SampleBatch(series, index, np.concatenate(times), np.concatenate(values)),))

    @property
    def case(self) -> Case:
        """Input of the rules for this job."""
        return gather(self.executor, JobRef("j"), ALL, self.clock, list_rules())

    def findings(self, thresholds: Thresholds = THRESHOLDS) -> list[Finding]:
        """Diagnose the whole life of the job, and return the findings."""
        return diagnose(self.executor, JobRef("j"), ALL, self.clock, thresholds).findings

    def findings_while_running(self, thresholds: Thresholds = THRESHOLDS) -> list[Finding]:
        """Evaluate the job as a running job, and return the findings."""
        jobs = {("lab", "j"): frozenset[str]()}
        [evaluation] = evaluate_running(self.executor, ALL, jobs, self.clock.now_ms(), thresholds)
        assert evaluation.error is None
        return evaluation.found or []


def found(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return the rule and the subject name of each finding."""
    return [(one.rule, one.subject.name) for one in findings]


def node_of(replica: str) -> str:
    """Return the node of a replica."""
    return f"node-{_number(replica)}"


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _device(metric: str) -> str:
    return "gpu0" if _is_device(metric) else ""


def _is_device(metric: str) -> bool:
    return CATALOG[metric].scope is MetricScope.DEVICE

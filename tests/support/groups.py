"""Store, registry and executor for questions about resource groups."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jobmeter.access.principal import Scope
from jobmeter.model.batch import SampleBatch
from jobmeter.model.job import Allocation, Job, JobState, Replica
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, MINUTE, TimeRange
from jobmeter.query.execute import Executor
from jobmeter.query.group import (
    Amounts,
    CapacityQuestion,
    GroupQuestion,
    GroupUsage,
    RequestsQuestion,
    ResourceUsage,
)
from jobmeter.query.request import GroupRef
from jobmeter.settings import Limits
from tests.support.fakes import NOW, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

ALL = Scope(None)
SPAN = TimeRange(NOW - 5 * MINUTE, NOW)
RG = GroupRef("rg")
GIB = 2.0**30


class Registry(FakeRegistry):
    """Registry that also lists jobs by group and workspace."""

    def list_jobs(self, question, now_ms):
        page = super().list_jobs(question, now_ms)
        found = [
            job
            for job in page.jobs
            if (not question.resource_groups or job.resource_group in question.resource_groups)
            and (not question.workspaces or job.workspace in question.workspaces)
        ]
        return type(page)(found[: question.limit], len(found))


@dataclass
class House:
    store: MemoryStore
    registry: Registry
    executor: Executor

    def job(self, name: str, *replicas: Replica, allocations: tuple[Allocation, ...] = (), **fields: Any) -> None:
        record_fields: dict[str, Any] = {
            "resource_group": "rg",
            "user": "ann",
            "recorded": True,
            "start": NOW - HOUR,
            **fields,
        }
        self.registry.add_job(Job(id=name, **record_fields), replicas, allocations)

    def put(self, metric: str, *points: tuple[float, float], **names: Any) -> None:
        """Store points given as (seconds before now, value)."""
        series = Series(metric, **names)
        times = np.array([NOW - int(1_000 * second) for second, _ in points], np.int64)
        values = np.array([value for _, value in points], np.float64)
        self.store.append_all((SampleBatch([series], np.zeros(len(points), np.uint32), times, values),))

    def usage(self, scope: Scope = ALL, **changes: Any) -> GroupUsage:
        return self.executor.run(GroupQuestion(**{"group": RG, "range": SPAN, **changes}), scope)

    def only(self, **changes: Any) -> ResourceUsage:
        (one,) = self.usage(**changes).users
        return one

    def capacity(self) -> Amounts:
        return self.executor.run(CapacityQuestion(group=RG, range=SPAN), ALL)

    def requests(self, *states: JobState) -> Amounts:
        return self.executor.run(RequestsQuestion(group=RG, range=SPAN, states=frozenset(states)), ALL)


def new_house() -> House:
    store, registry = MemoryStore(), Registry()
    return House(store, registry, Executor(store, registry, SetClock(), Limits()))


def replica(name: str = "worker-0", node: str = "n1", **fields: Any) -> Replica:
    return Replica(name=name, node=node, **fields)


def had(device: str, name: str = "worker-0", node: str = "n1", **fields: Any) -> Allocation:
    return Allocation(**{"replica": name, "node": node, "device": device, "start": NOW - HOUR, **fields})

"""Number and store lines for shippers before their requests are acknowledged."""

from collections.abc import Callable, Sequence

import msgspec

from jobmeter.errors import UnavailableError
from jobmeter.model.log import LogLine
from jobmeter.model.log_batch import LogBatch, LogSource
from jobmeter.model.retention import Retention
from jobmeter.model.shipper import OutboxRow, Shipper
from jobmeter.model.time import SECOND, Clock
from jobmeter.registry.base import Registry
from jobmeter.store.base import Store

WRITE_SECONDS = 20.0
"""Longest time in seconds from reserving numbers to stored rows. Slower writes are repeated under new numbers."""
GAP_SECONDS = 60.0
"""Time in seconds that a reader waits for missing numbers before it skips them."""
_TRIES = 3


def compute_number(shipper: Shipper) -> int:
    """Key of a shipper in the engine, 64 bits."""
    return int(shipper.id, 16)


class ShippingOutbox:
    """Puts arriving lines into the outboxes of their shippers. Thread-safe.

    A line belongs to the resource group of its job, or, without a job, of its node. A system log line about a job
    without a group belongs to its node's group. Shippers and the groups of nodes are the registry's cached ones.
    """

    def __init__(self, store: Store, registry: Registry, clock: Clock) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self.arrived: Callable[[str], None] = lambda _: None
        """Callback with the id of a shipper for which lines arrived."""

    def put(self, lines: Sequence[LogLine], retention: Retention) -> None:
        """Store the lines for their shippers, in order; on return they are durable.

        Raises UnavailableError when the registry or the engine fails: then the request must not be acknowledged.
        """
        shippers = self._registry.list_recent_shippers()
        if not shippers:
            return
        wanted = {shipper.resource_group for shipper in shippers}
        batch = LogBatch.from_lines(lines)
        groups = {names: self._find_group(*names) for names in map(_names, batch.sources)}
        if wanted.isdisjoint(groups.values()):
            return
        for shipper in shippers:
            chosen = [
                groups[_names(one)] == shipper.resource_group and shipper.project in {"", one.project}
                for one in batch.sources
            ]
            own = batch.select_sources(chosen)
            if len(own):
                self.append(shipper, own, retention)

    def append(self, shipper: Shipper, lines: Sequence[LogLine], retention: Retention) -> None:
        """Number the lines and store them for one shipper. Raises as ``put``."""
        encoded = [msgspec.json.encode(line) for line in lines]
        for _ in range(_TRIES):
            began = self._clock.monotonic()
            first = self._registry.shippers.reserve(shipper.id, len(lines))
            if first is None:  # the shipper was deleted meanwhile
                return
            now_ms = self._clock.now_ms()
            rows = [OutboxRow(number, now_ms, retention.raw_days, line) for number, line in enumerate(encoded, first)]
            self._store.outbox.append(compute_number(shipper), rows)
            if self._clock.monotonic() - began < WRITE_SECONDS:
                self.arrived(shipper.id)
                return
        raise UnavailableError("log lines to be shipped cannot be stored quickly enough", 10 * SECOND)

    def find_group_of_node(self, project: str, node: str) -> str:
        """Return the group of a node, at most ten seconds old: by its own project, else by another one."""
        groups = self._registry.read_node_groups()
        return groups.get((project, node)) or groups.get(("", node), "")

    def _find_group(self, project: str, job: str, node: str, system: bool) -> str:
        if job:
            heads = self._registry.find_job_head(frozenset({project}), job, self._clock.now_ms())
            group = heads[0].resource_group if heads else ""
            if group or not system:
                return group
        return self.find_group_of_node(project, node)


def _names(source: LogSource) -> tuple[str, str, str, bool]:
    return source.project, source.job, source.node, bool(source.facility)

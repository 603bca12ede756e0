"""Ship earlier lines of jobs and nodes whose resource group becomes known later, before any newer line."""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec.structs import replace

from jobmeter.model.log import LogLine
from jobmeter.model.log_tree import Property
from jobmeter.model.record import JobRecord, NodeRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.shipper import Progress, Shipper
from jobmeter.model.time import NS_PER_MS, Clock
from jobmeter.registry.base import Registry
from jobmeter.ship import events
from jobmeter.ship.outbox import ShippingOutbox
from jobmeter.store.base import LogSelector, ReadBudget, Store

MOST_LINES = 100_000
"""Most lines shipped this way for a job or node, newest kept. New lines wait meanwhile.

The system log of each node of a job has this limit too.
"""
MOST_BYTES = 64 * 2**20
"""Most bytes of text shipped this way."""
PAGE_LINES = 1_000
"""Lines of one read."""
_TOGETHER = 5_000
_TRIES = 5
_log = logging.getLogger("jobmeter.ship")


class LateGroups:
    """Shipper of earlier lines, called before records with groups are written. Thread-safe."""

    def __init__(self, store: Store, registry: Registry, clock: Clock, outbox: ShippingOutbox) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._outbox = outbox

    def names_shipped_group(self, project: str, records: Records) -> bool:
        """True if the records assign a shipped group to a job or node without one."""
        return bool(self._read_jobs(project, records.jobs) or self._read_nodes(project, records.nodes))

    def ship(self, project: str, records: Records, retention: Retention) -> None:
        """Put the lines of these jobs and nodes since their shippers' creation into the outboxes, in order of time.

        Call while no line is written, before the records are. Raises as ``ShippingOutbox.put`` and as the store.
        """
        for job in self._read_jobs(project, records.jobs):
            if not self._find_groups(project, job.job_id):  # the job is unknown
                continue
            for shipper in self._select_shippers(job.resource_group, {project}):
                parts = [
                    LogSelector(project=project, job=job.job_id),
                    *self._select_node_lines(project, job.job_id, shipper),
                ]
                self._catch_up(shipper, f"job {job.job_id}", parts, retention, lambda _: True)
        for node in self._read_nodes(project, records.nodes):
            recorded = self._registry.list_nodes(None, frozenset({node.name}))
            projects = {project, *(one.project for one in recorded)}
            for shipper in self._select_shippers(node.resource_group, projects):
                own = frozenset({shipper.project} if shipper.project else projects)
                lines = LogSelector(node=node.name, projects=own)
                self._catch_up(shipper, f"node {node.name}", [lines], retention, self._make_unshipped_filter())

    def note_recorded(self) -> None:
        """Note that the records are written: new lines are shipped by their groups."""
        self._registry.memory.forget_groups()

    def _read_jobs(self, project: str, jobs: Sequence[JobRecord]) -> Sequence[JobRecord]:
        if not jobs:
            return ()
        groups = {one.resource_group for one in self._registry.list_recent_shippers() if one.project in {"", project}}
        named = {job.job_id: job for job in jobs if job.resource_group in groups}
        return [job for job in named.values() if not any(self._find_groups(project, job.job_id))]

    def _read_nodes(self, project: str, nodes: Sequence[NodeRecord]) -> Sequence[NodeRecord]:
        if not nodes:
            return ()
        groups = {one.resource_group for one in self._registry.list_recent_shippers()}
        named = {node.name: node for node in nodes if node.resource_group in groups}
        return [node for node in named.values() if not self._outbox.find_group_of_node(project, node.name)]

    def _select_shippers(self, group: str | None, projects: set[str]) -> list[Shipper]:
        shippers = self._registry.list_recent_shippers()
        return [one for one in shippers if one.resource_group == group and one.project in {"", *projects}]

    def _find_groups(self, project: str, job: str) -> Sequence[str]:
        """Return the group of a job in a list: an empty text without a group; an empty list for an unknown job."""
        heads = self._registry.find_job_head(frozenset({project}), job, self._clock.now_ms())
        return [head.resource_group for head in heads]

    def _select_node_lines(self, project: str, job: str, shipper: Shipper) -> list[LogSelector]:
        """Select the lines about a job in its nodes' system logs.

        Nodes of the job's own group are left out, because their lines were shipped before. A node's other lines belong
        to the node's own group.
        """
        views = self._registry.find_job(frozenset({project}), job, self._clock.now_ms())
        nodes = sorted({replica.node for view in views for replica in view.replicas if replica.node})
        about = Property("job", (job,))
        return [
            LogSelector(node=node, projects=frozenset({project}), query=about)
            for node in nodes
            if self._outbox.find_group_of_node(project, node) != shipper.resource_group
        ]

    def _make_unshipped_filter(self) -> Callable[[LogLine], bool]:
        """Return a filter for a node's lines that were not shipped on arrival for the group of the job they concern."""
        groups = lru_cache(maxsize=1_000)(self._find_groups)
        return lambda line: not (line.job and any(groups(line.project, line.job)))

    def _catch_up(
        self,
        shipper: Shipper,
        whose: str,
        parts: Sequence[LogSelector],
        retention: Retention,
        wanted: Callable[[LogLine], bool],
    ) -> None:
        found = [
            self._read_newest(replace(part, start_ns=shipper.created * NS_PER_MS, descending=True), wanted)
            for part in parts
        ]
        lines = sorted((line for some, _ in found for line in some), key=lambda line: line.time_ns)
        left = sum(count for _, count in found)
        for start in range(0, len(lines), _TOGETHER):
            self._outbox.append(shipper, lines[start : start + _TOGETHER], retention)
        if left:
            self._count(shipper, whose, left)

    def _read_newest(self, selector: LogSelector, wanted: Callable[[LogLine], bool]) -> tuple[list[LogLine], int]:
        """Read the newest selected lines, oldest first. Returns them and the number of older lines not read."""
        found: list[LogLine] = []
        total, offset, size = 0, 0, 0
        while offset < MOST_LINES:
            part = replace(selector, offset=offset, limit=PAGE_LINES, count=not offset)
            page = self._store.logs.read(part, ReadBudget())
            total = page.total or total
            for line in page.lines:
                size += len(line.text.encode())
                if size > MOST_BYTES:
                    return found[::-1], total - offset
                offset += 1
                if wanted(line):
                    found.append(line)
            if len(page.lines) < PAGE_LINES:
                break
        return found[::-1], max(0, total - offset)

    def _count(self, shipper: Shipper, whose: str, lines: int) -> None:
        """Count excess lines as dropped. Retries if the shipper wrote its position meanwhile."""
        _log.warning(
            "shipper %s: %d earlier lines of %s exceed the limit and are not shipped", shipper.id, lines, whose
        )
        events.record_skipped_lines(self._registry, self._clock.now_ms(), shipper, whose, lines)
        for _ in range(_TRIES):
            now = next((one for one in self._registry.shippers.list_shippers() if one.id == shipper.id), None)
            if now is None:
                return
            dropped = Progress(before=now.cursor, cursor=now.cursor, dropped=lines, error=now.error, oldest=now.oldest)
            if self._registry.shippers.advance(shipper.id, dropped, self._clock.now_ms()):
                return
        _log.warning("shipper %s: lines that are not shipped could not be counted", shipper.id)

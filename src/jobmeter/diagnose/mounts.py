"""Finds the filesystems that a job used on its nodes, from the processes that agents saw."""

from collections.abc import Mapping

from jobmeter.access.principal import Scope
from jobmeter.diagnose.case import Signals, UsedMounts
from jobmeter.model.job import JobView
from jobmeter.model.series import job_key
from jobmeter.model.time import TimeRange
from jobmeter.query.execute import Executor
from jobmeter.query.series import SeriesQuestion

_WORKED, _WRITTEN = "storage.processes", "storage.files.written"
_SIZE, _AVAILABLE = "node.filesystem.size", "node.filesystem.available"


def find_used_mounts(
    executor: Executor, scope: Scope, view: JobView, nodes: Signals, span: TimeRange, share: float = 0.0
) -> Mapping[str, UsedMounts]:
    """Find the mount points that a job used in a span, by node. Nodes without reports of its processes are left out.

    ``nodes`` are the signals of the job's nodes. If each filesystem of a node was less full than ``share``, nothing is
    read for the node.
    """
    if not _has_full_mount(nodes, share):
        return {}
    key = job_key(view.job.project, view.job.id)
    question = SeriesQuestion(metrics=frozenset({_WORKED, _WRITTEN}), jobs=(key,), since_ms=span.start_ms)
    found: dict[str, dict[str, set[str]]] = {}
    for series in executor.run(question, scope).series:
        mounts = found.setdefault(series.node, {_WORKED: set(), _WRITTEN: set()})
        mounts[series.metric].add(dict(series.labels).get("mount", ""))
    return {
        node: UsedMounts(worked=frozenset(mounts[_WORKED]), written=frozenset(mounts[_WRITTEN]))
        for node, mounts in found.items()
    }


def _has_full_mount(nodes: Signals, share: float) -> bool:
    sizes = {(one.node, one.part): one for one in nodes.get(_SIZE, ())}
    for free in nodes.get(_AVAILABLE, ()):
        size = sizes.get((free.node, free.part))
        if size is not None and len(free) and free.value.min() <= (1 - share) * size.value.max():
            return True
    return False

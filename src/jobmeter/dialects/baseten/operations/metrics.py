"""The metrics of a job: the leader's at the top level, each node's below.

https://docs.baseten.co/reference/training-api/get-training-job-metrics
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from msgspec import Meta

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.baseten.bodies import make_view_body
from jobmeter.dialects.baseten.names import CACHE_METRICS, METRICS, NODE_METRICS
from jobmeter.dialects.baseten.requests import JOB_PATH, BasetenJobRequest, answer, operation
from jobmeter.model.catalog import CATALOG, MetricScope
from jobmeter.model.job import Job, JobView
from jobmeter.model.order import make_natural_key
from jobmeter.model.series import choose_member_name
from jobmeter.model.time import MAX_TIME_MS, SECOND, TimeRange, format_iso
from jobmeter.query.defaults import choose_range, choose_step, compute_life
from jobmeter.query.request import By, JobQuestion, Line, MetricQuery

Points = list[dict[str, Any]]


@operation(f"GET {JOB_PATH}/metrics", "metrics:read", name="get_training_projects_jobs_metrics", by_resource=True)
@operation(f"POST {JOB_PATH}/metrics", "metrics:read", name="post_training_projects_jobs_metrics", by_resource=True)
class JobMetrics(BasetenJobRequest, frozen=True, kw_only=True):
    """The eight keys of the document: CPU, memory, GPUs and storage of each node, and the cache of the job.

    The top level is the leader node (the lowest replica), `per_node_metrics` every node under the replica's name, the
    keys of `gpu_*` are GPU ranks. Utilisations are fractions, memory and storage bytes, `cpu_usage` cores. A point is
    the mean of one step, named by the step's start, oldest first; steps without samples are absent. `cache` is null
    without any samples of it.
    """

    start_epoch_millis: Annotated[
        int | None,
        "Epoch milliseconds, included. Default: a finished job's start; for other jobs an hour before the end.",
        Meta(ge=0, le=MAX_TIME_MS),
    ] = None
    end_epoch_millis: Annotated[
        int | None,
        "Epoch milliseconds, not included: a range with equal ends is empty. Default: a finished job's end; else now.",
        Meta(ge=0, le=MAX_TIME_MS),
    ] = None
    step_seconds: Annotated[
        int | None,
        "Seconds between points. Default: the shortest step with at most 240 points.",
        Meta(ge=1, le=MAX_TIME_MS // SECOND),
    ] = None

    def _steps(self) -> Steps:
        ref, step_ms = self.ref, self.step_seconds and self.step_seconds * SECOND
        view = yield from ask(JobQuestion(ref))
        span = find_range(view.job, self.context.now_ms, self.start_epoch_millis, self.end_epoch_millis, step_ms)
        step_ms = step_ms or choose_step(span)
        of_nodes = yield from ask(
            MetricQuery(subject=ref, metrics=NODE_METRICS, range=span, step_ms=step_ms, by=By.DEVICE)
        )
        of_job = yield from ask(MetricQuery(subject=ref, metrics=CACHE_METRICS, range=span, step_ms=step_ms, by=By.JOB))
        nodes = _nodes(view, of_nodes.lines)
        cache = _storage("cache", {line.metric: _points([line]) for line in of_job.lines})
        return answer(
            {
                **nodes.get(_leader(view, nodes), _node({})),
                "training_job": make_view_body(view),
                "cache": cache if any(cache.values()) else None,
                "per_node_metrics": [{"node_id": name, "metrics": metrics} for name, metrics in nodes.items()],
            }
        )


def find_range(job: Job, now_ms: int, start: int | None, end: int | None, step_ms: int | None) -> TimeRange:
    """Return the range of a query: by default the life of a finished job, else the last hour.

    There are no samples after the end of a job: a later start gives an empty range.
    """
    if start is not None and end is None and start > compute_life(job, now_ms).end_ms:
        return TimeRange(start, start)
    return choose_range(job, now_ms, start=start, end=end, step_ms=step_ms)


def _nodes(view: JobView, lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """Return the metrics of each measured replica, the leader first."""
    ranks = rank_gpus(view, lines)
    found: dict[str, dict[str, dict[int, list[Line]]]] = {}
    for line in lines:
        of_gpu = CATALOG[line.metric].scope is MetricScope.DEVICE
        rank = ranks[line.replica, line.node, line.device] if of_gpu else 0
        found.setdefault(name_node(line), {}).setdefault(line.metric, {}).setdefault(rank, []).append(line)
    return {name: _node(found[name]) for name in sorted(found, key=_order(view))}


def _node(lines: Mapping[str, Mapping[int, Sequence[Line]]]) -> dict[str, Any]:
    """Return the metrics of one replica, from its lines by metric and rank. Lines without a GPU have rank 0."""
    points = {
        metric: {str(rank): _points(by_rank[rank]) for rank in sorted(by_rank)} for metric, by_rank in lines.items()
    }
    plain = {metric: by_rank.get("0", []) for metric, by_rank in points.items()}
    return {
        "gpu_memory_usage_bytes": points.get(METRICS["gpu_memory_usage_bytes"], {}),
        "gpu_utilization": points.get(METRICS["gpu_utilization"], {}),
        "cpu_usage": plain.get(METRICS["cpu_usage"], []),
        "cpu_memory_usage_bytes": plain.get(METRICS["cpu_memory_usage_bytes"], []),
        "ephemeral_storage": _storage("ephemeral_storage", plain),
    }


def _storage(name: str, points: Mapping[str, Points]) -> dict[str, Points]:
    return {part: points.get(METRICS[f"{name}.{part}"], []) for part in ("usage_bytes", "utilization")}


def name_node(line: Line) -> str:
    """Return the node id of a line: the name of the job's member."""
    return choose_member_name(line.replica, line.node)


def _order(view: JobView) -> Any:  # noqa: ANN401 - the key of a sort
    ranks = {replica.name: replica.rank for replica in view.replicas if replica.rank is not None}

    def key(name: str) -> tuple[object, ...]:
        rank = ranks.get(name)
        return rank is None, rank or 0, make_natural_key(name)

    return key


def _leader(view: JobView, nodes: Iterable[str]) -> str:
    """Return the leading replica, measured or not: rank 0 if ranks are known, else the first by name."""
    names = {replica.name for replica in view.replicas} | set(nodes)
    return min(names, key=_order(view), default="")


def rank_gpus(view: JobView, lines: Iterable[Line]) -> dict[tuple[str, str, str], int]:
    """Return the rank of each (replica, node, device).

    The rank is the allocation's if all devices of the node have one, else the device's position on the node.
    """
    stated = {(one.replica, one.node, one.device): one.rank for one in view.allocations if one.rank is not None}
    devices: dict[tuple[str, str], set[str]] = {}
    for replica, node, device in (
        *((one.replica, one.node, one.device) for one in view.allocations if one.device.startswith("gpu")),
        *((line.replica, line.node, line.device) for line in lines if CATALOG[line.metric].scope is MetricScope.DEVICE),
    ):
        devices.setdefault((replica, node), set()).add(device)
    ranks: dict[tuple[str, str, str], int] = {}
    for (replica, node), names in devices.items():
        limits = [stated.get((replica, node, name)) for name in sorted(names, key=make_natural_key)]
        distinct = None not in limits and len(set(limits)) == len(limits)
        for place, name in enumerate(sorted(names, key=make_natural_key)):
            rank = stated[replica, node, name] if distinct else place
            ranks[replica, node, name] = rank
    return ranks


def _points(lines: Sequence[Line]) -> Points:
    """Return the points of a line, oldest first; a utilization is clamped to 0 to 1.

    A replica that moved between machines has several lines of one rank: a point of both is their mean.
    """
    most = 1.0 if lines[0].unit == "1" else None
    if len(lines) == 1:
        pairs = zip(lines[0].time.tolist(), lines[0].value.clip(0.0, most).tolist(), strict=True)
        return [_point(time, value) for time, value in pairs]
    found: dict[int, list[float]] = {}
    for line in lines:
        for time, value in zip(line.time.tolist(), line.value.clip(0.0, most).tolist(), strict=True):
            found.setdefault(time, []).append(value)
    return [_point(time, sum(found[time]) / len(found[time])) for time in sorted(found)]


# The lines of one answer share their times.
_stamp = lru_cache(maxsize=16_384)(format_iso)


def _point(time: int, value: float) -> dict[str, Any]:
    return {"value": int(value) if value.is_integer() else value, "timestamp": _stamp(time)}

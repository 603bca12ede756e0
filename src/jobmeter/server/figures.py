"""Metrics read at each scrape: the store, its cache, work and memory in use, shippers, running jobs."""

import logging
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jobmeter.access.decide import EVERYTHING
from jobmeter.access.memory import MemoryBudget
from jobmeter.errors import JobmeterError
from jobmeter.model.answers import SchedulerStatus
from jobmeter.query.administration import (
    DroppedEventsQuestion,
    SchedulersQuestion,
    ShippersQuestion,
    StatisticsQuestion,
)
from jobmeter.query.execute import Executor
from jobmeter.server.running import RunningJobs
from jobmeter.server.services import Services
from jobmeter.ship.shipping import compute_lag
from jobmeter.store.base import StoreStatistics
from jobmeter.store.cache import Cache

_log = logging.getLogger("jobmeter.server")

_TABLES = {
    "rows": "Rows stored.",
    "bytes": "Bytes on disk.",
    "parts": "Parts on disk that queries read.",
    "merges": "Running merges of parts.",
}
_WINDOW = {
    "series": "Series with samples in the hot window.",
    "bytes": "Memory of the samples in the hot window.",
    "seconds": "Age of the oldest sample in the hot window.",
}
_JOURNAL = {
    "rows": (GaugeMetricFamily, "Durable samples not yet written to the telemetry engine."),
    "bytes": (GaugeMetricFamily, "Memory of the samples not yet written to the telemetry engine."),
    "flushes": (CounterMetricFamily, "Flushes of samples to the telemetry engine."),
    "failures": (CounterMetricFamily, "Failed flushes to the telemetry engine; their samples are retried."),
}
_SHIPPER_COUNTS = {
    "shipped": "Log lines delivered to the sink of a shipper.",
    "dropped": "Log lines that expired before the sink of a shipper accepted them.",
    "rejected": "Log lines that the sink of a shipper rejected permanently.",
    "failures": "Failed attempts to ship log lines.",
}


def iterate_server_metrics(services: Services) -> Iterator[Metric]:
    """Metrics of a running server, except those about its jobs."""
    executor = services.executor
    yield from iterate_cache_metrics(executor.cache)
    yield from _shipper_metrics(executor, services.clock.now_ms())
    lanes = ((lane.name, lane.busy) for lane in services.lanes.list_lanes())
    yield _make_family("lane", GaugeMetricFamily, "work", "Calls that run or wait for a thread.", lanes)
    yield GaugeMetricFamily(
        "jobmeter_ingest_queue_bytes",
        "Samples, log lines and spans waiting to be committed.",
        services.pipeline.queue_bytes,
    )
    dropped = executor.run(DroppedEventsQuestion(), EVERYTHING)
    yield CounterMetricFamily("jobmeter_events_dropped", "Events dropped from jobs with too many events.", dropped)
    yield from _memory_metrics(services.memory)
    try:
        yield from iterate_scheduler_metrics(executor.run(SchedulersQuestion(), EVERYTHING))
    except JobmeterError as error:
        _log.warning("the states of schedulers cannot be read: %s", error.message)
    try:
        statistics = executor.run(StatisticsQuestion(), EVERYTHING)
    except JobmeterError as error:
        _log.warning("the size of the store cannot be read: %s", error.message)
    else:
        yield from store_metrics(statistics)


def iterate_cache_metrics(cache: Cache) -> Iterator[Metric]:
    """Metrics of the query cache, from ``Cache.statistics``."""
    found = cache.statistics
    yield GaugeMetricFamily("jobmeter_cache_bytes", "Memory of the query cache.", found.bytes)
    yield GaugeMetricFamily("jobmeter_cache_entries", "Entries of the query cache.", found.entries)
    yield CounterMetricFamily("jobmeter_cache_hits", "Hits in the query cache.", found.hits)
    yield CounterMetricFamily("jobmeter_cache_misses", "Misses in the query cache.", found.misses)


def iterate_scheduler_metrics(found: Sequence[SchedulerStatus]) -> Iterator[Metric]:
    """Metrics about the schedulers of clusters."""
    names = ("project", "cluster", "scheduler")
    text = "1 while the scheduler's report is complete, 0 while the scheduler does not answer or does not report."
    up = GaugeMetricFamily("jobmeter_scheduler_up", text, labels=names)
    heard = GaugeMetricFamily("jobmeter_scheduler_report_seconds", "Time of the scheduler's last report.", labels=names)
    for one in found:
        labels = one.project, one.cluster, one.kind
        up.add_metric(labels, float(not one.problem))
        heard.add_metric(labels, one.heard / 1000)
    yield from (up, heard) if found else ()


def store_metrics(found: StoreStatistics) -> Iterator[Metric]:
    """Metrics from the statistics of a telemetry store."""
    for what, text in _TABLES.items():
        yield _make_family("table", GaugeMetricFamily, f"store_{what}", text, getattr(found, what).items())
    parts, lost = Tally[str](), Tally[str]()
    for part in found.damaged:
        parts[part.table] += 1
        lost[part.table] += part.rows or 0
    tables = dict.fromkeys((*found.rows, *(("journal",) if found.journal else ()), *parts))
    text = "Damaged parts whose rows are missing from answers."
    yield _make_family(
        "table", GaugeMetricFamily, "store_damaged_parts", text, [(table, parts[table]) for table in tables]
    )
    text = "Rows lost in damaged parts, or an upper bound; unknown numbers are left out."
    yield _make_family(
        "table", GaugeMetricFamily, "store_damaged_rows", text, [(table, lost[table]) for table in tables]
    )
    if found.replicas:
        text = "1 if a replica of the telemetry store answers and has all data, else 0."
        yield _make_family("replica", GaugeMetricFamily, "store_replica_complete", text, found.replicas.items())
    if found.shards:
        text = "1 if a shard of the telemetry store can be read, else 0; the sizes of the store then lack its rows."
        yield _make_family("shard", GaugeMetricFamily, "store_shard_up", text, found.shards.items())
    for what, value in found.window.items():
        yield GaugeMetricFamily(f"jobmeter_window_{what}", _WINDOW[what], value)
    for what, (family, text) in _JOURNAL.items():
        if what in found.journal:
            yield family(f"jobmeter_journal_{what}", text, found.journal[what])


def iterate_finding_metrics(work: RunningJobs) -> Iterator[Metric]:
    """Metrics about the evaluation of running jobs: its cost and its delay."""
    figures = work.figures
    yield GaugeMetricFamily(
        "jobmeter_findings_oldest_look_seconds",
        "Longest wait of a running job with new samples for its evaluation.",
        work.oldest_seconds,
    )
    yield GaugeMetricFamily("jobmeter_findings_open", "Open findings of running jobs.", work.open_findings)
    yield GaugeMetricFamily("jobmeter_findings_jobs", "Running jobs that are watched.", figures.jobs)
    yield CounterMetricFamily("jobmeter_findings_evaluations", "Evaluations of running jobs.", figures.evaluations)
    yield CounterMetricFamily("jobmeter_findings_failures", "Failed evaluations of running jobs.", figures.failures)
    yield CounterMetricFamily(
        "jobmeter_findings_seconds", "Time spent on evaluations of running jobs.", figures.seconds
    )
    yield CounterMetricFamily("jobmeter_findings_opened", "Findings of running jobs reported.", figures.opened)
    yield CounterMetricFamily("jobmeter_findings_closed", "Findings of running jobs that closed.", figures.closed)


def _shipper_metrics(executor: Executor, now_ms: int) -> Iterator[Metric]:
    """Backlog and counts of shippers by their ids; empty when the registry does not answer."""
    try:
        shippers = executor.run(ShippersQuestion(), EVERYTHING)
    except JobmeterError:
        return
    waiting, text = [(one.id, one.waiting) for one in shippers], "Log lines waiting for the sink of a shipper."
    yield _make_family("shipper", GaugeMetricFamily, "shipper_lag_lines", text, waiting)
    lags, text = (
        [(one.id, compute_lag(one, now_ms)) for one in shippers],
        "Wait of the oldest log line for the sink of a shipper.",
    )
    yield _make_family("shipper", GaugeMetricFamily, "shipper_lag_seconds", text, lags)
    for name, text in _SHIPPER_COUNTS.items():
        counts = [(one.id, getattr(one, name)) for one in shippers]
        yield _make_family("shipper", CounterMetricFamily, f"shipper_{name}", text, counts)


def _memory_metrics(memory: MemoryBudget) -> Iterator[Metric]:
    yield GaugeMetricFamily("jobmeter_request_memory_bytes", "Memory in use by requests.", memory.in_use)
    yield GaugeMetricFamily("jobmeter_request_memory_limit_bytes", "Memory limit of all requests.", memory.size)
    yield CounterMetricFamily(
        "jobmeter_request_memory_refusals", "Requests refused for lack of memory.", memory.refusals
    )


def _make_family(
    label: str,
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    values: Iterable[tuple[str, float]],
) -> Metric:
    """Build a metric family with one value per label."""
    family = kind(f"jobmeter_{name}", text, labels=(label,))
    for value_of_label, value in values:
        family.add_metric((value_of_label,), value)
    return family

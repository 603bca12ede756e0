"""Metrics that are read at each scrape: of the store, its cache, work and memory under way, shippers, running jobs."""

import logging
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jobmeter.access.memory import MemoryBudget
from jobmeter.errors import JobmeterError
from jobmeter.model.answers import SchedulerStatus
from jobmeter.server.running import RunningJobs
from jobmeter.server.services import Services
from jobmeter.ship.shipping import Shipping, lag_seconds
from jobmeter.store.base import StoreStatistics
from jobmeter.store.cache import Cache

_log = logging.getLogger("jobmeter.server")

_TABLES = {
    "rows": "Rows stored.",
    "bytes": "Bytes on disk.",
    "parts": "Parts on disk that questions read.",
    "merges": "Merges of parts under way.",
}
_WINDOW = {
    "series": "Series whose newest samples are in memory.",
    "bytes": "Memory that these samples take.",
    "seconds": "How far back they reach.",
}
_JOURNAL = {
    "rows": (GaugeMetricFamily, "Durable samples that wait for the telemetry engine."),
    "bytes": (GaugeMetricFamily, "Memory that they take."),
    "flushes": (CounterMetricFamily, "Times that waiting samples were brought into the telemetry engine."),
    "failures": (CounterMetricFamily, "Times that the telemetry engine did not take them; they wait on."),
}
_SHIPPER_COUNTS = {
    "shipped": "Log lines that the sink of a shipper took.",
    "dropped": "Log lines that retention ended before the sink of a shipper took them.",
    "rejected": "Log lines that the sink of a shipper refused for good.",
    "failures": "Attempts to ship log lines that failed.",
}


def server_metrics(services: Services) -> Iterator[Metric]:
    """All of a running server but those of its jobs."""
    yield from cache_metrics(services.executor.cache)
    yield from _shipper_metrics(services.shipping, services.clock.now_ms())
    lanes = ((lane.name, lane.busy) for lane in services.lanes.all())
    yield _by("lane", GaugeMetricFamily, "work", "Calls that run or wait for a thread.", lanes)
    yield GaugeMetricFamily(
        "jobmeter_ingest_queue_bytes",
        "Samples, log lines and spans waiting to be committed.",
        services.pipeline.queue_bytes,
    )
    yield CounterMetricFamily(
        "jobmeter_events_dropped", "Events that had to go from jobs with too many.", services.registry.events_dropped
    )
    yield from _memory_metrics(services.memory)
    yield from scheduler_metrics(services.pipeline.schedulers.all())
    try:
        statistics = services.store.statistics()
    except JobmeterError as error:
        _log.warning("the store's sizes cannot be read: %s", error.message)
    else:
        yield from store_metrics(statistics)


def cache_metrics(cache: Cache) -> Iterator[Metric]:
    """The current ``Cache.statistics``."""
    found = cache.statistics
    yield GaugeMetricFamily("jobmeter_cache_bytes", "Memory of the cache of questions.", found.bytes)
    yield GaugeMetricFamily("jobmeter_cache_entries", "Entries of the cache of questions.", found.entries)
    yield CounterMetricFamily("jobmeter_cache_hits", "What questions found in the cache.", found.hits)
    yield CounterMetricFamily("jobmeter_cache_misses", "What questions did not find in the cache.", found.misses)


def scheduler_metrics(found: Sequence[SchedulerStatus]) -> Iterator[Metric]:
    """The schedulers of clusters that report to this server."""
    names = ("project", "cluster", "scheduler")
    text = "1 while nothing is missing of the cluster's jobs, 0 while its scheduler does not answer or is not heard of."
    up = GaugeMetricFamily("jobmeter_scheduler_up", text, labels=names)
    heard = GaugeMetricFamily("jobmeter_scheduler_report_seconds", "Time of the last report.", labels=names)
    for one in found:
        labels = one.project, one.cluster, one.kind
        up.add_metric(labels, float(not one.problem))
        heard.add_metric(labels, one.heard / 1000)
    yield from (up, heard) if found else ()


def store_metrics(found: StoreStatistics) -> Iterator[Metric]:
    """The statistics of a telemetry store."""
    for what, text in _TABLES.items():
        yield _by("table", GaugeMetricFamily, f"store_{what}", text, getattr(found, what).items())
    parts, lost = Tally[str](), Tally[str]()
    for part in found.damaged:
        parts[part.table] += 1
        lost[part.table] += part.rows or 0
    tables = dict.fromkeys((*found.rows, *(("journal",) if found.journal else ()), *parts))
    text = "Parts whose rows are missing from answers."
    yield _by("table", GaugeMetricFamily, "store_damaged_parts", text, [(table, parts[table]) for table in tables])
    text = "Rows that these parts lost, where their number or an upper bound of it is known."
    yield _by("table", GaugeMetricFamily, "store_damaged_rows", text, [(table, lost[table]) for table in tables])
    for what, value in found.window.items():
        yield GaugeMetricFamily(f"jobmeter_window_{what}", _WINDOW[what], value)
    for what, (family, text) in _JOURNAL.items():
        if what in found.journal:
            yield family(f"jobmeter_journal_{what}", text, found.journal[what])


def finding_metrics(work: RunningJobs) -> Iterator[Metric]:
    """What watching the jobs that run costs, and how far behind it is."""
    figures = work.figures
    yield GaugeMetricFamily(
        "jobmeter_findings_oldest_look_seconds",
        "Longest time that a running job with new samples waits for its evaluation.",
        work.oldest_seconds,
    )
    yield GaugeMetricFamily("jobmeter_findings_open", "Findings of running jobs that are open.", work.open_findings)
    yield GaugeMetricFamily("jobmeter_findings_jobs", "Running jobs that are watched.", figures.jobs)
    yield CounterMetricFamily("jobmeter_findings_looks", "Evaluations of running jobs.", figures.evaluations)
    yield CounterMetricFamily("jobmeter_findings_failures", "Looks that failed.", figures.failures)
    yield CounterMetricFamily("jobmeter_findings_seconds", "Time that looks took.", figures.seconds)
    yield CounterMetricFamily("jobmeter_findings_opened", "Findings of running jobs reported.", figures.opened)
    yield CounterMetricFamily("jobmeter_findings_closed", "Findings of running jobs that closed.", figures.closed)


def _shipper_metrics(shipping: Shipping, now_ms: int) -> Iterator[Metric]:
    """Backlog and counts of shippers by their ids; none where the registry does not answer."""
    try:
        shippers = shipping.all()
    except JobmeterError:
        return
    waiting, text = [(one.id, one.waiting) for one in shippers], "Log lines that wait for a sink."
    yield _by("shipper", GaugeMetricFamily, "shipper_lag_lines", text, waiting)
    lags, text = [(one.id, lag_seconds(one, now_ms)) for one in shippers], "How long the oldest of them has waited."
    yield _by("shipper", GaugeMetricFamily, "shipper_lag_seconds", text, lags)
    for name, text in _SHIPPER_COUNTS.items():
        counts = [(one.id, getattr(one, name)) for one in shippers]
        yield _by("shipper", CounterMetricFamily, f"shipper_{name}", text, counts)


def _memory_metrics(memory: MemoryBudget) -> Iterator[Metric]:
    yield GaugeMetricFamily("jobmeter_request_memory_bytes", "Memory that requests take now.", memory.in_use)
    yield GaugeMetricFamily("jobmeter_request_memory_limit_bytes", "Memory that they may take.", memory.size)
    yield CounterMetricFamily(
        "jobmeter_request_memory_refusals", "Requests refused because it was not left.", memory.refusals
    )


def _by(
    label: str,
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    values: Iterable[tuple[str, float]],
) -> Metric:
    """A family with a value for each value of its label."""
    family = kind(f"jobmeter_{name}", text, labels=(label,))
    for value_of_label, value in values:
        family.add_metric((value_of_label,), value)
    return family

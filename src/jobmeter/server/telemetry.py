"""Jobmeter's own metrics in Prometheus text format. No label names a project, a job or a key."""

import resource
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from jobmeter import __version__
from jobmeter.dialects.base import Figure
from jobmeter.ingest.receipt import Receipt
from jobmeter.kernel.library import KERNEL
from jobmeter.model.time import Clock
from jobmeter.server.http.limits import Connections
from jobmeter.server.workers.pool import WorkerPool

disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUIET_ROUTERS = frozenset({"health"})
"""Routers whose requests do not count as activity for ``idle_exit``."""
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LABELS = (*map(floatToGoString, _BOUNDS), "+Inf")


class _Durations:
    """Histogram of request durations: ``counts`` by bound, the last beyond all bounds; ``total`` in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_LABELS)
        self.total = 0.0


class RequestFigures(Collector):
    """Requests by router and status, their durations, and the cost of queries. Thread-safe.

    Plain numbers under one lock, because the library's own counters cost more than a live answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._durations: dict[str, _Durations] = {}
        self._rows, self._seconds = 0, 0.0

    def count_request(self, router: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._requests[router, status] = self._requests.get((router, status), 0) + 1
            durations = self._durations.get(router)
            if durations is None:
                durations = self._durations[router] = _Durations()
            durations.counts[bisect_left(_BOUNDS, seconds)] += 1
            durations.total += seconds

    def count_question(self, rows: int, seconds: float) -> None:
        """Add the query cost of one request."""
        with self._lock:
            self._rows += rows
            self._seconds += max(0.0, seconds)

    def count_by_status(self) -> CounterMetricFamily:
        """Count requests by router and status."""
        family = CounterMetricFamily("jobmeter_requests", "Requests answered.", labels=("api", "status"))
        with self._lock:
            for (router, status), count in sorted(self._requests.items()):
                family.add_metric((router, str(status)), count)
        return family

    def collect(self) -> Iterable[Metric]:
        """Return the metric families with their current values."""
        yield self.count_by_status()
        durations = HistogramMetricFamily("jobmeter_request_duration_seconds", "Time to answer.", labels=("api",))
        with self._lock:
            for router, one in self._durations.items():
                buckets = list(zip(_LABELS, accumulate(one.counts), strict=True))
                durations.add_metric((router,), buckets, one.total)
            rows, seconds = self._rows, self._seconds
        yield durations
        yield CounterMetricFamily("jobmeter_query_rows", "Stored rows read by queries.", rows)
        yield CounterMetricFamily("jobmeter_query_seconds", "Thread time spent on queries.", seconds)


class _Scraped(Collector):
    """Collector that calls ``collect`` at each scrape."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


class _Processes(Collector):
    """Resources of this process and its workers, summed."""

    _SUMMED = frozenset(
        {
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
        }
    )

    workers: Callable[[], Sequence[int]] | None = None
    """Process numbers of the workers; None if this process has none."""

    def collect(self) -> Iterable[Metric]:
        families = list(ProcessCollector(registry=None).collect())
        if self.workers is None:
            return families
        children = resource.getrusage(resource.RUSAGE_CHILDREN)  # workers that have ended
        sums = dict.fromkeys(self._SUMMED, 0.0)
        sums["process_cpu_seconds_total"] = children.ru_utime + children.ru_stime
        for pid in self.workers():
            for family in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                for one in family.samples:
                    sums[one.name] = sums.get(one.name, 0.0) + one.value
        for family in families:
            family.samples = [
                one._replace(value=one.value + sums[one.name]) if one.name in self._SUMMED else one
                for one in family.samples
            ]
        return families


class Telemetry:
    """Counts of the server. Thread-safe."""

    grpc_port: int | None = None
    """Port of OTLP over gRPC; None without it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._collectors = CollectorRegistry()
        self._started = clock.monotonic()
        self._last_request = self._started
        self._lock = threading.Lock()
        self._in_flight = 0
        self.requests = RequestFigures()
        self._collectors.register(self.requests)
        self._processes = _Processes()
        self._collectors.register(self._processes)
        self.rolled_until_ms: int | None = None
        counter, gauge = partial(Counter, registry=self._collectors), partial(Gauge, registry=self._collectors)
        self._accepted = counter("jobmeter_ingest_samples_accepted", "Samples accepted.")
        self._records = counter("jobmeter_ingest_records", "Job and node records accepted.")
        self._rejected = counter("jobmeter_ingest_samples_rejected", "Samples refused.", ("reason",))
        self._lines = counter("jobmeter_ingest_lines_accepted", "Log lines accepted.")
        self._rejected_lines = counter("jobmeter_ingest_lines_rejected", "Log lines refused.", ("reason",))
        self._spans = counter("jobmeter_ingest_spans_accepted", "Spans accepted.")
        self._rejected_spans = counter("jobmeter_ingest_spans_rejected", "Spans refused.", ("reason",))
        text = "Calls refused for a missing or invalid credential, or a missing permission."
        self._refused = counter("jobmeter_access_refused", text, ("reason",))
        self._roll_ups = counter("jobmeter_roll_ups", "Hours of samples rolled up.")
        text = "Connections closed or refused by the server."
        self._closed = counter("jobmeter_connections_closed", text, ("port", "reason"))
        self._connections = gauge("jobmeter_connections", "Connections open.", ("port",))
        self._failures = counter("jobmeter_background_failures", "Failed rounds of background work.", ("work",))
        self._rolled_until = gauge("jobmeter_rolled_until_seconds", "End of the last rolled-up hour.")
        gauge("jobmeter_build_info", "The version.", ("version",)).labels(__version__).set(1)
        gauge("jobmeter_kernel_loaded", "1: the compiled kernel is loaded.").set(KERNEL.library is not None)
        gauge("jobmeter_uptime_seconds", "Time since the start.").set_function(lambda: self.uptime_seconds)
        in_flight = gauge("jobmeter_requests_in_flight", "Requests under way.")
        in_flight.set_function(lambda: self._in_flight)

    def count_begin(self, router: str) -> float:
        """Count a request that begins; return the time. Call ``count_end`` once for each."""
        if router not in QUIET_ROUTERS:
            with self._lock:
                self._in_flight += 1
        return self._clock.monotonic()

    def count_end(self, router: str, status: int, began: float) -> None:
        """Count a request that ended."""
        moment = self._clock.monotonic()
        if router not in QUIET_ROUTERS:
            with self._lock:
                self._in_flight -= 1
            self._last_request = moment
        self.requests.count_request(router, status, moment - began)

    def make_connections(self, port: str, bound: int, reserved: int = 0) -> Connections:
        """Create the connection list of a port; open, closed and refused connections are counted."""
        made = Connections(port, bound, self.count_closed, time.monotonic, reserved)
        self._connections.labels(port).set_function(lambda: len(made))
        return made

    def count_closed(self, port: str, reason: str) -> None:
        """Count a connection that the server closed or refused."""
        self._closed.labels(port, reason).inc()

    def count_workers(self, pool: WorkerPool) -> None:
        """Add the connections and resources of the workers."""
        self._connections.labels("http").set_function(lambda: pool.connections)
        self._processes.workers = lambda: pool.pids
        self.register(pool.iterate_metrics)

    @property
    def processes(self) -> int:
        """Number of processes of the server: this one and its workers."""
        workers = self._processes.workers
        return 1 if workers is None else 1 + len(workers())

    def register(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Register metrics that are read at each scrape."""
        self._collectors.register(_Scraped(collect))

    def describe_running(self) -> str:
        """Describe the running requests for the log."""
        return f"{self._in_flight} requests" if self._in_flight else ""

    def note_activity(self) -> None:
        """Record activity outside HTTP, so that the server does not count as idle."""
        self._last_request = self._clock.monotonic()

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last request ended; 0 during a request. Health checks do not count."""
        return 0.0 if self._in_flight else self._clock.monotonic() - self._last_request

    @property
    def uptime_seconds(self) -> float:
        """Seconds since the server started."""
        return self._clock.monotonic() - self._started

    def count_ingested(self, receipt: Receipt) -> None:
        """Count the contents of an ingest request."""
        for counter, count in (
            (self._accepted, receipt.accepted),
            (self._records, receipt.records),
            (self._lines, receipt.lines),
            (self._spans, receipt.spans),
        ):
            if count:
                counter.inc(count)
        for counter, rejected in (
            (self._rejected, receipt.rejected),
            (self._rejected_lines, receipt.rejected_lines),
            (self._rejected_spans, receipt.rejected_spans),
        ):
            for reason, count in rejected.items():
                counter.labels(reason).inc(count)

    def list_figures(self) -> list[Figure]:
        """Return the counts under names in OpenTSDB's style."""
        found: list[Figure] = [("tsd.uptime", (), int(self.uptime_seconds))]
        counters = (self._accepted, self._records, self._rejected, self._refused)
        for families in ((self.requests.count_by_status(),), *(counter.collect() for counter in counters)):
            for metric in families:
                found += [
                    (f"tsd.{one.name.removesuffix('_total')}", tuple(sorted(one.labels.items())), int(one.value))
                    for one in metric.samples
                ]
        return found

    def count_refused(self, reason: str) -> None:
        """Count a refused call."""
        self._refused.labels(reason).inc()

    def count_roll_up(self, hours: int, until_ms: int) -> None:
        """Count a round of roll-ups."""
        self._roll_ups.inc(hours)
        self._rolled_until.set(until_ms / 1000)
        self.rolled_until_ms = until_ms

    def count_failure(self, work: str) -> None:
        """Count a round of background work that ended in an error."""
        self._failures.labels(work).inc()

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format 0.0.4."""
        return generate_latest(self._collectors)

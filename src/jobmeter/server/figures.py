"""Values that are read when somebody looks: of the store, of its cache, of work and memory under way."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobmeter.access.memory import MemoryBudget
from jobmeter.store.base import StoreStatistics
from jobmeter.store.cache import Cache

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
    "rows": "Durable samples that wait for the telemetry engine.",
    "bytes": "Memory that they take.",
}
_JOURNAL_COUNTS = {
    "flushes": "Times that waiting samples were brought into the telemetry engine.",
    "failures": "Times that the telemetry engine did not take them; they wait on.",
}


class CacheFigures(Collector):
    """The current ``Cache.statistics``."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterable[Metric]:
        """The families with their values now."""
        found = self._cache.statistics
        yield GaugeMetricFamily("jobmeter_cache_bytes", "Memory of the cache of questions.", found.bytes)
        yield GaugeMetricFamily("jobmeter_cache_entries", "Entries of the cache of questions.", found.entries)
        yield CounterMetricFamily("jobmeter_cache_hits", "What questions found in the cache.", found.hits)
        yield CounterMetricFamily("jobmeter_cache_misses", "What questions did not find in the cache.", found.misses)


class LiveFigures(Collector):
    """Running work by lane, the store's sizes (None: not readable now), and what waits there.

    ``events_dropped`` counts those that had to go from jobs with too many; requests under way share ``memory``.
    """

    def __init__(
        self,
        lanes: Callable[[], Mapping[str, int]],
        statistics: Callable[[], StoreStatistics | None],
        queue_bytes: Callable[[], int],
        events_dropped: Callable[[], int],
        memory: MemoryBudget,
    ) -> None:
        self._lanes = lanes
        self._memory = memory
        self._statistics = statistics
        self._queue_bytes = queue_bytes
        self._events_dropped = events_dropped

    def describe(self) -> Iterable[Metric]:
        """Empty: the values are not read at registration."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The families with their values now."""
        work = GaugeMetricFamily("jobmeter_work", "Calls that run or wait for a thread.", labels=("lane",))
        for lane, busy in self._lanes().items():
            work.add_metric((lane,), busy)
        yield work
        yield GaugeMetricFamily(
            "jobmeter_ingest_queue_bytes", "Samples, log lines and spans waiting to be committed.", self._queue_bytes()
        )
        yield CounterMetricFamily(
            "jobmeter_events_dropped", "Events that had to go from jobs with too many.", self._events_dropped()
        )
        yield from self._request_memory()
        found = self._statistics()
        if found is not None:
            yield from _store_families(found)

    def _request_memory(self) -> Iterable[Metric]:
        memory = self._memory
        yield GaugeMetricFamily("jobmeter_request_memory_bytes", "Memory that requests take now.", memory.in_use)
        yield GaugeMetricFamily("jobmeter_request_memory_limit_bytes", "Memory that they may take.", memory.size)
        yield CounterMetricFamily(
            "jobmeter_request_memory_refusals", "Requests refused because it was not left.", memory.refusals
        )


def _store_families(found: StoreStatistics) -> Iterator[Metric]:
    """The statistics of a telemetry store."""
    for what, text in _TABLES.items():
        family = GaugeMetricFamily(f"jobmeter_store_{what}", text, labels=("table",))
        counts: Mapping[str, int] = getattr(found, what)
        for table, value in counts.items():
            family.add_metric((table,), value)
        yield family
    damaged = GaugeMetricFamily(
        "jobmeter_store_damaged_parts", "Parts whose rows are missing from answers.", labels=("table",)
    )
    by_table = Tally(part.table for part in found.damaged)
    for table in dict.fromkeys((*found.rows, *by_table)):
        damaged.add_metric((table,), by_table[table])
    yield damaged
    for what, value in found.window.items():
        yield GaugeMetricFamily(f"jobmeter_window_{what}", _WINDOW[what], value)
    for what, text in _JOURNAL.items():
        if what in found.journal:
            yield GaugeMetricFamily(f"jobmeter_journal_{what}", text, found.journal[what])
    for what, text in _JOURNAL_COUNTS.items():
        if what in found.journal:
            yield CounterMetricFamily(f"jobmeter_journal_{what}", text, found.journal[what])

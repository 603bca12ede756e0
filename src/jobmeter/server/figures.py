"""What is counted of every request: plain numbers under one lock, made into families when somebody looks.

The library's own counters take longer than finding a live answer does.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LABELS = (*map(floatToGoString, _BOUNDS), "+Inf")


class _Durations:
    """How many requests took how long: ``counts`` by bound, the last for longer ones; ``total`` seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_LABELS)
        self.total = 0.0


class RequestFigures(Collector):
    """Requests by router and status, their durations, and what questions read. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._durations: dict[str, _Durations] = {}
        self._rows, self._seconds = 0, 0.0

    def answered(self, router: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._requests[router, status] = self._requests.get((router, status), 0) + 1
            durations = self._durations.get(router)
            if durations is None:
                durations = self._durations[router] = _Durations()
            durations.counts[bisect_left(_BOUNDS, seconds)] += 1
            durations.total += seconds

    def question_answered(self, rows: int, seconds: float) -> None:
        """Count what the questions of one request cost."""
        with self._lock:
            self._rows += rows
            self._seconds += max(0.0, seconds)

    def requests(self) -> CounterMetricFamily:
        """Requests by router and status."""
        family = CounterMetricFamily("jobmeter_requests", "Requests answered.", labels=("door", "status"))
        with self._lock:
            for (router, status), count in self._requests.items():
                family.add_metric((router, str(status)), count)
        return family

    def collect(self) -> Iterable[Metric]:
        """The families with their values now."""
        yield self.requests()
        durations = HistogramMetricFamily("jobmeter_request_duration_seconds", "Time to answer.", labels=("door",))
        with self._lock:
            for router, one in self._durations.items():
                below, buckets = 0, list[tuple[str, float]]()
                for label, count in zip(_LABELS, one.counts, strict=True):
                    below += count
                    buckets.append((label, below))
                durations.add_metric((router,), buckets, one.total)
            rows, seconds = self._rows, self._seconds
        yield durations
        yield CounterMetricFamily("jobmeter_query_rows", "Stored rows that questions read.", rows)
        yield CounterMetricFamily("jobmeter_query_seconds", "Time that threads worked on questions.", seconds)

"""What is shown of log shippers in the server's own metrics."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jobmeter.access.principal import Scope
from jobmeter.errors import JobmeterError
from jobmeter.model.shipper import Shipper
from jobmeter.model.time import SECOND, Clock
from jobmeter.ship.shipping import Shipping

_COUNTS = {
    "shipped": "Log lines that the sink of a shipper took.",
    "dropped": "Log lines that retention ended before the sink of a shipper took them.",
    "rejected": "Log lines that the sink of a shipper refused for good.",
    "failures": "Attempts to ship log lines that failed.",
}


def lag_seconds(shipper: Shipper, now_ms: int) -> float:
    """How long the line that waits longest has waited, 0 where none waits."""
    if not shipper.waiting or shipper.oldest is None:
        return 0.0
    return max(0, now_ms - shipper.oldest) / SECOND


def shipper_project(scope: Scope) -> str:
    """Whose lines a shipper of that scope ships: one project's, empty for those of every project."""
    return "" if scope.projects is None else next(iter(scope.projects))


class ShippingFigures(Collector):
    """Backlog of shippers, read when metrics are collected. Labelled by shipper id."""

    def __init__(self, shipping: Shipping, clock: Clock) -> None:
        self._shipping = shipping
        self._clock = clock

    def describe(self) -> Iterable[Metric]:
        """No families: values are not read at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The families with their current values; none where the registry does not answer."""
        try:
            shippers: Sequence[Shipper] = self._shipping.all()
        except JobmeterError:
            return
        now_ms = self._clock.now_ms()
        lines = GaugeMetricFamily("jobmeter_shipper_lag_lines", "Log lines that wait for a sink.", labels=("shipper",))
        seconds = GaugeMetricFamily(
            "jobmeter_shipper_lag_seconds", "How long the oldest of them has waited.", labels=("shipper",)
        )
        for shipper in shippers:
            lines.add_metric((shipper.id,), shipper.waiting)
            seconds.add_metric((shipper.id,), lag_seconds(shipper, now_ms))
        yield from (lines, seconds)
        for name, text in _COUNTS.items():
            family = CounterMetricFamily(f"jobmeter_shipper_{name}", text, labels=("shipper",))
            for shipper in shippers:
                family.add_metric((shipper.id,), getattr(shipper, name))
            yield family

"""Finds the metrics and data points of an OTLP request in one pass (``otlp.c``)."""

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import DATA, PLACE, SIZE, bind
from jobmeter.kernel.library import point_to

Int64s = NDArray[np.int64]

_USUAL, _METRIC = 20, 8
"""Fewest bytes of a data point in the usual form, and of a metric, about."""
_SCAN = bind("jobmeter_otlp_metrics", [DATA, SIZE, SIZE, PLACE, PLACE, SIZE, PLACE, PLACE, SIZE, PLACE], SIZE)


class ScannedRow(NamedTuple):
    """A metric: the positions of its parts, the tag of its kind, and its data points.

    ``plain`` is 1 for a gauge or a sum whose data points were all found, 0 for a metric that must be read from its
    body.
    """

    resource: int
    resource_end: int
    scope: int
    scope_end: int
    name: int
    name_end: int
    unit: int
    unit_end: int
    kind: int
    body: int
    body_end: int
    temporality: int
    monotonic: int
    first: int
    points: int
    plain: int


_PLAIN = ScannedRow._fields.index("plain")


class ScannedTelemetry(msgspec.Struct, frozen=True, eq=False):
    """The result of a scan. The attributes of data point i lie at ``own[i]:end[i]``, behind its times and value.

    ``shape`` is the request with zeros for the times and values of these data points. Two requests with the same shape
    and only plain metrics differ in nothing else.
    """

    shape: bytes
    metrics: Int64s
    own: Int64s
    end: Int64s

    @property
    def rows(self) -> list[ScannedRow]:
        """The metrics, in their order."""
        return list(map(ScannedRow._make, self.metrics.tolist()))

    @property
    def plain(self) -> bool:
        """True if all metrics are plain."""
        return bool(self.metrics[:, _PLAIN].all())


def scan(data: bytes, most: int, most_own: int) -> ScannedTelemetry | None:
    """Scan a request of at most ``most`` metrics and as many data points.

    A data point with more than ``most_own`` bytes of attributes is not found. None if the request has an unusual form.
    """
    metric_room, point_room = min(len(data) // _METRIC + 1, most), min(len(data) // _USUAL + 1, most)
    metrics = np.empty((metric_room, len(ScannedRow._fields)), np.int64)
    own, end, counts = np.empty(point_room, np.int64), np.empty(point_room, np.int64), np.zeros(2, np.int64)
    shape = np.empty(len(data), np.uint8)
    places = (
        point_to(shape),
        point_to(metrics),
        metric_room,
        point_to(own),
        point_to(end),
        point_room,
        point_to(counts),
    )
    if _SCAN(data, len(data), most_own, *places):
        return None
    count, points = counts.tolist()
    return ScannedTelemetry(shape.tobytes(), metrics[:count], own[:points], end[:points])

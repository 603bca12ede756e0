"""The metrics of the namespace ``acs_pai_dlc``: our metric, unit and statistics of each.

The vendor's page of names is not public. These names are known from programs that use them: ``JOB_MEMORY_FREE`` (the
example of GetMetrics), ``JOB_GPU_ACCELERATOR_DUTTY_UTIL`` (spelt so), ``CARD_GPU_DUTY_CYCLE``, ``CARD_GPU_SM_UTIL``,
``CARD_GPU_PIP_TENSOR_ACTIVE``, ``CARD_GPU_DRAM_ACTIVE_UTIL``, ``CARD_GPU_NVLINK_RECEIVE``, ``CARD_GPU_PCIE_RECEIVE``. A
neighbouring namespace has the same stems with another prefix. Here every stem has each prefix that makes sense.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from jobmeter.dialects.base import clamp_negative, round_digits
from jobmeter.model.catalog import CATALOG, Kind, Metric, MetricScope, map_dialect_names
from jobmeter.query.request import By

NAMESPACE = "acs_pai_dlc"
PERIODS = (5, 15, 60, 300, 900, 3600)
"""Seconds that a period may have."""
STATISTICS = ("Minimum", "Maximum", "Average", "Value")

_PREFIXES = {"JOB": By.JOB, "POD": By.REPLICA, "CARD": By.DEVICE}
_DIMENSIONS = {
    By.JOB: "userId,workspaceId,jobId",
    By.REPLICA: "userId,workspaceId,jobId,pod",
    By.DEVICE: "userId,workspaceId,jobId,pod,gpu",
}
_ALIASES = {"GPU_ACCELERATOR_DUTTY_UTIL": "GPU_DUTY_CYCLE"}
"""The vendor's second names for its own metrics."""
_UNITS: Mapping[str, tuple[str, float]] = {
    "1": ("%", 100.0),
    "By": ("MiB", 2.0**-20),
    "By/s": ("MiB/s", 2.0**-20),
    "{core}": ("cores", 1.0),
    "W": ("W", 1.0),
    "Cel": ("Celsius", 1.0),
}


class MonitoredPart(StrEnum):
    """The part of a metric: its usage, the free rest of its limit, or the limit."""

    ITSELF = "itself"
    FREE = "free"
    TOTAL = "total"


_LIMITED = {
    "MEMORY_FREE": ("memory.usage", "memory.utilization", MonitoredPart.FREE),
    "MEMORY_TOTAL": ("memory.usage", "memory.utilization", MonitoredPart.TOTAL),
    "GPU_MEMORY_FREE": ("gpu.memory.usage", "gpu.memory.utilization", MonitoredPart.FREE),
}


class MonitoredMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A metric name of the vendor.

    ``share`` is the metric of usage over the limit, from which the limit is computed.
    """

    name: str
    by: By
    metric: Metric
    part: MonitoredPart = MonitoredPart.ITSELF
    share: str = ""

    @property
    def summed(self) -> bool:
        """True for amounts, which are summed over members; False for ratios and temperatures."""
        return self.metric.answer_unit not in {"1", "Cel"}

    @property
    def steady(self) -> bool:
        """True if a period has a single value: a counter's rate."""
        return self.metric.kind is Kind.COUNTER

    @property
    def unit(self) -> str:
        """The unit of the answered values."""
        return _UNITS[self.metric.answer_unit][0]

    @property
    def dimensions(self) -> str:
        """The dimensions of its points, separated by commas."""
        return _DIMENSIONS[self.by]

    @property
    def text(self) -> str:
        """Its description."""
        if self.part is MonitoredPart.ITSELF:
            return self.metric.text
        return "Memory allowed and not in use." if self.part is MonitoredPart.FREE else "Memory allowed."

    def convert(self, value: float) -> float:
        """Convert a value to the measure's unit, to 12 significant digits. Only degrees may be below 0."""
        unit, factor = _UNITS[self.metric.answer_unit]
        return round_digits((value if unit == "Celsius" else clamp_negative(value)) * factor)


def _measures() -> Iterator[MonitoredMeasure]:
    own = dict(map_dialect_names("cms"))
    own.update({alias: own[stem] for alias, stem in _ALIASES.items()})
    stems = [(stem, metric, "", MonitoredPart.ITSELF) for stem, metric in own.items()]
    stems += [(stem, CATALOG[usage], share, part) for stem, (usage, share, part) in _LIMITED.items()]
    for prefix, by in _PREFIXES.items():
        for stem, metric, share, part in stems:
            if by is not By.DEVICE or metric.scope is MetricScope.DEVICE:
                yield MonitoredMeasure(name=f"{prefix}_{stem}", by=by, metric=metric, part=part, share=share)


MEASURES: Mapping[str, MonitoredMeasure] = {measure.name: measure for measure in _measures()}
"""Every metric of the namespace by its name, in the order of listings."""

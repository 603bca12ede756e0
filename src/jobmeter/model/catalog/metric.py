"""Form of a catalogue entry."""

from collections.abc import Mapping
from enum import Flag, StrEnum, auto
from math import inf
from typing import TypedDict, Unpack

import msgspec
from msgspec.structs import force_setattr


class Kind(StrEnum):
    """Kind of a metric: level or running total."""

    GAUGE = "gauge"
    """Samples are independent readings."""
    COUNTER = "counter"
    """Samples only grow, except for resets; stored as read, queried as a rate per second."""


class MetricScope(StrEnum):
    """Subject of a series of a metric."""

    NODE = "node"
    DEVICE = "device"
    REPLICA = "replica"
    JOB = "job"
    AGENT = "agent"


class Aggregate(StrEnum):
    """Way to combine several values into one."""

    MEAN = "mean"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    RATIO = "ratio"
    """Sum of the numerators over sum of the denominators; reserved for the catalogue."""
    WHOLE = "whole"
    """For a whole job, combined like members of one node: amounts add up. Not used in the catalogue itself."""


class NumberFormat(StrEnum):
    """Form in which people see a value."""

    RATIO = "ratio"
    """A ratio of 0 to 1, shown in percent."""
    NUMBER = "number"
    """A plain number without a unit: a load, a flag, a code."""
    QUANTITY = "quantity"
    """A number with its unit."""


class MetricGroup(StrEnum):
    """Heading under which people see a metric, in the order of the headings."""

    ACCELERATORS = "accelerators"
    APPLICATION = "application"
    CPU = "cpu"
    MEMORY = "memory"
    NETWORK = "network"
    DISK = "disk"
    ENERGY = "energy"
    NODE = "node"
    AGENT = "agent"

    @property
    def heading(self) -> str:
        """Text of the heading."""
        return "CPU" if self is MetricGroup.CPU else self.value.capitalize()


class Display(Flag):
    """Places where people see a metric."""

    HIDDEN = 0
    CHART = auto()
    """A chart of a job, behind the first ones of its group."""
    FIRST = auto()
    """A chart of a job at first sight."""
    RANKS = auto()
    """The heat map of ranks."""
    NODE = auto()
    """A chart of a node."""
    USE = auto()
    """The curves in the list of jobs, and the order of the busiest jobs."""
    CORE = auto()
    """The default metrics of a question about a job."""
    SUMMARY = auto()
    """The summary of a job."""


_GROUPS = {
    "cpu": MetricGroup.CPU,
    "process": MetricGroup.CPU,
    "thread": MetricGroup.CPU,
    "pressure.cpu": MetricGroup.CPU,
    "memory": MetricGroup.MEMORY,
    "pressure.memory": MetricGroup.MEMORY,
    "network": MetricGroup.NETWORK,
    "disk": MetricGroup.DISK,
    "io": MetricGroup.DISK,
    "storage": MetricGroup.DISK,
    "pressure.io": MetricGroup.DISK,
    "energy": MetricGroup.ENERGY,
    "gpu": MetricGroup.ACCELERATORS,
    "npu": MetricGroup.ACCELERATORS,
    "node": MetricGroup.NODE,
    "agent": MetricGroup.AGENT,
}
"""Group of a metric by the beginning of its name; others are of the application."""
NO_NAMES: Mapping[str, str] = {}


class Metric(msgspec.Struct, frozen=True):
    """Metric: its name, its unit, how it is read, and how people see it.

    ``unit`` is the unit of a stored sample (UCUM: ``By``, ``s``, ``W``, ``Cel``, ``Hz``, ``{core}``). ``1`` is a ratio
    0 to 1, shown in percent; a plain number (a load, a flag) has no unit. ``read_unit`` is the unit of an answer, which
    differs for counters (``By/s``). ``over`` combines the members of a job (replicas, devices). ``on_node`` combines
    members of one node (None: as ``over``): amounts add up, because two replicas that receive 1 MB/s each receive 2
    MB/s through their node. ``parts`` combines the labelled parts of one member (interfaces, disks). An unmeasured
    metric may be derived: ``rate_of`` names a counter whose rate it is, without parts that bear a label of
    ``rate_but``; ``ratio`` a (usage, limit) pair; ``difference`` a (whole, rest) pair. ``minimum`` and ``maximum``
    bound a stored sample: a value outside has the wrong unit. ``names`` maps a dialect to its name.

    ``title`` is the heading of a chart or column within its ``group``; by default it is made from the name. ``phrase``
    names the metric within a sentence; by default it is made from the title. ``column`` is the short heading in tables
    of usage; empty: no column. ``views`` says where people see it. Rows stand in the order in which people see them.
    """

    name: str
    unit: str
    text: str
    scope: MetricScope
    kind: Kind = Kind.GAUGE
    read_unit: str = ""
    over: Aggregate = Aggregate.MEAN
    on_node: Aggregate | None = None
    parts: Aggregate = Aggregate.SUM
    rate_of: str = ""
    rate_but: tuple[tuple[str, str], ...] = ()
    ratio: tuple[str, str] | None = None
    difference: tuple[str, str] | None = None
    minimum: float | None = 0.0
    maximum: float | None = None
    names: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_NAMES)
    title: str = ""
    phrase: str = ""
    column: str = ""
    views: Display = Display.CHART

    def __post_init__(self) -> None:
        """Fill in the phrase and the title."""
        if not self.phrase:
            force_setattr(self, "phrase", _lower_first(self.title) or self.name.replace(".", " "))
        if not self.title:
            force_setattr(self, "title", _title(self.name))

    @property
    def group(self) -> MetricGroup:
        """Heading under which people see it."""
        first, second = (*self.name.split("."), "")[:2]
        return _GROUPS.get(first) or _GROUPS.get(f"{first}.{second}", MetricGroup.APPLICATION)

    @property
    def bounds(self) -> tuple[float, float]:
        """``minimum`` and ``maximum``, infinite if unset."""
        return -inf if self.minimum is None else self.minimum, inf if self.maximum is None else self.maximum

    @property
    def answer_unit(self) -> str:
        """Unit of an answer."""
        if self.read_unit:
            return self.read_unit
        return f"{self.unit}/s" if self.kind is Kind.COUNTER else self.unit

    @property
    def format(self) -> NumberFormat:
        """Form of an answer."""
        return {"1": NumberFormat.RATIO, "": NumberFormat.NUMBER}.get(self.answer_unit, NumberFormat.QUANTITY)


def _title(name: str) -> str:
    prefix, _, rest = name.partition(".")
    short = rest if prefix in {"app", "external", "flink", "gpu", "npu"} else name
    words = short.replace(".", " ").replace("_", " ")
    return f"NPU {words}" if prefix == "npu" else words[:1].upper() + words[1:]


def _lower_first(title: str) -> str:
    """Lower the first letter, unless it begins an abbreviation."""
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


class Presentation(TypedDict, total=False):
    """Fields of a metric that say how people see it."""

    title: str
    phrase: str
    column: str
    views: Display


def make_utilization(
    name: str,
    text: str,
    scope: MetricScope,
    whole: str = "",
    minimum: float = 0.0,
    maximum: float = 1.5,
    names: Mapping[str, str] = NO_NAMES,
    **presentation: Unpack[Presentation],
) -> Metric:
    """Build ``NAME.utilization``: the share of ``NAME.usage`` in ``whole``, by default in ``NAME.limit``."""
    return Metric(
        f"{name}.utilization",
        "1",
        text,
        scope,
        over=Aggregate.RATIO,
        parts=Aggregate.MEAN,
        ratio=(f"{name}.usage", whole or f"{name}.limit"),
        minimum=minimum,
        maximum=maximum,
        names=names,
        **presentation,
    )

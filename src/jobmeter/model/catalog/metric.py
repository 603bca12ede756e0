"""Form of a catalogue entry."""

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from types import MappingProxyType

import msgspec


class Kind(StrEnum):
    """Kind of a metric: level or running total."""

    GAUGE = "gauge"
    """Samples are independent readings."""
    COUNTER = "counter"
    """Samples only grow, except for resets; stored as read, queried as a rate per second."""


class Scope(StrEnum):
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


NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Metric(msgspec.Struct, frozen=True):
    """Metric: its name, its unit, and how it is read.

    ``unit`` is the unit of a stored sample (UCUM: ``By``, ``s``, ``W``, ``Cel``, ``Hz``, ``{core}``). ``1`` is a ratio
    0 to 1, shown in percent; a plain number (a load, a flag) has no unit. ``read_unit`` is the unit of an answer, which
    differs for counters (``By/s``). ``over`` combines the members of a job (replicas, devices). ``on_node`` combines
    members of one node (None: as ``over``): amounts add up, because two replicas that receive 1 MB/s each receive 2
    MB/s through their node. ``parts`` combines the labelled parts of one member (interfaces, disks). An unmeasured
    metric may be derived: ``rate_of`` names a counter whose rate it is, without parts that bear a label of
    ``rate_but``; ``ratio`` a (usage, limit) pair; ``difference`` a (whole, rest) pair. ``minimum`` and ``maximum``
    bound a stored sample: a value outside has the wrong unit. ``names`` maps a dialect to its name.
    """

    name: str
    unit: str
    text: str
    scope: Scope
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


def utilization(
    name: str,
    text: str,
    scope: Scope,
    whole: str = "",
    minimum: float = 0.0,
    maximum: float = 1.5,
    names: Mapping[str, str] = NO_NAMES,
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
    )

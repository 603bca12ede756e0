"""The shape of one catalogue row."""

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from types import MappingProxyType

import msgspec


class Kind(StrEnum):
    """Whether values of a metric are levels or running totals."""

    GAUGE = "gauge"
    """Each sample is a reading of its own."""
    COUNTER = "counter"
    """Samples only grow, except for resets; stored as read, queried as a rate per second."""


class Scope(StrEnum):
    """What one series of a metric describes."""

    NODE = "node"
    DEVICE = "device"
    REPLICA = "replica"
    JOB = "job"
    AGENT = "agent"


class Aggregate(StrEnum):
    """How several values are aggregated into one."""

    MEAN = "mean"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    RATIO = "ratio"
    """Sum of the numerators over sum of the denominators; legal only as the catalogue's own choice."""
    WHOLE = "whole"
    """Of a whole job, joined as those that share a node are: amounts add up. The catalogue itself does not say it."""


NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Metric(msgspec.Struct, frozen=True):
    """One metric: what it is called, in which unit, and how it is read.

    ``unit`` is that of a stored sample (UCUM: ``By``, ``s``, ``W``, ``Cel``, ``Hz``, ``{core}``). ``1`` is a ratio 0 to
    1, shown in percent; a plain number (a load, a flag) has no unit. ``read_unit`` is the unit of an answer, which
    differs for counters (``By/s``). ``over`` joins the members of a job (replicas, devices), ``on_node`` those that
    share a node (None: as ``over``): amounts add up, as two replicas that receive 1 MB/s each receive 2 MB/s through
    their node. ``parts`` joins the labelled parts of one member (interfaces,
    disks). ``rate_of`` names the counter whose rate this metric is when nobody measured it as a gauge, without its
    parts that bear a label of ``rate_but``; ``ratio`` the (usage, limit) pair and ``difference`` the (whole, rest) pair
    that it is derived from when nobody measured it. ``minimum`` and ``maximum`` are the bounds of a stored sample:
    outside of them the unit must be wrong. ``names`` maps a dialect to its name.
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
        """``minimum`` and ``maximum``, infinite where there is none."""
        return -inf if self.minimum is None else self.minimum, inf if self.maximum is None else self.maximum

    @property
    def answer_unit(self) -> str:
        """The unit of what a question returns."""
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
    """``NAME.utilization``: the share of ``NAME.usage`` in ``whole``, by default in ``NAME.limit``."""
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

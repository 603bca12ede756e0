"""Assign members to lines of the answer, and name the lines."""

from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s
from jobmeter.model.catalog import Aggregate, Kind, Metric
from jobmeter.model.job import JobView
from jobmeter.model.order import make_natural_key
from jobmeter.query.request import By, Statistic
from jobmeter.query.selected_series import SelectedSeries, SubjectKey


class LineLabels(NamedTuple):
    """Names of a line."""

    replica: str = ""
    node: str = ""
    device: str = ""
    rank: int | None = None


class Ranks(msgspec.Struct, frozen=True):
    """Ranks of replicas and of their devices, as far as the registry knows."""

    replica: dict[str, int]
    device: dict[tuple[str, str, str], int]

    @classmethod
    def from_view(cls, view: JobView | None) -> "Ranks":
        """Read the ranks from a job's replicas and allocations."""
        if view is None:
            return cls({}, {})
        replicas = sorted(view.replicas, key=lambda replica: replica.attempt)
        return cls(
            {replica.name: replica.rank for replica in replicas if replica.rank is not None},
            {(one.replica, one.node, one.device): one.rank for one in view.allocations if one.rank is not None},
        )


def assign(shape: SelectedSeries, by: By, ranks: Ranks) -> tuple[Int64s, list[LineLabels]]:
    """Return the line number of each member of the shape, and the lines' names."""
    places: dict[tuple[str, ...], int] = {}
    heads: list[LineLabels] = []
    line = np.empty(len(shape.members), np.int64)
    for at, (member, node) in enumerate(zip(shape.members, shape.nodes, strict=True)):
        key = _key(member, node, by)
        line[at] = places.setdefault(key, len(places))
        if len(heads) < len(places):
            heads.append(_head(member, node, by, ranks))
        elif by is By.REPLICA and heads[line[at]].node != node:
            heads[line[at]] = LineLabels(member.replica, "", "", heads[line[at]].rank)
    return line, heads


def find_aggregate(metric: Metric, by: By) -> Aggregate | None:
    """Return the catalogue's way to combine the members of a line of that kind; None if ``Metric.over`` applies."""
    return metric.on_node if by is By.NODE else None


def choose_unit(metric: Metric, statistic: Statistic) -> str:
    """Return the unit of a line's values."""
    if statistic is Statistic.COUNT:
        return "{sample}"
    if metric.kind is Kind.COUNTER and statistic is not Statistic.MEAN:
        return metric.unit
    return metric.answer_unit


@lru_cache(maxsize=65_536)
def sort_key(head: LineLabels) -> tuple[object, ...]:
    """Return the sort key of a line: replica, node and device, each in natural order."""
    return make_natural_key(head.replica), make_natural_key(head.node), make_natural_key(head.device)


def _key(member: SubjectKey, node: str, by: By) -> tuple[str, ...]:
    match by:
        case By.JOB:
            return ()
        case By.REPLICA:
            # Metrics of a whole node belong to no replica: they get a line per node.
            return (member.job, member.replica) if member.replica else ("", "", member.cluster, member.node)
        case By.DEVICE:
            return tuple(member)
        case By.NODE:
            return member.cluster, node


def _head(member: SubjectKey, node: str, by: By, ranks: Ranks) -> LineLabels:
    rank = ranks.replica.get(member.replica)
    match by:
        case By.JOB:
            return LineLabels()
        case By.NODE:
            return LineLabels(node=node)
        case By.REPLICA:
            return LineLabels(member.replica, node, "", rank)
        case By.DEVICE:
            return LineLabels(
                member.replica, node, member.device, ranks.device.get((member.replica, node, member.device), rank)
            )

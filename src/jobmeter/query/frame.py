"""The columns of one question, and what each series of them stands for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from jobmeter.model.batch import BucketColumns, Int64s, SeriesKeys
from jobmeter.model.catalog import Kind, find
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.query.reduce import merge, take
from jobmeter.query.source import Meter, Source, buckets


class Member(NamedTuple):
    """The finest thing that a metric is told of: a device of a replica, a replica, a node, a job.

    ``job`` is empty unless several jobs meet in one question (that of a node).
    """

    job: str
    replica: str
    cluster: str
    node: str
    device: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored series in its part for the question.

    ``replica`` is whom its samples are told of, which for a device's own series is who had the device then. ``clip`` is
    when that was: samples outside are somebody else's; None for a series of the subject itself.
    """

    series: Series
    member: Member
    replica: str
    clip: TimeRange | None = None


@dataclass(slots=True, eq=False)
class Frame:
    """Entries, sorted by metric, and their buckets (``columns.index`` is a position in ``entries``).

    ``members`` are the members of all entries; ``member`` int64[k] is the position of each entry's; ``part`` int64[k]
    numbers the (metric, member, labels) that an entry belongs to, so that attempts of one replica share a number.
    ``limits`` are those of the job's record.
    """

    entries: Sequence[Entry]
    columns: BucketColumns
    limits: dict[str, float]
    members: list[Member] = field(init=False)
    nodes: list[str] = field(init=False)
    member: Int64s = field(init=False)
    part: Int64s = field(init=False)
    part_member: Int64s = field(init=False)
    _ranges: dict[str, tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        places: dict[Member, int] = {}
        parts: dict[tuple[str, Member, tuple[tuple[str, str], ...]], int] = {}
        self.nodes = []
        self._ranges = {}
        member: list[int] = []
        part: list[int] = []
        owners: list[int] = []
        for at, entry in enumerate(self.entries):
            place = places.setdefault(entry.member, len(places))
            self._name_node(place, entry)
            number = parts.setdefault((entry.series.metric, entry.member, entry.series.labels), len(parts))
            if number == len(owners):
                owners.append(place)
            member.append(place)
            part.append(number)
            first, _ = self._ranges.get(entry.series.metric, (at, at))
            self._ranges[entry.series.metric] = (first, at + 1)
        self.members = list(places)
        self.member = np.array(member, np.int64)
        self.part = np.array(part, np.int64)
        self.part_member = np.array(owners, np.int64)

    def _name_node(self, place: int, entry: Entry) -> None:
        """Entries come with the attempts in order, so the node of the last one stays."""
        if place == len(self.nodes):
            self.nodes.append(entry.series.node)
        elif entry.series.node:
            self.nodes[place] = entry.series.node

    def rows(self, metric: str) -> BucketColumns:
        """The buckets of one metric's entries."""
        first, end = self._ranges.get(metric, (0, 0))
        return take(self.columns, slice(*np.searchsorted(self.columns.index, (first, end)).tolist()))

    def with_columns(self, columns: BucketColumns) -> "Frame":
        """The same entries with other buckets."""
        return Frame(self.entries, columns, self.limits)


def order(entries: Sequence[Entry]) -> list[Entry]:
    """Entries in the order that a frame needs: by metric, the attempts of one member one after the other."""
    return sorted(
        entries, key=lambda entry: (entry.series.metric, entry.member, entry.series.labels, entry.series.attempt)
    )


def read(entries: Sequence[Entry], source: Source, span: TimeRange, step_ms: int, meter: Meter) -> BucketColumns:
    """The buckets of the entries over a span; what is clipped is read within its clip alone."""
    parts: list[BucketColumns] = []
    for group in groups(entries, span):
        # In the order of their keys an engine reads them as they lie.
        positions = sorted(group.positions, key=lambda at: (entries[at].series.job_key, entries[at].series.id))
        keys = SeriesKeys.of([entries[at].series for at in positions])
        counters = np.array([is_counter(entries[at].series.metric) for at in positions])
        columns = buckets(source, keys, counters, group.span, step_ms, owned_ms=group.owned_ms, meter=meter)
        index = np.array(positions, np.uint32)[columns.index]
        parts.append(take(replace(columns, index=index), np.argsort(index, kind="stable")))
    return merge(parts)


class Group(NamedTuple):
    """Positions of entries that can be read together, the span to read, and since when its samples are theirs."""

    positions: list[int]
    span: TimeRange
    owned_ms: int


def groups(entries: Sequence[Entry], span: TimeRange) -> Iterator[Group]:
    """The reads that entries need: within a group each stored series occurs once, and all are clipped alike."""
    found: dict[tuple[TimeRange | None, int], list[int]] = {}
    seen: dict[tuple[TimeRange | None, Series], int] = {}
    for at, entry in enumerate(entries):
        times = seen.get((entry.clip, entry.series), 0)
        seen[entry.clip, entry.series] = times + 1
        found.setdefault((entry.clip, times), []).append(at)
    for (clip, _), positions in found.items():
        inside = span if clip is None else clip.intersect(span)
        if inside is not None:
            yield Group(positions, inside, 0 if clip is None else clip.start_ms)


def is_counter(name: str) -> bool:
    """True for a metric whose samples only grow."""
    metric = find(name)
    return metric is not None and metric.kind is Kind.COUNTER

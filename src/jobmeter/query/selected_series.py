"""Series that answer a query, and their members, independent of its range.

A shape is cached (``jobmeter.query.layout``) while neither the job's record nor its series change. Later queries then
need only array operations.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Bools, Int64s, SeriesKeys, Uint32s
from jobmeter.model.catalog import Kind, find
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange


class SubjectKey(NamedTuple):
    """Smallest subject of a metric: a device of a replica, a replica, a node, a job.

    ``job`` is empty unless several jobs occur in one query (for a node).
    """

    job: str
    replica: str
    cluster: str
    node: str
    device: str


class SeriesPart(msgspec.Struct, frozen=True):
    """Stored series with its role in the query.

    ``replica`` is the replica of its samples; for a device's own series the replica to which the device was allocated.
    ``clip`` is the time of that allocation: samples outside belong to others. It is absent for a series of the subject
    itself.
    """

    series: Series
    member: SubjectKey
    replica: str
    clip: TimeRange | None = None


class Read(msgspec.Struct, frozen=True, eq=False):
    """Entries that can be read together: ``positions`` uint32[k] in the shape's entries, with their keys in order.

    ``counters`` bool[k] marks counters. ``span`` is the range to read; samples before ``owned_ms`` belong to others.
    ``in_order`` is True if the positions are 0, 1, 2 and so on.
    """

    positions: Uint32s
    keys: SeriesKeys
    counters: NDArray[np.bool_]
    span: TimeRange
    owned_ms: int
    in_order: bool = False


class SelectedSeries:
    """Entries, sorted by metric, and their members. Immutable.

    ``members`` are the members of all entries, ``nodes`` the last node of each. ``member`` int64[k] is the member
    position of each entry. ``part`` int64[k] numbers the (metric, member, labels) of an entry, so that attempts of one
    replica share a number. ``part_member`` gives the member of each part number. ``of_job`` bool[k] is False for series
    without a job. ``jobs`` are the job keys of all entries. ``keys`` are the keys of all entries if they can be read
    together and are gauges; else None.
    """

    __slots__ = (
        "_alone",
        "_as_listed",
        "_attempts",
        "_devices",
        "_in_order",
        "_ranges",
        "_whole",
        "entries",
        "jobs",
        "keys",
        "member",
        "members",
        "nodes",
        "of_job",
        "part",
        "part_member",
    )

    def __init__(self, entries: Sequence[SeriesPart]) -> None:
        """Take entries in any order; the attempts of one member become adjacent."""
        self.entries = _sort_parts(entries)
        places: dict[SubjectKey, int] = {}
        parts: dict[tuple[str, SubjectKey, tuple[tuple[str, str], ...]], int] = {}
        self.nodes: list[str] = []
        self._attempts: list[int] = []
        self._devices: Int64s | None = None
        self._ranges: dict[str, tuple[int, int]] = {}
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
        self.member: Int64s = np.array(member, np.int64)
        self.part: Int64s = np.array(part, np.int64)
        self.part_member: Int64s = np.array(owners, np.int64)
        self.of_job: NDArray[np.bool_] = np.array([bool(entry.series.job) for entry in self.entries], np.bool_)
        self._alone = {metric for metric, (at, end) in self._ranges.items() if len(set(member[at:end])) == end - at}
        self.jobs = sorted({entry.series.job_key for entry in self.entries})
        self._whole = self._find_joint_read()
        self.keys = None if self._whole is None or self._whole[2].any() else self._whole[1]
        self._in_order = self._whole is not None and bool(np.all(self._whole[0] == np.arange(len(self.entries))))
        self._as_listed = self._whole if self._whole is None or self._in_order else _sort_positions(*self._whole)

    @property
    def metrics(self) -> Iterable[str]:
        """Metrics of all entries."""
        return self._ranges.keys()

    @property
    def devices(self) -> Int64s:
        """Numbers of the devices of members by entry, int64[k]. A member that restarted may have had several."""
        if self._devices is None:
            numbers: dict[tuple[str, ...], int] = {}
            self._devices = np.array([numbers.setdefault(_device(one), len(numbers)) for one in self.entries], np.int64)
        return self._devices

    def find_range(self, metric: str) -> tuple[int, int]:
        """Return the positions of a metric's entries: first and end."""
        return self._ranges.get(metric, (0, 0))

    def measures(self, names: AbstractSet[str]) -> bool:
        """Return True if there is an entry of one of those metrics."""
        return not names.isdisjoint(self._ranges)

    def has_single_entries(self, metric: str) -> bool:
        """Return True if each member has at most one entry of the metric: none have to be combined."""
        return metric in self._alone

    def list_reads(self, span: TimeRange, *, in_order: bool = False) -> Iterator[Read]:
        """Yield the reads that the entries need over a span; clipped entries are read only within their clip.

        ``in_order``: if all can be read together, keep the listing order. An engine reads faster in the order of keys;
        memory has no preference.
        """
        whole = self._as_listed if in_order else self._whole
        if whole is not None:
            yield Read(*whole, span, 0, in_order or self._in_order)
            return
        for clip, group in self._groups():
            inside = span if clip is None else clip.intersect(span)
            if inside is not None:
                yield Read(*self._merge_positions(group), inside, 0 if clip is None else clip.start_ms)

    def _name_node(self, place: int, entry: SeriesPart) -> None:
        """Set the node of a member: the node of its last attempt; of successive devices the last one is the member."""
        attempt, node = entry.series.attempt, entry.member.node or entry.series.node
        if place == len(self.nodes):
            self.nodes.append(node)
            self._attempts.append(attempt)
        elif node and attempt >= self._attempts[place]:
            self.nodes[place], self._attempts[place] = node, attempt

    def _find_joint_read(self) -> tuple[Uint32s, SeriesKeys, NDArray[np.bool_]] | None:
        groups = list(self._groups())
        if len(groups) != 1 or groups[0][0] is not None:
            return None
        return self._merge_positions(groups[0][1])

    def _groups(self) -> Iterator[tuple[TimeRange | None, list[int]]]:
        """Group the entries by clip, so that each stored series occurs once in a group."""
        found: dict[tuple[TimeRange | None, int], list[int]] = {}
        repeats: dict[tuple[TimeRange | None, Series], int] = {}
        for at, entry in enumerate(self.entries):
            times = repeats.get((entry.clip, entry.series), 0)
            repeats[entry.clip, entry.series] = times + 1
            found.setdefault((entry.clip, times), []).append(at)
        for (clip, _), positions in found.items():
            yield clip, positions

    def _merge_positions(self, positions: Sequence[int]) -> tuple[Uint32s, SeriesKeys, NDArray[np.bool_]]:
        keys = SeriesKeys.from_series([self.entries[at].series for at in positions])
        # An engine reads faster in the order of keys.
        order = np.lexsort((keys.series, keys.job))
        counters = np.array([is_counter(self.entries[at].series.metric) for at in positions], np.bool_)
        return np.array(positions, np.uint32)[order], keys.select(order), counters[order]


def _device(entry: SeriesPart) -> tuple[str, ...]:
    member, series = entry.member, entry.series
    return member.job, member.replica, series.cluster, series.node, series.device


def _sort_parts(entries: Sequence[SeriesPart]) -> list[SeriesPart]:
    """Sort by metric and part; a part's attempts in order, the parts in the engine's order, to save sorting."""
    first: dict[tuple[str, SubjectKey, tuple[tuple[str, str], ...]], int] = {}
    keyed = [((one.series.metric, one.member, one.series.labels), one) for one in entries]
    for key, one in keyed:
        first[key] = min(first.get(key, one.series.id), one.series.id)
    return [
        one
        for key, one in sorted(keyed, key=lambda pair: (pair[0][0], first[pair[0]], pair[0], pair[1].series.attempt))
    ]


def _sort_positions(
    positions: Uint32s, keys: SeriesKeys, counters: NDArray[np.bool_]
) -> tuple[Uint32s, SeriesKeys, Bools]:
    """Sort all positions into listing order."""
    order = np.argsort(positions)
    return positions[order], keys.select(order), counters[order]


def is_counter(name: str) -> bool:
    """Return True for a metric whose samples only grow."""
    metric = find(name)
    return metric is not None and metric.kind is Kind.COUNTER

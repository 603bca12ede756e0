"""Entities: the replicas, devices and nodes that samples belong to, by small numbers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jobmeter.ingest.join import find_extremes, join
from jobmeter.model.batch import Bools, Int64s, SampleBatch
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesList, SeriesTable, grow, list_series
from jobmeter.registry.stored import Observation

NEVER = np.iinfo(np.int64).max
_NOBODY, _UNKNOWN = -1, 0
"""Values in the column of entities besides the number of an entity, plus one."""


class Entity(NamedTuple):
    """The owner of some series. Names that do not apply are empty."""

    project: str
    job: str
    replica: str
    attempt: int
    cluster: str
    node: str
    device: str


class Sighting(NamedTuple):
    """Entities (int64[n] numbers, each once) with the first and the last time of their samples (int64[n] ms)."""

    entity: Int64s
    first: Int64s
    last: Int64s

    def select(self, chosen: Bools | slice) -> "Sighting":
        """Return a selection of the entities."""
        return Sighting(self.entity[chosen], self.first[chosen], self.last[chosen])


NOTHING = Sighting(*(np.empty(0, np.int64) for _ in Sighting._fields))
"""An empty sighting."""


def merge_sightings(parts: Sequence[Sighting]) -> Sighting:
    """Merge sightings: each entity once, with its first and last time over all of them."""
    if not parts:
        return NOTHING
    if len(parts) == 1:
        return parts[0]
    entity, places = np.unique(np.concatenate([part.entity for part in parts]), return_inverse=True)
    first, last = np.full(len(entity), NEVER), np.full(len(entity), -NEVER)
    np.minimum.at(first, places, np.concatenate([part.first for part in parts]))
    np.maximum.at(last, places, np.concatenate([part.last for part in parts]))
    return Sighting(entity, first, last)


class Spans:
    """The ``first`` and the ``last`` time (ms) of each entity, by its number; ``NEVER`` if it has no times."""

    def __init__(self) -> None:
        self.first: Int64s = np.empty(0, np.int64)
        self.last: Int64s = np.empty(0, np.int64)

    def fit(self, count: int) -> None:
        """Make room for ``count`` entities."""
        if count > len(self.first):
            self.first, self.last = grow(self.first, count, NEVER), grow(self.last, count, -NEVER)

    def widen(self, sighting: Sighting) -> None:
        """Extend the times by a sighting."""
        self.first[sighting.entity] = np.minimum(self.first[sighting.entity], sighting.first)
        self.last[sighting.entity] = np.maximum(self.last[sighting.entity], sighting.last)

    def forget(self, entities: Int64s) -> None:
        """Remove the times of these entities."""
        self.first[entities], self.last[entities] = NEVER, -NEVER

    def list_all(self) -> Sighting:
        """Return all entities that have times."""
        entities = np.flatnonzero(self.first != NEVER)
        return Sighting(entities, self.first[entities], self.last[entities])


class _Members:
    """Groups some series by their entity."""

    def __init__(self, entities: Int64s, numbering: object) -> None:
        """``entities`` int64[n]: the entity of each series, below 0 without one. ``numbering``: of the entities."""
        self.numbering = numbering
        # A stable sort of 16-bit numbers is much faster.
        few = len(entities) and int(entities.max()) - int(entities.min()) < 2**16
        order = np.argsort((entities - entities.min()).astype(np.uint16) if few else entities, kind="stable")
        self._order = order[np.searchsorted(entities[order], 0) :]
        ordered = entities[self._order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self._entities = ordered[self._starts]

    def select_all_at(self, time_ms: int) -> Sighting:
        """Return each entity once, for samples that all have the same time."""
        time = np.full(len(self._entities), time_ms)
        return Sighting(self._entities, time, time)

    def compute_spans(self, first: Int64s, last: Int64s) -> Sighting:
        """Return each entity once, from the first and last time of each series."""
        if not len(self._entities):
            return Sighting(self._entities, first[:0], last[:0])
        earliest = np.minimum.reduceat(first[self._order], self._starts)
        return Sighting(self._entities, earliest, np.maximum.reduceat(last[self._order], self._starts))


class Entities:
    """Numbers of entities, and the entity of each series of a table. Not safe for several threads."""

    def __init__(self, table: SeriesTable, of_series: Int64s | None = None) -> None:
        """``of_series``: the column that earlier entities of the table used."""
        self._numbers: dict[Entity, int] = {}
        self._entities: list[Entity] = []
        self._table = table
        self.of_series = table.add_column(np.int64) if of_series is None else of_series
        self._numbering = object()
        with table.lock:
            self.of_series[: table.end] = _UNKNOWN

    def __len__(self) -> int:
        return len(self._entities)

    def assign_number(self, entity: Entity) -> int:
        """Return the number of an entity; a new entity gets the next number."""
        number = self._numbers.setdefault(entity, len(self._entities))
        if number == len(self._entities):
            self._entities.append(entity)
        return number

    def get_entities(self, sighting: Sighting) -> list[Entity]:
        """Return the entities with these numbers."""
        return [self._entities[number] for number in sighting.entity.tolist()]

    def find_by_job(self, project: str, job: str) -> Int64s:
        """Return the numbers of all entities of a job."""
        mine = (at for at, entity in enumerate(self._entities) if entity.job == job and entity.project == project)
        return np.fromiter(mine, np.int64)

    def make_sighting(self, batch: SampleBatch) -> Sighting:
        """Return the entities of a batch, with the times of their samples."""
        batch = join([batch])
        series = list_series(batch)
        members: _Members | None = series.keys.derived.get(Entities)
        if members is not None and members.numbering is not self._numbering:
            members = None
        if members is not None and batch.single and batch.span[0] == batch.span[1]:
            return members.select_all_at(batch.span[0])
        positions, first, last = find_extremes(batch)
        if len(positions) < len(series):
            return self._find_members(series, positions).compute_spans(first, last)
        if members is None:
            members = series.keys.derived[Entities] = self._find_members(series, positions)
        return members.compute_spans(first, last)

    def _find_members(self, series: SeriesList, positions: Int64s) -> "_Members":
        """Return the entities of some of the series."""
        with self._table.lock:
            rows = self._table.assign_rows(series.keys.series)[positions]
            for place in np.flatnonzero(self.of_series[rows] == _UNKNOWN).tolist():
                self.of_series[rows[place]] = self._number_of(series[int(positions[place])])
            return _Members(self.of_series[rows] - 1, self._numbering)

    def make_observations(self, sighting: Sighting) -> list[Observation]:
        """Convert a sighting to the registry's observations."""
        return [
            Observation(**entity._asdict(), first_ms=first, last_ms=last)
            for entity, first, last in zip(
                self.get_entities(sighting), sighting.first.tolist(), sighting.last.tolist(), strict=True
            )
        ]

    def _number_of(self, series: Series) -> int:
        if not series.job and not series.node:
            return _NOBODY
        place = series.cluster, series.node, series.device
        return 1 + self.assign_number(Entity(series.project, series.job, series.replica, series.attempt, *place))

"""Descriptors of series: the rows of the table ``series``, which define the series of each id."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Self

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s, SeriesKeys, Uint64s
from jobmeter.model.series import Series
from jobmeter.model.time import DAY
from jobmeter.store.base import SeriesSelector

_LINES = 50_000
_BYTES = 400
"""Memory of a descriptor besides its names, about."""


class _Row(msgspec.Struct, frozen=True):
    """A row of the table, its fields named as its columns."""

    job: int
    series: int
    metric: str
    project: str
    cluster: str
    node: str
    device: str
    job_id: str
    replica: str
    attempt: int
    labels: dict[str, str]
    last_day: int
    keep_days: int


_READER = msgspec.json.Decoder(_Row)


class Descriptors(msgspec.Struct, frozen=True, eq=False):
    """``k`` series, their keys, the day (since the epoch) of the last sample of each, and their rows as JSON.

    ``job``, ``ids``: uint64[k]; ``days``: int64[k].
    """

    series: Sequence[Series]
    job: Uint64s
    ids: Uint64s
    days: Int64s
    lines: Sequence[bytes]

    @classmethod
    def from_series(cls, series: Sequence[Series], keys: SeriesKeys, days: Int64s, keep_days: int) -> Self:
        """Make the descriptors of some series, which expire ``keep_days`` after their day."""
        columns = series, keys.job.tolist(), keys.series.tolist(), days.tolist()
        lines = [_line(*one, keep_days) for one in zip(*columns, strict=True)]
        return cls(series, keys.job, keys.series, days, lines)

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Parse descriptors from lines separated by line feeds."""
        rows = _READER.decode_lines(text)
        return cls(
            [make_series(msgspec.structs.astuple(row)[2:-2]) for row in rows],
            np.array([row.job for row in rows], np.uint64),
            np.array([row.series for row in rows], np.uint64),
            np.array([row.last_day for row in rows], np.int64),
            text.split(b"\n"),
        )

    @classmethod
    def concatenate(cls, several: "Sequence[Descriptors]") -> Self:
        """Concatenate descriptors."""
        job, ids, days = (np.concatenate([getattr(one, name) for one in several]) for name in ("job", "ids", "days"))
        every = list(chain.from_iterable(one.series for one in several))
        return cls(every, job, ids, days, list(chain.from_iterable(one.lines for one in several)))

    @property
    def nbytes(self) -> int:
        """Memory of the descriptors, about: names are in the series and in the line."""
        return _BYTES * len(self.series) + 2 * sum(map(len, self.lines))


def _line(one: Series, job: int, number: int, day: int, keep_days: int) -> bytes:
    names = one.metric, one.project, one.cluster, one.node, one.device, one.job, one.replica
    return msgspec.json.encode(_Row(job, number, *names, one.attempt, dict(one.labels), day, keep_days))


def select(several: Sequence[Descriptors], selector: SeriesSelector) -> Iterator[Series]:
    """Yield the series that match."""
    jobs = None if selector.jobs is None else np.array(sorted(set(selector.jobs)), np.uint64)
    first_day, matches = (selector.since or 0) // DAY, selector.make_name_filter()
    for one in several:
        chosen = one.days >= first_day
        if jobs is not None:
            chosen &= np.isin(one.job, jobs)
        yield from filter(matches, (one.series[place] for place in np.flatnonzero(chosen).tolist()))


def make_series(row: Sequence[Any]) -> Series:
    """Return the series of a row's columns from ``metric`` to ``labels``."""
    metric, project, cluster, node, device, job, replica, attempt, labels = row
    return Series(
        metric=metric,
        project=project,
        cluster=cluster,
        node=node,
        device=device,
        job=job,
        replica=replica,
        attempt=attempt,
        labels=tuple(sorted(labels.items())),
    )


def encode_blocks(several: Sequence[Descriptors]) -> Iterator[bytes]:
    """Yield the rows as blocks of bounded length in the engine's format JSONEachRow."""
    lines = chain.from_iterable(one.lines for one in several)
    while part := list(islice(lines, _LINES)):
        yield b"\n".join(part)

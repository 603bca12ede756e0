"""Descriptors of series: the rows of the table ``series``, which say what a series id stands for."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s, Uint64s
from jobmeter.model.series import Series
from jobmeter.model.time import DAY
from jobmeter.store.base import Selector
from jobmeter.store.clickhouse.sql import pieces

_LINES = 50_000
_BYTES = 600
"""Memory that a descriptor takes, about."""


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
    """``k`` series, their keys, the day (since the epoch) of the last sample of each, and how many days more they live.

    ``job``, ``ids``: uint64[k]; ``days``: int64[k].
    """

    series: Sequence[Series]
    job: Uint64s
    ids: Uint64s
    days: Int64s
    keep_days: int

    @property
    def nbytes(self) -> int:
        """Memory that they take, about."""
        return _BYTES * len(self.series)

    def lines(self) -> list[bytes]:
        """A row of the table for each, as JSON."""
        columns = self.series, self.job.tolist(), self.ids.tolist(), self.days.tolist()
        return [self._line(*one) for one in zip(*columns, strict=True)]

    def _line(self, one: Series, job: int, number: int, day: int) -> bytes:
        names = one.metric, one.project, one.cluster, one.node, one.device, one.job, one.replica
        return msgspec.json.encode(_Row(job, number, *names, one.attempt, dict(one.labels), day, self.keep_days))

    @classmethod
    def parsed(cls, lines: bytes) -> "Descriptors":
        """Those that ``lines`` gave, joined by line feeds; at least one."""
        rows = _READER.decode_lines(lines)
        return cls(
            [described(msgspec.structs.astuple(row)[2:-2]) for row in rows],
            np.array([row.job for row in rows], np.uint64),
            np.array([row.series for row in rows], np.uint64),
            np.array([row.last_day for row in rows], np.int64),
            rows[0].keep_days,
        )

    def select(self, selector: Selector) -> Iterator[Series]:
        """The series that match."""
        chosen = np.ones(len(self.series), np.bool_)
        if selector.jobs is not None:
            chosen &= np.isin(self.job, np.array(sorted(set(selector.jobs)), np.uint64))
        if selector.since is not None:
            chosen &= self.days >= selector.since // DAY
        for place in np.flatnonzero(chosen).tolist():
            if selector.names(self.series[place]):
                yield self.series[place]


def described(row: Sequence[Any]) -> Series:
    """The series of a row's columns from ``metric`` to ``labels``."""
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


def blocks(several: Sequence[Descriptors]) -> Iterator[bytes]:
    """Their rows as blocks of bounded length in the engine's format JSONEachRow."""
    for part in pieces([line for one in several for line in one.lines()], _LINES):
        yield b"\n".join(part)

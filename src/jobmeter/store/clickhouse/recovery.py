"""What an earlier process left in the journal: rows that the engine may not have."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from jobmeter.model.batch import Bools, Uint64s
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.rows import Rows, descriptors_of
from jobmeter.store.clickhouse.segment_content import Loss, SegmentContent
from jobmeter.store.clickhouse.segments import Segments

_log = logging.getLogger(__name__)


class SeriesNames(Protocol):
    """The series that the engine can name. Asked only after damage."""

    def nameless(self, ids: Uint64s) -> Bools:
        """bool[k]: the series that have no descriptor in the engine."""
        ...

    def note_nameless(self, until_ms: int) -> None:
        """Note durably that the engine may get samples before that time whose series it has no descriptor of."""
        ...


class Recovered(NamedTuple):
    """The rows of all segments that were left, in order, and whether some were lost."""

    groups: Sequence[Rows]
    damaged: bool


def recover(segments: Segments, names: SeriesNames) -> Recovered:
    """Read all segments that were left, and every descriptor in them.

    Segments that lost samples are set aside, and the loss is logged. A sample counts as lost too where its series
    cannot be named: until its sender sends the series again, no question finds it.
    """
    found = [(path, segments.read(path)) for path in segments.left]
    groups = [rows for _, content in found for rows in content.groups]
    loose = [one for _, content in found for one in content.descriptors]
    damaged = any(content.lost.rows for _, content in found)
    if damaged:
        described = [one.ids for one in (*descriptors_of(groups), *loose)]
        _set_aside(segments, found, np.concatenate([np.empty(0, np.uint64), *described]), names)
    if loose and groups:
        first = groups[0]
        groups[0] = replace(first, descriptors=Descriptors.joined([*descriptors_of([first]), *loose]))
    return Recovered(groups, damaged)


def _set_aside(
    segments: Segments, found: Sequence[tuple[Path, SegmentContent]], described: Uint64s, names: SeriesNames
) -> None:
    """Set aside the segments that lost samples. ``described``: the series that the journal has descriptors of."""
    every = np.unique(
        np.concatenate([rows.series for _, content in found for rows in content.groups] or [described[:0]])
    )
    unknown = every[~np.isin(every, described)]
    unknown = unknown[names.nameless(unknown)] if len(unknown) else unknown
    until_ms = 0
    for path, content in found:
        nameless = 0
        for rows in content.groups if len(unknown) else ():
            own = np.repeat(np.isin(rows.series, unknown), rows.count)
            if own.any():
                nameless += int(np.count_nonzero(own))
                until_ms = max(until_ms, int(rows.time[own].max()) + 1)
        lost = Loss(content.lost.rows + nameless, content.lost.at_most or nameless > 0)
        if lost.rows:
            segments.set_aside(path, lost)
        if nameless:
            text = "%d of these samples are stored, but the names of their series are lost: no question finds them"
            _log.error(f"{text} before their senders send these series again", nameless)
    if until_ms:
        names.note_nameless(until_ms)

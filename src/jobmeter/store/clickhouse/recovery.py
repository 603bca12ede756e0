"""Recovers the rows that an earlier process left in the journal and that the engine may not have."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from jobmeter.model.batch import Bools, Uint64s
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.rows import SampleRuns, list_descriptors
from jobmeter.store.clickhouse.segment_content import Loss, SegmentContent
from jobmeter.store.clickhouse.segments import Segments

_log = logging.getLogger(__name__)


class SeriesNames(Protocol):
    """The series that the engine can name. Used only after damage."""

    def find_nameless(self, ids: Uint64s) -> Bools:
        """Return bool[k]: the series that have no descriptor in the engine."""
        ...

    def note_nameless(self, until_ms: int) -> None:
        """Note durably that before that time there may be samples of series without a descriptor."""
        ...


class Recovered(NamedTuple):
    """The rows of all left segments, in order; ``damaged`` if some were lost."""

    groups: Sequence[SampleRuns]
    damaged: bool


def recover(segments: Segments, names: SeriesNames) -> Recovered:
    """Read all left segments, and every descriptor in them.

    Segments that lost samples are quarantined, and the loss is logged. A sample also counts as lost if its series has
    no name: no query finds it until its sender sends the series again.
    """
    found = [(path, segments.read(path)) for path in segments.left]
    groups = [rows for _, content in found for rows in content.groups]
    loose = [one for _, content in found for one in content.descriptors]
    damaged = any(content.lost.rows for _, content in found)
    if damaged:
        described = [one.ids for one in (*list_descriptors(groups), *loose)]
        _quarantine(segments, found, np.concatenate([np.empty(0, np.uint64), *described]), names)
    if loose and groups:
        first = groups[0]
        groups[0] = replace(first, descriptors=Descriptors.concatenate([*list_descriptors([first]), *loose]))
    return Recovered(groups, damaged)


def _quarantine(
    segments: Segments, found: Sequence[tuple[Path, SegmentContent]], described: Uint64s, names: SeriesNames
) -> None:
    """Quarantine the segments that lost samples. ``described``: the series whose descriptors are in the journal."""
    every = np.unique(
        np.concatenate([rows.series for _, content in found for rows in content.groups] or [described[:0]])
    )
    unknown = every[~np.isin(every, described)]
    unknown = unknown[names.find_nameless(unknown)] if len(unknown) else unknown
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
            segments.quarantine(path, lost)
        if nameless:
            text = "%d of these samples are stored, but the names of their series are lost: no question finds them"
            _log.error(f"{text} before their senders send these series again", nameless)
    if until_ms:
        names.note_nameless(until_ms)

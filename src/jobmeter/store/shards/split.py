"""Splits series and samples by shard, and merges what the shards return."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from jobmeter.model.batch import BucketColumns, Int64s, SampleBatch, SampleColumns, SeriesKeys, Uint32s
from jobmeter.model.grouping import group_pairs
from jobmeter.model.series import Series
from jobmeter.store.shards.placement import find_shards, number_keys

_Found = TypeVar("_Found", bound="SampleColumns | BucketColumns")


@dataclass(slots=True)
class KeyPart:
    """The keys of one shard among a list of keys, in the same order; ``places`` are their positions in the list."""

    shard: int
    places: Int64s
    keys: SeriesKeys
    series: Sequence[Series] | None = None


@dataclass(slots=True)
class _KeySplit:
    parts: Sequence[KeyPart]
    part: Int64s
    """Number of the part of each key."""
    within: Uint32s
    """Position of each key in its part."""


def split_keys(keys: SeriesKeys, count: int) -> Sequence[KeyPart]:
    """Split keys by shard. The result is cached with the keys."""
    return _split(keys, count).parts


def _split(keys: SeriesKeys, count: int) -> _KeySplit:
    cached: _KeySplit | None = keys.derived.get((split_keys, count))
    if cached is None:
        shards, part = np.unique(find_shards(number_keys(keys), count), return_inverse=True)
        within = np.zeros(len(keys), np.uint32)
        parts: list[KeyPart] = []
        for number, shard in enumerate(shards.tolist()):
            places = np.flatnonzero(part == number)
            within[places] = np.arange(len(places), dtype=np.uint32)
            parts.append(KeyPart(shard, places, keys if len(shards) == 1 else keys.select(places)))
        cached = keys.derived[split_keys, count] = _KeySplit(parts, part.astype(np.int64), within)
    return cached


def split_batches(batches: Sequence[SampleBatch], count: int) -> dict[int, list[SampleBatch]]:
    """Split batches by shard, in order."""
    return group_pairs((shard, part) for batch in batches for shard, part in _split_batch(batch, count))


def _split_batch(batch: SampleBatch, count: int) -> Iterator[tuple[int, SampleBatch]]:
    if not len(batch):
        return
    split = _split(batch.keys, count)
    if len(split.parts) == 1:
        yield split.parts[0].shard, batch
        return
    part_of_row = split.part[batch.index]
    for number, part in enumerate(split.parts):
        rows = np.flatnonzero(part_of_row == number)
        if not len(rows):
            continue
        if part.series is None:
            part.series = [batch.series[place] for place in part.places.tolist()]
        index = split.within[batch.index[rows]]
        yield part.shard, SampleBatch(part.series, index, batch.time[rows], batch.value[rows], part.keys)


def renumber(found: _Found, part: KeyPart) -> _Found:
    """Return columns of a part with positions in the whole list of keys."""
    return replace(found, index=part.places[found.index].astype(np.uint32))


def merge_columns(parts: Sequence[_Found]) -> _Found:
    """Merge columns of different series, each sorted by (index, time)."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0].__struct_fields__
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    order = np.argsort(joined["index"], kind="stable")
    return replace(parts[0], **{name: column[order] for name, column in joined.items()})


Fill = Callable[[Mapping[int, Iterator[SampleColumns]]], Mapping[int, SampleColumns | None]]
"""Returns the next block of some streams, None for a stream that has ended."""


def merge_blocks(streams: Mapping[int, Iterator[SampleColumns]], fill: Fill) -> Iterator[SampleColumns]:
    """Merge streams of blocks of different series, sorted by (index, time). A series may continue in the next block."""
    blocks: dict[int, SampleColumns] = {}
    left = dict(streams)
    while left or blocks:
        for name, block in fill({name: stream for name, stream in left.items() if name not in blocks}).items():
            if block is None:
                del left[name]
            elif len(block):
                blocks[name] = block
        if blocks.keys() >= left.keys():  # else a block was empty
            ready, blocks = _take_ready(blocks, left)
            if ready:
                yield merge_columns(ready)


def _take_ready(
    blocks: Mapping[int, SampleColumns], left: Collection[int]
) -> tuple[list[SampleColumns], dict[int, SampleColumns]]:
    """Divide blocks into the rows before which no further block has any, and the others."""
    # The next block of a stream has the last series of this one, or later ones.
    until = min((int(blocks[name].index[-1]) for name in left), default=None)
    ready: list[SampleColumns] = []
    others: dict[int, SampleColumns] = {}
    for name, block in blocks.items():
        end = len(block) if until is None else int(np.searchsorted(block.index, until, "right"))
        if end:
            ready.append(block.select(slice(end)))
        if end < len(block):
            others[name] = block.select(slice(end, None))
    return ready, others

"""Allocations in the database: joins new intervals with the stored ones, and reads them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby

import sqlalchemy as sa

from jobmeter.registry.intervals import DeviceKey, Interval, IntervalChange, join
from jobmeter.registry.schema import allocations
from jobmeter.registry.statements import iterate_chunks


def merge_allocations(
    connection: sa.Connection, fresh: Sequence[tuple[DeviceKey, Interval]], gap_ms: int
) -> list[IntervalChange]:
    """Join intervals with the stored ones of the same keys. Write and return the changes.

    The caller has written the rows of the jobs in the same transaction: their locks exclude other writers.
    """
    if not fresh:
        return []
    changes = join(_read_stored(connection, sorted({key for key, _ in fresh})), fresh, gap_ms)
    inserted = [_row(change) for change in changes if change.keep.row is None]
    widened = [
        {
            "row": change.keep.row,
            "new_start": change.keep.start,
            "new_end": change.keep.end,
            "new_cluster": change.keep.cluster,
            "new_rank": change.keep.rank,
        }
        for change in changes
        if change.keep.row is not None
    ]
    dropped = [{"row": row} for change in changes for row in change.drop]
    if inserted:
        connection.execute(sa.insert(allocations), inserted)
    if widened:
        connection.execute(_WIDEN, widened)
    if dropped:
        connection.execute(_DROP, dropped)
    return changes


def _read_stored(connection: sa.Connection, keys: Sequence[DeviceKey]) -> Mapping[DeviceKey, list[Interval]]:
    found: dict[DeviceKey, list[Interval]] = defaultdict(list)
    for project, own in groupby(keys, key=lambda key: key.project):
        for some in iterate_chunks(list(own)):
            # By job and replica, which the index finds. A list of whole keys takes longer to send than to answer.
            question = sa.select(allocations).where(
                allocations.c.project == project,
                allocations.c.job.in_(sorted({key.job for key in some})),
                allocations.c.replica.in_(sorted({key.replica for key in some})),
            )
            chunk = set(some)
            for row in connection.execute(question):
                key = DeviceKey(row.project, row.job, row.replica, row.node, row.device, row.source)
                if key in chunk:
                    found[key].append(Interval(row.start, row.end, row.cluster, row.rank, row.id))
    return found


def _row(change: IntervalChange) -> dict[str, object]:
    key, interval = change.key, change.keep
    return {
        **{name: getattr(key, name) for name in DeviceKey.__struct_fields__},
        "cluster": interval.cluster,
        "start": interval.start,
        "end": interval.end,
        "rank": interval.rank,
    }


_WIDEN = (
    sa.update(allocations)
    .where(allocations.c.id == sa.bindparam("row"))
    .values(
        {
            name: sa.bindparam(f"new_{name}", type_=allocations.c[name].type)
            for name in ("start", "end", "cluster", "rank")
        }
    )
)
_DROP = sa.delete(allocations).where(allocations.c.id == sa.bindparam("row"))

"""Cuts records into transactions, so that others may write between two of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from jobmeter.model.record import JobRecord
from jobmeter.registry.records import PreparedJob
from jobmeter.registry.statements import iterate_chunks

MOST_ROWS = 1_000
"""Most rows of jobs, replicas and allocations that one transaction of records writes, about 50 ms."""


def drop_repeats(records: Sequence[JobRecord]) -> list[JobRecord]:
    """Drop each record that equals the one before it: recording it again changes nothing."""
    return [record for place, record in enumerate(records) if not place or record != records[place - 1]]


def split(entries: Iterable[PreparedJob], rows: int = MOST_ROWS) -> Iterator[list[PreparedJob]]:
    """Split records into transactions of at most ``rows`` rows, in the order in which all servers lock rows.

    A larger record is cut: first the job, then its replicas in several steps.
    """
    current: list[PreparedJob] = []
    used = 0
    for entry in sorted(entries, key=lambda one: one.record.job_id):
        for part in _parts(entry, rows):
            cost = _rows(part)
            if current and used + cost > rows:
                yield current
                current, used = [], 0
            current.append(part)
            used += cost
    if current:
        yield current


def _rows(entry: PreparedJob) -> int:
    return 1 + len(entry.replicas) + len(entry.allocations) + sum(len(one.devices) for one, _ in entry.replicas)


def _parts(entry: PreparedJob, rows: int) -> Iterator[PreparedJob]:
    if _rows(entry) <= rows:
        yield entry
        return
    nothing: dict[str, Any] = dict.fromkeys(entry.values)
    yield replace(entry, replicas=(), allocations=())
    rest = replace(entry, values=nothing, replicas=(), allocations=(), checkpoints=None, extra=None)
    for some in iterate_chunks(entry.replicas, max(rows // 2, 1)):
        yield replace(rest, replicas=tuple(some))
    for some in iterate_chunks(entry.allocations, rows):
        yield replace(rest, allocations=tuple(some))

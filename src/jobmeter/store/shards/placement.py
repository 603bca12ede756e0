"""Placement of rows on shards: the only place that decides it.

Each row has a 64-bit number, from which jump consistent hashing computes its shard
(https://arxiv.org/abs/1406.2294; ClickHouse has the same function). Everything that is measured about a job has the
number of the job. The metrics of a node that belong to no job are spread by series. More shards move rows to new
shards only.
"""

from hashlib import md5

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import SeriesKeys, Uint64s
from jobmeter.model.log import LogLine
from jobmeter.model.log_batch import LogSource
from jobmeter.model.series import NO_JOB

_FACTOR = np.uint64(2_862_933_555_777_941_757)
_BY_SERIES = f"if(job = {NO_JOB}, series, job)"
NUMBERS = {
    "series": _BY_SERIES,
    "samples": _BY_SERIES,
    "minutes": _BY_SERIES,
    "hours": _BY_SERIES,
    "logs": "if(facility = '', job, reinterpretAsUInt64(MD5(node)))",
    "spans": "reinterpretAsUInt64(reverse(unhex(substring(trace, 17))))",
    "outbox": "job",
}
"""SQL of the number of a row, by table. The functions below compute the same numbers."""


def find_shards(numbers: Uint64s, count: int) -> NDArray[np.int64]:
    """Return int64[n]: the shard of each number, from 0, among ``count`` shards."""
    state = numbers.copy()
    shard, following = np.full(len(state), -1, np.int64), np.zeros(len(state), np.int64)
    left = np.arange(len(state))
    while len(left):
        shard[left] = following[left]
        state[left] = state[left] * _FACTOR + np.uint64(1)
        scale = float(1 << 31) / ((state[left] >> np.uint64(33)).astype(np.float64) + 1)
        following[left] = ((shard[left] + 1) * scale).astype(np.int64)
        left = left[following[left] < count]
    return shard


def find_shard(number: int, count: int) -> int:
    """Return the shard of a number, from 0."""
    return int(find_shards(np.array([number], np.uint64), count)[0])


def number_keys(keys: SeriesKeys) -> Uint64s:
    """Return uint64[k]: the number of each series."""
    return np.where(keys.job == NO_JOB, keys.series, keys.job)


def number_line(line: LogLine | LogSource) -> int:
    """Return the number of log lines: of their job, or of their node for a system log."""
    return number_node(line.node) if line.facility else line.key


def number_node(node: str) -> int:
    """Return the number of the system log of a node, in whatever project."""
    return int.from_bytes(md5(node.encode(), usedforsecurity=False).digest()[:8], "little")


def number_trace(trace: str) -> int:
    """Return the number of the spans of a trace. A trace may have spans of several jobs."""
    return int(trace[16:], 16)


def is_on(table: str, shard: int, count: int) -> str:
    """Return the SQL condition for the rows of a table that belong to a shard, from 0, among ``count`` shards."""
    return f"jumpConsistentHash({NUMBERS[table]}, {count}) = {shard}"

"""All raw samples of a job's day, as a program fetches them."""

import time
from collections.abc import Sequence

from benchmarks import processes
from benchmarks.client import RefusedError, drain
from benchmarks.contestant import Asked, Contestant
from benchmarks.data import Data
from benchmarks.plan import Plan
from benchmarks.row import OURS, Row, higher, lower

HOURS = 24
_NOT_FOUND = 404


def export_rows(everybody: Sequence[Contestant], day: Data, plan: Plan) -> list[Row]:
    """Samples and bytes a second, and the memory that the server took for it; nothing where ours has no export."""
    rate, size = higher("raw export of a day", "samples/s"), higher("raw export of a day, text", "MB/s")
    memory = lower("raw export, the most memory beyond that before", "MiB")
    asked = Asked(day.job, day.end_ms, HOURS, 15, "device")
    count = day.value.shape[0] * HOURS * 240
    try:
        for everyone in plan.turns(everybody):
            for one in everyone:
                processes.forget_peak(one.pid)
                before = processes.peak_megabytes(one.pid)
                seconds, octets, lines = _fetch(one, asked)
                if one.name == OURS and lines != count + 1:
                    raise RuntimeError(f"{lines:,} lines were exported, {count + 1:,} should have been")
                rate.add(one.name, count / seconds)
                size.add(one.name, octets / seconds / 1e6)
                memory.add(one.name, max(0.0, processes.peak_megabytes(one.pid) - before))
    except RefusedError as error:
        if error.status != _NOT_FOUND:
            raise
        return []
    return [rate, size, memory]


def _fetch(one: Contestant, asked: Asked) -> tuple[float, int, int]:
    """Seconds, bytes and lines."""
    octets, lines, begin = 0, 0, time.perf_counter()
    for piece in drain(one.request(one.export(asked))):
        octets += len(piece)
        lines += piece.count(b"\n")
    return time.perf_counter() - begin, octets, lines

"""Map Flink's metrics to the catalogue, with their conversion.

https://nightlies.apache.org/flink/flink-docs-release-1.20/docs/ops/metrics/. The catalogue's names are Blink's. If
Flink lacks a metric of Blink, the nearest one is used, see docs/how-to/flink.md.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

_NS_PER_MS = 1e6
UNSET = -1.0
"""Flink's value of an unset gauge."""


class Measured(NamedTuple):
    """Value of the metric ``flink.<name>``; ``labels`` are sorted by name."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


RESTARTS = "numRestarts"
_OF_JOBS = {
    "lastCheckpointDuration": ("lastCheckpointDuration",),
    "lastCheckpointSize": ("lastCheckpointSize", "state.state_newsize"),
    "lastCheckpointFullSize": ("state.state_size",),
    "totalNumberOfCheckpoints": ("checkpoints",),
}
JOB = (RESTARTS, *_OF_JOBS)
"""Metrics read of a job."""

CPU_TIME = "Status.JVM.CPU.Time"
"""Nanoseconds of CPU that a task manager has used."""
_OF_TASK_MANAGERS = {
    "Status.JVM.CPU.Load": "Status.JVM.CPU.Usage",
    "Status.JVM.Memory.Heap.Used": "Status.JVM.Memory.Heap.Used",
    "Status.JVM.Memory.NonHeap.Used": "Status.JVM.Memory.NonHeap.Used",
    "Status.JVM.Threads.Count": "Status.JVM.Threads.Count",
}
_GC = "Status.JVM.GarbageCollector."
_CMS = "ConcurrentMarkSweep"
_OLD = (
    *(_CMS, "G1_Old_Generation", "PS_MarkSweep", "MarkSweepCompact"),
    *("ZGC_Major_Cycles", "ZGC_Cycles", "Shenandoah_Cycles"),
)
"""Garbage collectors of the old generation. A JVM has one of them."""
TASK_MANAGER = (
    CPU_TIME,
    *_OF_TASK_MANAGERS,
    *(f"{_GC}{collector}.{part}" for collector in _OLD for part in ("Time", "Count")),
)
"""Metrics read of a task manager."""

_OF_TASKS: Sequence[tuple[str, Sequence[str], float]] = (
    ("numRecordsInPerSecond.rate", ("numRecordsInPerSecond",), 1.0),
    ("numRecordsOutPerSecond.rate", ("numRecordsOutPerSecond",), 1.0),
    ("buffers.inPoolUsage", ("Shuffle.Netty.Input.Buffers.inPoolUsage", "buffers.inPoolUsage"), 1.0),
    ("buffers.outPoolUsage", ("Shuffle.Netty.Output.Buffers.outPoolUsage", "buffers.outPoolUsage"), 1.0),
    ("checkpointAlignmentTime", ("checkpointAlignmentTime",), 1.0),
    ("taskLatency.sum", ("busyTimeMsPerSecond",), _NS_PER_MS),
    ("waitOutput.sum", ("backPressuredTimeMsPerSecond",), _NS_PER_MS),
)
_PER_RECORD = (
    ("taskLatency.histogram.mean", "busyTimeMsPerSecond", "numRecordsInPerSecond"),
    ("waitInput.histogram.mean", "idleTimeMsPerSecond", "numRecordsInPerSecond"),
    ("waitOutput.histogram.mean", "backPressuredTimeMsPerSecond", "numRecordsOutPerSecond"),
)
"""Times per second, divided by the records per second: the mean of one record."""
_TASK = frozenset(name for _, names, _ in _OF_TASKS for name in names) | {one for row in _PER_RECORD for one in row[1:]}

_OPERATOR = frozenset({"watermarkLatency", "lateRecordsDroppedRate", "numLateRecordsDropped"})
_LAGS = {
    "currentEmitEventTimeLag": "delay",
    "currentFetchEventTimeLag": "fetched_delay",
    "sourceIdleTime": "no_data_delay",
}
_SOURCE = _LAGS.keys() | {
    *("numRecordsIn", "numRecordsInPerSecond", "numRecordsInErrors", "numRecordsOutPerSecond"),
    *("numBytesIn", "numBytesInPerSecond"),
}
_SINK = frozenset({"numRecordsSend", "numRecordsInPerSecond", "numRecordsOutPerSecond"})
_STATE = re.compile(
    r"(?P<operator>.+)\.state_name\..+\.(?P<kind>valueStateGet|mapStateGet|listStateGet|reducingStateGet|"
    r"aggregatingStateGet|valueStateUpdate|mapStatePut|listStateAdd|reducingStateAdd|aggregatingStateAdd|"
    r"mapStateIteratorNext)Latency_mean"
)
_LATENCY = re.compile(r"latency\..+\.latency_mean")


def measure_job(read: Mapping[str, float]) -> Iterator[Measured]:
    """Yield values of a job's checkpoints; missing ones are absent."""
    for theirs, names in _OF_JOBS.items():
        if (value := _number(read, theirs)) is not None and value != UNSET:
            yield from (Measured(name, value) for name in names)


def measure_task_manager(read: Mapping[str, float]) -> Iterator[Measured]:
    """Yield values of a task manager's JVM. Its garbage collector is a label."""
    for theirs, name in _OF_TASK_MANAGERS.items():
        if (value := _number(read, theirs)) is not None:
            yield Measured(name, value)
    found = next((one for one in _OLD if f"{_GC}{one}.Count" in read), None)
    for part in ("Time", "Count"):
        if found and (value := _number(read, f"{_GC}{found}.{part}")) is not None:
            yield Measured(f"{_GC}{_CMS}.{part}", value, (("collector", found),))


def select(names: Iterable[str]) -> list[str]:
    """Return the metrics of a subtask that ``measure_subtask`` reads, in order."""
    return sorted(name for name in names if name in _TASK or _LATENCY.fullmatch(name) or _split_operator(name))


def measure_subtask(read: Mapping[str, float]) -> Iterator[Measured]:
    """Yield values of one subtask and of its operators, which are labels."""
    for name, theirs, factor in _OF_TASKS:
        value = next((found for one in theirs if (found := _number(read, one)) is not None), None)
        if value is not None:
            yield Measured(name, value * factor)
    for name, time, rate in _PER_RECORD:
        spent, records = _number(read, time), _number(read, rate)
        if spent is not None and records:
            yield Measured(name, spent * _NS_PER_MS / records)
    markers = [value for name in read if _LATENCY.fullmatch(name) and (value := _number(read, name)) is not None]
    if markers:
        yield Measured("partitionLatency.mean", math.fsum(markers) / len(markers) * _NS_PER_MS)
    operators: dict[str, dict[str, float]] = {}
    for name, value in read.items():
        if math.isfinite(value) and (parts := _split_operator(name)):
            operators.setdefault(parts[0], {})[parts[1]] = value
    for operator, own in operators.items():
        for name, value in _read_operator(operator, own):
            yield Measured(name, value, (("operator", operator),))


def _split_operator(name: str) -> tuple[str, str] | None:
    """Return the operator and its metric; None for other metrics."""
    if match := _STATE.fullmatch(name):
        return match["operator"], name[len(match["operator"]) + 1 :]
    operator, _, metric = name.rpartition(".")
    read = _OPERATOR | (_SOURCE if _is_source(operator) else _SINK if _is_sink(operator) else frozenset())
    return (operator, metric) if operator and metric in read else None


def _is_source(operator: str) -> bool:
    return operator.startswith("Source__")


def _is_sink(operator: str) -> bool:
    return operator.endswith("__Writer") or (operator.startswith("Sink__") and not operator.endswith("ommitter"))


def _read_operator(operator: str, own: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    yield from ((name, own[name]) for name in sorted(_OPERATOR & own.keys()))
    if _is_source(operator):
        yield from _read_source(own)
    elif _is_sink(operator):
        # A sink that does not count its output, which is usual, gets the count of its input.
        sent = "numRecordsOutPerSecond" if own.get("numRecordsSend") else "numRecordsInPerSecond"
        if sent in own:
            yield "sink.outTps.rate", own[sent]
    yield from _read_state(operator, own)


def _read_source(own: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for theirs, name in _LAGS.items():
        if own.get(theirs, UNSET) != UNSET:
            yield name, own[theirs]
    # A source that does not count its input (before Flink's Source interface) gets the count of its output.
    counted = own.get("numRecordsIn", 0.0)
    taken = "numRecordsInPerSecond" if counted else "numRecordsOutPerSecond"
    if taken in own:
        yield "tps.rate", own[taken]
    if "numRecordsOutPerSecond" in own:
        yield "parserTps.rate", own["numRecordsOutPerSecond"]
    if own.get("numBytesIn") and "numBytesInPerSecond" in own:
        yield "inBps.rate", own["numBytesInPerSecond"]
    if counted and "numRecordsInErrors" in own:
        yield "parserSkipCount", own["numRecordsInErrors"] / max(counted, own["numRecordsInErrors"])


_STATE_NAMES = {"Get": "rocksdb_get.mean", "Next": "rocksdb_seek.mean"}


def _read_state(operator: str, own: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    times: dict[str, list[float]] = {}
    for name, value in own.items():
        if match := _STATE.fullmatch(f"{operator}.{name}"):
            kind = next(
                (name for ending, name in _STATE_NAMES.items() if match["kind"].endswith(ending)), "rocksdb_put.mean"
            )
            times.setdefault(kind, []).append(value)
    yield from ((name, math.fsum(values) / len(values)) for name, values in sorted(times.items()))


def _number(read: Mapping[str, float], name: str) -> float | None:
    value = read.get(name)
    return value if value is not None and math.isfinite(value) else None

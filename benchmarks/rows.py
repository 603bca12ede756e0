"""The rows of the table: what is measured, for whom, and what the bar is."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks import ours as ours_module
from benchmarks import peers
from benchmarks.client import Request, answer, latency, rate
from benchmarks.data import Data


@dataclass
class Row:
    """One line: figures by contestant, each a list over the runs; ``better`` is ``lower`` or ``higher``."""

    name: str
    unit: str
    better: str
    figures: dict[str, list[float]] = field(default_factory=dict)
    note: str = ""

    def add(self, contestant: str, value: float | None) -> None:
        if value is not None:
            self.figures.setdefault(contestant, []).append(value)

    def median(self, contestant: str) -> float | None:
        values = self.figures.get(contestant)
        return statistics.median(values) if values else None


@dataclass(frozen=True)
class Contestant:
    """Somebody who is asked: its name, its way to say a question, and what it was loaded with."""

    name: str
    request: Callable[[str], Request]
    question: Callable[..., str]


def contestants(ours: ours_module.Ours, running: Sequence[peers.Peer]) -> list[Contestant]:
    """All of them, ours first."""
    mine = [Contestant(ours.name, ours.request, ours_module.question)]
    return mine + [Contestant(peer.name, peer.request, peers.question) for peer in running]


def query_rows(
    everybody: list[Contestant], ours: ours_module.Ours, data: Data, seconds: float, rounds: int
) -> list[Row]:
    """Live and day questions: contestants take turns, the order alternates, medians are told."""
    live = {"replica": "worker-3", "by": "device", "hours": 1, "step_s": 300}
    day = {"replica": None, "hours": 24, "step_s": 300}
    rows = [Row("live, first ask", "ms", "lower"), Row("live, 1 connection, p50", "ms", "lower")]
    rows += [Row("live, 1 connection, p99", "ms", "lower"), Row("live, 16 connections", "1/s", "higher")]
    rows += [Row("day by replica, p50", "ms", "lower"), Row("day by GPU, p50", "ms", "lower")]
    for someone in everybody:
        begin = time.perf_counter()
        answer(someone.request(someone.question(data, **live)))
        rows[0].add(someone.name, (time.perf_counter() - begin) * 1000)
    for turn in range(rounds):
        for someone in everybody if turn % 2 == 0 else reversed(everybody):
            asked = someone.request(someone.question(data, **live))
            measured = latency(asked, seconds)
            rows[1].add(someone.name, measured.p50)
            rows[2].add(someone.name, measured.p99)
            rows[3].add(someone.name, rate(asked, 16, max(1, round(seconds))))
            by_replica = someone.request(someone.question(data, by="replica", **day))
            rows[4].add(someone.name, latency(by_replica, seconds).p50)
            by_device = someone.request(someone.question(data, by="device", **day))
            rows[5].add(someone.name, latency(by_device, seconds).p50)
    dialect = Row("live through PAI-DLC GetJobMetrics, 16 replicas", "ms", "lower")
    dialect.add(ours.name, latency(ours.request(ours_module.dlc_question(data)), seconds).p50)
    return [*rows, dialect]


def size_row(ours: ours_module.Ours, running: Sequence[peers.Peer], data: Data) -> list[Row]:
    """Bytes a sample on disk, as it lies after the load (merges go on behind)."""
    row = Row("bytes a raw sample", "B", "lower")
    status = ours.status()
    row.add(ours.name, status["bytes"]["samples"] / max(1, status["rows"]["samples"]))
    memory = Row("resident memory after the questions", "MiB", "lower")
    memory.add(ours.name, ours.memory())
    for peer in running:
        row.add(peer.name, peer.disk() / data.samples)
        memory.add(peer.name, peer.memory())
    return [row, memory]

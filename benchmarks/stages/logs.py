"""System logs: cost of writing lines, of searching a day of lines, and their size on disk."""

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zstandard

from benchmarks.plan import Plan
from benchmarks.row import OURS, Table
from jobmeter.access.principal import Principal, Role
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.retention import Retention
from jobmeter.model.time import DAY, SystemClock
from jobmeter.registry.open import open_registry
from jobmeter.settings import Limits
from jobmeter.store.base import LogSelector, ReadBudget, Store
from jobmeter.store.registry import open_store
from jobmeter.wire.native.logs import make_logs_frame

_NODE, _TOGETHER = "n1", 100_000
_A_BODY, _SENDERS = 5_000, 8
_RARE_EVERY = 1_000_003
_SEARCHES = 20


def measure(plan: Plan, table: Table) -> None:
    """Measure one day of lines of one node: ingestion of an agent's bodies, searches, and bytes a line."""
    bodies, raw, packed = _bodies(plan.log_lines)
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"chdb://{Path(folder) / 'telemetry'}", clock)
        registry = open_registry(f"sqlite:///{Path(folder) / 'registry.db'}", Retention())
        pipeline = IngestPipeline(store, registry, clock, Limits())
        try:
            _write(pipeline, bodies, table)
            _search(store, table)
            size = store.read_statistics().bytes["logs"]
        finally:
            pipeline.close()
            store.close()
            registry.close()
    table.add("logs.lines", OURS, plan.log_lines)
    for key, value in (("bytes", size), ("raw", raw), ("packed", packed)):
        table.add(f"logs.{key}", OURS, value / plan.log_lines)


def _bodies(count: int) -> tuple[list[bytes], int, int]:
    """Return the bodies that an agent sends, the bytes of all texts, and the bytes of one zstd stream of all texts."""
    bodies: list[bytes] = []
    raw, packed = 0, 0
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    for lines in _lines(count):
        bodies += [make_logs_frame(lines[first : first + _A_BODY]) for first in range(0, len(lines), _A_BODY)]
        text = "".join(f"{line.text}\n" for line in lines).encode()
        raw, packed = raw + len(text), packed + len(compressor.compress(text))
    return bodies, raw, packed + len(compressor.flush())


def _write(pipeline: IngestPipeline, bodies: Sequence[bytes], table: Table) -> None:
    """Measure writing with eight senders.

    Each sender waits for the acknowledgement of a body, which means that the body is on disk, before the next body.
    """
    agent = Principal(id="agent", name="agent", role=Role.WRITER, project="default")
    begin, spent = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(_SENDERS) as senders:
        count = sum(senders.map(lambda body: pipeline.submit(body, agent).wait().lines, bodies))
    table.add("logs.write", OURS, count / (time.perf_counter() - begin))
    table.add("logs.write.cpu", OURS, (time.process_time() - spent) / count * 1e6)


def _lines(count: int) -> Iterator[list[LogLine]]:
    """Yield batches of lines spread over one day, in the order of time.

    The lines have a few patterns, with numbers that differ from line to line.
    """
    chance = random.Random(3)
    begin = (SystemClock().now_ms() // DAY - 1) * DAY * 1_000_000
    step = DAY * 1_000_000 // count
    for first in range(0, count, _TOGETHER):
        yield [
            LogLine(
                time_ns=begin + at * step,
                text=_text(at, chance),
                node=_NODE,
                stream="journal",
                facility="daemon",
                severity=6,
                tag="app",
            )
            for at in range(first, min(first + _TOGETHER, count))
        ]


def _text(at: int, chance: random.Random) -> str:
    if at % _RARE_EVERY == _RARE_EVERY // 2:
        return f"NVRM: Xid (PCI:0000:3b:00): 79, pid={at}, GPU has fallen off the bus"
    number = chance.getrandbits(20)
    return (
        f"epoch {at // 5000} step {at} loss 0.{number:07d} took {number % 997} ms",
        f"GET /api/v1/jobs/{number:05x}/metrics 200 {number % 4096} bytes",
        f"worker-{number % 64}: reading shard {number % 5000} of 5000",
        f"connection from 10.{number % 256}.{number // 256 % 256}.7 port {number % 60000} closed",
    )[at % 4]


def _search(store: Store, table: Table) -> None:
    for key, text in (("rare", "Xid"), ("common", "worker"), ("page", '"reading shard" AND NOT epoch')):
        selector = LogSelector(node=_NODE, projects=frozenset({"default"}), query=parse_log_query(text), limit=100)
        for _ in range(_SEARCHES):
            begin = time.perf_counter()
            found = store.logs.read(selector, ReadBudget()).lines
            table.add(f"logs.{key}", OURS, (time.perf_counter() - begin) * 1000)
            if not found:
                table.fail(f"logs.{key}", "nothing was found")

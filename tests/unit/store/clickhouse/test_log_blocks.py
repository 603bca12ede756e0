"""Tests of lines on their way into the engine: blocks of bounded size hold each line once, in order within a day."""

import random

import pyarrow as pa
import pytest

from jobmeter.model.log import LogLine
from jobmeter.model.log_batch import LogBatch
from jobmeter.store.clickhouse import log_blocks

DAY_NS = 86_400_000_000_000


def read(block: bytes) -> list[dict[str, object]]:
    with pa.ipc.open_stream(block) as stream:
        return stream.read_all().to_pylist()


def test_a_line_of_a_job_and_one_of_a_node_become_rows():
    job = LogLine(time_ns=1, text="é\x00", job="j", replica="w", attempt=3, node="n", stream="stderr")
    node = LogLine(time_ns=2, text="Xid", job="j", replica="w", node="n", stream="kernel", facility="kern", severity=3)
    (block,) = log_blocks.encode_blocks(LogBatch.from_lines([job, node]), 15)
    first, second = read(block)
    common = {"node": "n", "level": 0, "raw_days": 15, "tag": ""}
    assert first == common | {
        "job": job.key, "time_ns": 1, "text": "é\x00", "replica": "w", "attempt": 3, "stream": "stderr",
        "facility": "", "severity": 255, "about_job": "", "about_replica": "",
    }  # fmt: skip
    assert second == common | {
        "job": node.key, "time_ns": 2, "text": "Xid", "replica": "", "attempt": 0, "stream": "kernel",
        "facility": "kern", "severity": 3, "about_job": "j", "about_replica": "w",
    }  # fmt: skip


@pytest.mark.parametrize("days", [1, 300])
def test_blocks_are_bounded_in_lines_bytes_and_days(monkeypatch, days):
    monkeypatch.setattr(log_blocks, "_LINES", 100)
    monkeypatch.setattr(log_blocks, "_BYTES", 2_000)
    chance = random.Random(days)
    lines = [
        LogLine(time_ns=chance.randrange(days) * DAY_NS + at, text="x" * chance.randrange(60), job="j")
        for at in range(1_500)
    ]
    found = [read(block) for block in log_blocks.encode_blocks(LogBatch.from_lines(lines), 15)]
    for rows in found:
        assert len(rows) <= 100
        assert sum(len(str(row["text"])) for row in rows) <= 2_000 + 60
        assert len({int(str(row["time_ns"])) // DAY_NS for row in rows}) <= 90
    written = [(row["time_ns"], row["text"]) for rows in found for row in rows]
    expected = sorted(lines, key=lambda line: line.time_ns // DAY_NS)
    assert written == [(line.time_ns, line.text) for line in expected]


def test_no_lines_are_no_block():
    assert list(log_blocks.encode_blocks(LogBatch.from_lines([]), 15)) == []

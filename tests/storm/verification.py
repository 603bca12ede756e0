"""Compares everything that is stored with everything that was acknowledged."""

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.storm.ledger import METRIC, JobLedger, Report
from tests.storm.questions import Range
from tests.storm.traffic import Clerk
from tests.support.processes import API, Reply, ServerProcess
from tests.support.waiting import wait_until

_BATCHES, _LINES = 1_000, 100
_HOUR_MS = 3_600_000


def verify(server: ServerProcess, ledger: JobLedger, report: Report) -> None:
    """Report missing, old, repeated and invented samples of a job at a server."""
    for asked in _ranges(ledger):
        rows = _read_rows(server, asked)
        _verify_rows(asked, rows, report)
        _verify_counts(server, asked, report)


def _ranges(ledger: JobLedger) -> Iterator[Range]:
    for first in range(0, len(ledger.acknowledged), _BATCHES):
        yield Range(ledger, first, np.array(ledger.acknowledged[first : first + _BATCHES]))


def _read_rows(server: ServerProcess, asked: Range) -> pa.Table:
    def read() -> bytes:
        with suppress(HTTPException):  # an answer that ended early
            reply = server.call(
                "GET", f"{API}/jobs/{asked.ledger.job}/samples",
                metric=METRIC, format="parquet", start=asked.start, end=asked.end,
            )  # fmt: skip
            return reply.body if reply.status == 200 else b""
        return b""

    return pq.read_table(io.BytesIO(wait_until(read, f"the samples of {asked.ledger.job}")))


def _verify_rows(asked: Range, rows: pa.Table, report: Report) -> None:
    shape = asked.ledger.shape
    names = rows["replica"].to_numpy(zero_copy_only=False)
    times = rows["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    found = rows["value"].to_numpy()
    for replica in range(shape.replicas):
        own = names == f"w{replica}"
        values = np.full(len(asked.times()), np.nan)
        places = (times[own] - asked.start) // shape.spacing_ms
        values[places] = found[own]
        expected = shape.values(asked.first, replica, asked.acknowledged)
        for kind, count in {
            "lost": int(np.isnan(values).sum()),
            "doubled": int(own.sum() - len(np.unique(places))),
            "old": int((values != expected).sum() - np.isnan(values).sum()),
        }.items():
            if count:
                where = np.flatnonzero(values != expected)[:1] // shape.points + asked.first
                report.note(kind, f"at the end: {count} samples of w{replica} of {asked.ledger.job}, batch {where}")


def _verify_counts(server: ServerProcess, asked: Range, report: Report) -> None:
    """Compare the counts of hours, which come from roll-ups where these are complete."""
    query: dict[str, Any] = {"metric": METRIC, "start": asked.start, "end": asked.end}
    query |= {"by": "replica", "statistic": "count", "step": "1h"}
    reply = _await_answer(server, f"/jobs/{asked.ledger.job}/metrics", **query)
    counts = {line["replica"]: sum(point[1] for point in line["points"]) for line in reply.json()["lines"]}
    for replica in range(asked.ledger.shape.replicas):
        if counts.get(f"w{replica}") != len(asked.times()):
            text = f"at the end: hours of w{replica} of {asked.ledger.job} count {counts.get(f'w{replica}')}"
            report.note("wrong", f"{text} instead of {len(asked.times())} samples")


def verify_clerk(server: ServerProcess, clerk: Clerk, report: Report) -> None:
    """Report acknowledged lines that do not exist exactly once, and missing acknowledged records."""
    found: Counter[str] = Counter()
    for first in range(0, clerk.number + 1, _LINES):
        span = {"start": clerk.time_of(first), "end": clerk.time_of(first + _LINES), "limit": _LINES}
        reply = _await_answer(server, "/jobs/job-0/logs", **span)
        found.update(line["text"] for line in reply.json()["lines"])
    for number in clerk.lines:
        if found[f"line {number}"] != 1:
            report.note("lost" if not found[f"line {number}"] else "doubled", f"at the end: log line {number}")
    for number in clerk.records:
        reply = _await_answer(server, f"/jobs/record-{number}")
        if reply.status != 200 or reply.json()["job"]["name"] != f"name {number}":
            report.note("lost", f"at the end: the record of job {number}: {reply.body[:100]!r}")


def _await_answer(server: ServerProcess, path: str, **query: Any) -> Reply:
    """Repeat a question until the server does not refuse it."""

    def ask() -> Reply | None:
        reply = server.call("GET", API + path, **query)
        return None if reply.status == 503 else reply

    found = wait_until(ask, f"an answer to {path}")
    assert found is not None
    return found

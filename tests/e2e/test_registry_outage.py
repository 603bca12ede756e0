"""Tests of a PostgreSQL that freezes or is killed under a running server: known keys can write, and nothing hangs."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.frames import row, samples
from tests.support.postgresql import PostgreSQL, own_server
from tests.support.processes import API, ServerProcess, running

pytestmark = pytest.mark.slow
ROUNDS = 30


@pytest.fixture
def database() -> Iterator[PostgreSQL]:
    with own_server() as server:
        yield server


def send(server: ServerProcess, job: str, at: int) -> int:
    return server.ingest(samples([row("app.number", [(at, 1.0)], job=job)])).status


def until(state: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(600):
        if state():
            return
        pause.wait(0.1)
    raise AssertionError("it was not so within a minute")


def ready(server: ServerProcess) -> bool:
    return server.call("GET", "/readyz").status == 200


@pytest.mark.parametrize("way", ["freeze", "kill"])
def test_cached_keys_and_jobs_go_on(tmp_path: Path, database: PostgreSQL, way: str) -> None:
    now = int(time.time() * 1000) - 600_000
    with running(tmp_path / "data", "--registry", f"{database.url}/postgres") as server:
        assert send(server, "known", now) == 200
        getattr(database, way)()
        try:
            statuses = [send(server, "known", now + step * 1000) for step in range(1, ROUNDS)]
            new = server.ingest(samples([row("app.number", [(now, 1.0)], job="new")]))
            probes = [server.call("GET", "/readyz") for _ in range(ROUNDS)]
            refusals = [new, *probes, server.call("GET", f"{API}/jobs")]
            refusals.append(server.call("GET", "/api/v1/jobs/known/metrics?MetricType=GpuCoreUsage"))
        finally:
            (database.thaw if way == "freeze" else database.start)()
        assert statuses == [200] * (ROUNDS - 1)
        assert {reply.status for reply in refusals[:-1]} == {503}
        for reply in refusals:
            assert database.url.rpartition(":")[2].encode() not in reply.body
            assert str(tmp_path).encode() not in reply.body
        assert "the registry does not work now" in server.output()
        until(lambda: ready(server))
        # Acknowledged data is stored, and the registry learns the new end of the job.
        until(lambda: send(server, "new", now) == 200)
        count = server.call(
            "GET", f"{API}/jobs/known/metrics", metric="app.number", step="1h", statistic="count",
            start=now - 3_600_000, end=now + 3_600_000,
        )  # fmt: skip
        (line,) = count.json()["lines"]
        assert sum(value for _, value in line["points"]) == ROUNDS
        last = now + (ROUNDS - 1) * 1000
        until(lambda: server.call("GET", f"{API}/jobs/known").json()["job"]["last_sample"] == last)

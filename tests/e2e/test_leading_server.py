"""Tests of three servers with workers on one ClickHouse node: workers see the data acknowledged by any server."""

import time
from typing import Any

import pytest

from tests.e2e.test_processes import worker_answers
from tests.e2e.test_several_servers import Servers, servers  # noqa: F401 - a fixture
from tests.support.frames import row, samples
from tests.support.processes import API, ServerProcess
from tests.support.waiting import wait_until


def values(server: ServerProcess, start: int, count: int) -> dict[int, float]:
    """Return the samples of the replica by their number in the span."""
    query: dict[str, Any] = {
        "metric": "app.number",
        "replica": "w",
        "start": start,
        "end": start + count * 1000,
        "step": "1s",
    }
    reply = server.call("GET", f"{API}/jobs/crash/metrics", statistic="last", **query)
    points = [point for line in reply.json()["lines"] for point in line["points"]]
    return {(time_ms - start) // 1000: value for time_ms, value in points if value is not None}


@pytest.mark.slow
@pytest.mark.parametrize("servers", ["2"], indirect=True, ids=["worker processes"])
def test_workers_of_every_server_answer_live_questions_with_each_sample(servers: Servers) -> None:  # noqa: F811
    base = int(time.time() * 1000) // 1000 * 1000 - 3_000_000
    assert servers.first.ingest(samples([row("app.number", [(base, 0.0)], job="crash", replica="w")])).status == 200
    servers.start(1)
    servers.start(2)

    def answers_itself(server: ServerProcess, before: float, newest: int) -> bool:
        assert set(values(server, base, 10)) == set(range(newest + 1))
        return worker_answers(server) > before

    for number in range(1, 7):
        body = samples([row("app.number", [(base + number * 1000, float(number))], job="crash", replica="w")])
        assert servers.all[number % 3].ingest(body).status == 200
        for server in servers.all:
            before = worker_answers(server)
            wait_until(lambda: answers_itself(server, before, number), "an answer of a worker")  # noqa: B023

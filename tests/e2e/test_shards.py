"""Tests of the documented commands for shards, on four real ClickHouse servers, while a whole shard is killed."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jobmeter.model.series import compute_job_key
from jobmeter.store.shards.placement import find_shard
from tests.e2e.test_move import BASE, HOUR
from tests.support.clickhouse import NodeProcess, mortal_nodes
from tests.support.frames import records, samples
from tests.support.processes import API, Reply, ServerProcess, run_cli
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs/how-to/clickhouse-cluster.md"
AWAY = "shards 2 of 2 (its servers do not answer)"


@pytest.fixture
def servers() -> Iterator[Sequence[NodeProcess]]:
    with mortal_nodes(4) as four:
        yield four


def documented(verb: str, servers: Sequence[NodeProcess], data: Path, *, removes: bool = False) -> list[str]:
    """Return the arguments of a command of the page, with the addresses and the folder of the test.

    ``removes`` chooses the command that removes shards.
    """
    section = PAGE.read_text().partition("## Shards without")[2].partition("\n## ")[0]
    lines = [one for one in re.findall(r"```sh\n(.*)\n```", section) if one.startswith(f"jobmeter {verb} ")]
    (line,) = (one for one in lines if ("&keep=" in one) == removes)
    for number, server in enumerate(servers, 1):
        line = line.replace(f"ch-{number}:8123", f"127.0.0.1:{server.own.http}")
    line = line.replace("jobmeter:PASSWORD@", "").replace("/srv/jobmeter", str(data))
    return shlex.split(line)[1:]


def job_on(shard: int, name: str) -> str:
    return next(
        job
        for job in (f"{name}-{number}" for number in range(99))
        if find_shard(compute_job_key("default", job), 2) == shard
    )


def send(server: ServerProcess, job: str, at: int) -> Reply:
    series = {"metric": "app.loss", "job": job, "replica": "w", "node": "n"}
    state = records({"jobs": [{"job_id": job, "state": "Running", "start": BASE}]})
    return server.ingest(state + samples([(series, [(BASE + at * 1_000, float(at))])]))


def ask(server: ServerProcess, job: str) -> Reply:
    span: dict[str, Any] = {"start": BASE, "end": BASE + HOUR}
    return server.call("GET", f"{API}/jobs/{job}/samples", metric="app.loss", format="csv", **span)


def shards(server: ServerProcess) -> dict[str, bool]:
    found: dict[str, bool] = server.request("GET", "/status").json()["shards"]
    return found


def test_the_documented_commands_move_onto_shards_that_then_may_go_away(servers, tmp_path):
    data = tmp_path / "data"
    here, gone = job_on(0, "here"), job_on(1, "gone")
    server = ServerProcess(data).start()
    try:
        for job in (here, gone):
            assert send(server, job, 0).status == 200
        done = run_cli(*documented("migrate-store", servers, data))
        assert done.returncode == 0, done.stderr
        server.stop()
        verb, *options = documented("serve", servers, data)
        assert verb == "serve"
        server.options = (*server.options, *options)
        server.start()
        wait_until(lambda: all(server.request("GET", "/status").json()["replicas"].values()), "the repair", 60)
        with ExitStack() as faults:
            for one in servers[2:]:
                faults.enter_context(one.killed())
            wait_until(lambda: shards(server) == {"1": True, "2": False})
            assert send(server, here, 1).status == 200
            found = ask(server, here)
            assert (found.status, found.body.count(b"\n"), found.headers.get("x-jobmeter-damaged")) == (200, 3, None)
            refused = ask(server, gone)
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) > 0
            assert b"shard 2 of 2" in refused.body
            listed = server.call("GET", f"{API}/traces")
            assert (listed.status, listed.headers["x-jobmeter-damaged"]) == (200, AWAY)
            promql = server.call("GET", "/prometheus/api/v1/query", query="app_loss", time=BASE / 1_000)
            assert promql.status == 503
            ready = server.call("GET", "/readyz")
            assert (ready.status, b"degraded" in ready.body) == (200, True)
            assert b'jobmeter_store_shard_up{shard="2"} 0.0' in server.call("GET", "/metrics").body
            assert send(server, gone, 1).status == 200  # into the journal
        wait_until(lambda: all(shards(server).values()))
        assert ask(server, gone).body.count(b"\n") == 3
        assert server.call("GET", f"{API}/traces").headers.get("x-jobmeter-damaged") is None
        server.stop()
        server.options = (*server.options[: -len(options)], *documented("serve", servers, data, removes=True)[1:])
        server.start()
        wait_until(lambda: "rows are on 1 shards now" in server.output(), "the removal", 120)
        assert [ask(server, job).body.count(b"\n") for job in (here, gone)] == [3, 3]
    finally:
        server.kill()

"""Tests of a data folder recorded with an older program: it opens and is complete. See ``recorded/facts.py``."""

import tarfile
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.e2e.recorded.facts import COUNT, ENVIRONMENT, JOB, LATE, LINES, REPLICAS, START, STEP, facts
from tests.support.processes import ServerProcess, running

RECORDED = Path(__file__).parent / "recorded"
END = START + STEP * COUNT


@pytest.fixture(params=sorted(path.name.removesuffix(".tar.xz") for path in RECORDED.glob("*.tar.xz")))
def server(request, tmp_path):
    """Run this program on the folder of a commit: first stopped, killed at the end."""
    with tarfile.open(RECORDED / f"{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    with running(tmp_path / "data", environment=ENVIRONMENT) as started:
        yield started


def points(server: ServerProcess, metric: str, replica: str, step: str) -> list[list[float]]:
    """Return the values of one replica, step by step."""
    asked = urlencode({"metric": metric, "start": START, "end": END, "by": "replica", "step": step})
    reply = server.call("GET", f"/api/jobmeter/v1/jobs/recorded/metrics?{asked}")
    assert reply.status == 200, reply.body
    (line,) = [one for one in reply.json()["lines"] if one["replica"] == replica]
    found: list[list[float]] = line["points"]
    return found


def test_a_folder_of_an_older_program_is_complete(server):
    expected = {(replica, metric, time): value for replica, _, metric, time, value in facts()}
    for metric in ("gpu.power", "memory.usage"):
        for replica in REPLICAS:
            every = points(server, metric, replica, "30s")
            assert {(replica, metric, time): value for time, value in every} == {
                key: value for key, value in expected.items() if key[:2] == (replica, metric)
            }
    newest = max(time for _, _, _, time, _ in list(facts())[-LATE:])
    assert points(server, "gpu.power", "worker-1", "30s")[-1][0] == newest, "what the journal alone had"

    hours = points(server, "gpu.power", "worker-0", "1h")
    for time, mean in hours:
        own = [value for (replica, metric, at), value in expected.items()
               if (replica, metric) == ("worker-0", "gpu.power") and time <= at < time + 3_600_000]  # fmt: skip
        assert mean == pytest.approx(sum(own) / len(own))
    assert len(hours) == COUNT * STEP // 3_600_000

    job = server.request("GET", "/jobs/recorded").json()
    assert (job["job"]["name"], job["job"]["state"]) == (JOB["name"], JOB["state"])
    assert sorted(one["name"] for one in job["replicas"]) == sorted(REPLICAS)
    lines = server.request("GET", "/jobs/recorded/logs?limit=1000").json()["lines"]
    assert [one["text"] for one in lines] == [one["text"] for one in LINES]

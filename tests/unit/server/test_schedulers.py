"""Tests of the status and the metrics of the schedulers that report to a server."""

import json

import msgspec
import pytest
from tests.support.frames import records
from tests.support.serving import serving

from jobmeter.cli.status import list_facts
from jobmeter.model.answers import Status
from jobmeter.model.time import DAY, HOUR, MINUTE
from jobmeter.registry.schedulers import MOST, MOST_OF_PROJECT


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    yield made
    made.application.close()


def report(server, *, key=None, kind="kubernetes", cluster="c", ago=0, interval_ms=10_000, **fields):
    one = {"kind": kind, "cluster": cluster, "time": server.clock.time_ms - ago, "interval_ms": interval_ms, **fields}
    body = records({"schedulers": [one]})
    return server.ingest(body) if key is None else server.ingest(body, key)


def status(server):
    return server.call("GET", "/status").json()["schedulers"]


def metrics(server):
    text = server.raw("GET", "/metrics").body.decode()
    found = (line.rpartition(" ") for line in text.splitlines() if "_scheduler_" in line and not line.startswith("#"))
    return {name: float(value) for name, _, value in found}


def lines(server):
    """Return the lines about schedulers that `jobmeter status` prints."""
    found = msgspec.json.decode(server.call("GET", "/status").body, type=Status)
    return [text for name, text in list_facts(found) if name == "scheduler"]


def test_a_scheduler_that_answers(server):
    assert (status(server), lines(server)) == ([], [])
    report(server)
    (one,) = status(server)
    assert (one["kind"], one["cluster"], one["project"], one["problem"], one["since"]) == (
        "kubernetes",
        "c",
        "default",
        "",
        None,
    )
    assert lines(server) == ["kubernetes of cluster c: ok, last report at 2026-01-01 00:00:00 UTC"]


def test_a_scheduler_that_does_not_answer(server):
    since = server.clock.time_ms
    server.clock.time_ms += MINUTE
    report(server, problem="no route to host", since=since)
    assert [(one["problem"], one["since"]) for one in status(server)] == [("no route to host", since)]
    assert lines(server) == [
        "kubernetes of cluster c: jobs are not up to date since 2026-01-01 00:00:00 UTC: no route to host"
    ]
    assert metrics(server)['jobmeter_scheduler_up{cluster="c",project="default",scheduler="kubernetes"}'] == 0
    report(server)
    assert metrics(server)['jobmeter_scheduler_up{cluster="c",project="default",scheduler="kubernetes"}'] == 1
    assert [one["problem"] for one in status(server)] == [""]


@pytest.mark.parametrize(("interval_ms", "silent_ms"), [(10_000, 10 * MINUTE), (HOUR, 3 * HOUR)])
def test_a_program_that_ended_is_a_problem(server, interval_ms, silent_ms):
    heard = server.clock.time_ms
    report(server, interval_ms=interval_ms)
    server.clock.time_ms += silent_ms - 1
    assert [one["problem"] for one in status(server)] == [""]
    server.clock.time_ms += 1
    (one,) = status(server)
    assert "`jobmeter scheduler kubernetes` has sent no report since 2026-01-01T00:00:00Z" in one["problem"]
    assert one["since"] == heard


def test_late_reports_do_not_replace_newer_ones(server):
    server.clock.time_ms += HOUR
    report(server)
    report(server, ago=30 * MINUTE, problem="old")
    assert [one["problem"] for one in status(server)] == [""]
    report(server, ago=-HOUR, problem="a clock that is ahead")
    assert [(one["problem"], one["heard"]) for one in status(server)] == [
        ("a clock that is ahead", server.clock.time_ms)
    ]


def test_reports_are_bounded_in_all_and_for_each_project(server):
    for number in range(MOST_OF_PROJECT + 5):
        server.clock.time_ms += 1
        report(server, cluster=f"c{number}")
    assert [one["cluster"] for one in status(server)] == sorted(
        f"c{number}" for number in range(5, MOST_OF_PROJECT + 5)
    )
    for project in range(MOST // MOST_OF_PROJECT + 5):
        key = server.key("writer", f"p{project}")
        one = {"kind": "slurm", "time": server.clock.time_ms, "interval_ms": 1}
        server.ingest(
            records({"schedulers": [{**one, "cluster": f"c{number}"} for number in range(MOST_OF_PROJECT)]}), key
        )
        assert len(status(server)) <= MOST
    assert len(status(server)) == MOST


def test_a_restart_keeps_the_reports_and_a_week_without_a_report_drops_them(server, tmp_path):
    report(server, problem="no route to host")
    server.application.close()
    again = serving(tmp_path / "data")
    assert [one["problem"] for one in status(again)] == ["no route to host"]
    again.clock.time_ms += 7 * DAY
    assert status(again) == []
    again.application.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", ""), ("cluster", "a/b"), ("time", "x"), ("since", "x"), ("interval_ms", 0), ("problem", "x" * 100_000)],
)
def test_an_illegal_report_is_refused(server, field, value):
    one = {"kind": "slurm", "cluster": "c", "time": 1, "interval_ms": 1, field: value}
    answer = server.ingest(records({"schedulers": [one]}))
    assert (answer.status, answer.json()["error"]["field"]) == (400, f"schedulers.{field}"), answer.body
    assert status(server) == []


def test_jobs_and_reports_of_one_request_are_counted_together(server):
    one = {"kind": "slurm", "cluster": "c", "time": server.clock.time_ms, "interval_ms": 1}
    answer = server.ingest(records({"jobs": [{"job_id": "j"}], "schedulers": [one]}))
    assert json.loads(answer.body)["records"] == 2
    assert server.call("GET", "/jobs/j").status == 200

"""Tests of PromQL metrics made of facts: jobs, findings, nodes."""

import json
from urllib.parse import urlencode

import pytest
from tests.support import frames
from tests.unit.server.test_key_policies import made, own

from jobmeter.dialects.prometheus.facts import DISK_FREE, FACTS, STEP_MS, FactSpan, choose_role, make_samples
from jobmeter.errors import LimitExceededError
from jobmeter.model.event import Event, EventSource, Level
from jobmeter.model.finding import FindingRole
from jobmeter.model.time import HOUR, MINUTE, SECOND


def ask(server, query, key=None, token="", **parameters):
    named = "query_range" if "step" in parameters else "query"
    target = f"/prometheus/api/v1/{named}?{urlencode({'query': query, **parameters})}"
    token = token or (key or server.admin).token
    reply = server.raw("GET", target, headers={"Authorization": f"Bearer {token}"})
    assert reply.status == 200, reply.body
    return json.loads(reply.body)["data"]["result"]


def rows(found):
    """Return the labels without the name of the metric, and the value of each series."""
    return sorted(
        (
            tuple(sorted((k, v) for k, v in one["metric"].items() if k not in {"__name__", "project"})),
            one["value"][1],
        )
        for one in found
    )


def record(server, **records):
    reply = server.ingest(frames.records(records))
    assert reply.status == 200, reply.body


@pytest.fixture
def filled(server):
    now = server.clock.now_ms()
    record(
        server,
        jobs=[
            {
                "job_id": "run",
                "state": "Running",
                "created": now - 9 * MINUTE,
                "start": now - 5 * MINUTE,
                "user": "ada",
            },
            {
                "job_id": "bad",
                "state": "Failed",
                "created": now - 30 * MINUTE,
                "start": now - 30 * MINUTE,
                "end": now - 10 * MINUTE,
            },
            {"job_id": "old", "state": "Succeeded", "start": now - 9 * HOUR, "end": now - 2 * HOUR},
        ],
        nodes=[{"name": "n1", "info": {"interval_ms": 15_000}}],
    )
    return server


def finding(server, job, rule, reason="Finding", subject="", level=Level.ERROR, before=0):
    kind = subject or f"job {job}"
    server.application.services.registry.add_events(
        [
            Event(
                time=server.clock.now_ms() - before,
                job=job,
                source=EventSource.JOB,
                level=level,
                reason=reason,
                subject=subject,
                message=f"{rule} ({kind}): It broke",
            )
        ]
    )


def test_jobs_are_series(filled):
    assert rows(ask(filled, "jobmeter_job_state")) == [
        ((("job_id", "bad"), ("state", "Failed")), "1"),
        ((("job_id", "run"), ("state", "Running")), "1"),
    ]
    assert rows(ask(filled, 'jobmeter_job_info{user="ada"}')) == [((("job_id", "run"), ("user", "ada")), "1")]


def test_a_state_ends_when_the_next_one_begins(filled):
    now = filled.clock.now_ms()
    found = ask(filled, 'jobmeter_job_state{job_id="run"}', start=(now - 10 * MINUTE) / 1000, end=now / 1000, step="60")
    spans = {one["metric"]["state"]: [round(at * 1000) - now for at, _ in one["values"]] for one in found}
    assert set(spans) == {"Queued", "Running"}
    assert max(spans["Queued"]) < -5 * MINUTE <= min(spans["Running"])
    assert max(spans["Running"]) == 0


def test_findings_of_running_jobs_are_series_until_they_close(filled):
    finding(filled, "run", "gpu_idle_allocated", subject="device n1/gpu0", level=Level.WARNING, before=2 * MINUTE)
    (one,) = ask(filled, "jobmeter_finding")
    assert one["metric"] == {
        "__name__": "jobmeter_finding",
        "job_id": "run",
        "project": "default",
        "role": "root",
        "rule": "gpu_idle_allocated",
        "severity": "warning",
        "subject": "device n1/gpu0",
        "sentence": "It broke",
    }
    finding(filled, "run", "gpu_idle_allocated", "FindingEnded", subject="device n1/gpu0", before=MINUTE)
    assert ask(filled, "jobmeter_finding") == []
    assert len(ask(filled, "jobmeter_finding offset 90s")) == 1


def test_a_failed_job_has_its_cause(filled):
    finding(filled, "bad", "nccl_timeout")
    finding(filled, "bad", "host_oom_kill")
    (state,) = ask(filled, 'jobmeter_job_state{state="Failed"}')
    assert state["metric"]["cause"] == "host_oom_kill"
    roles = {one["metric"]["rule"]: one["metric"]["role"] for one in ask(filled, 'jobmeter_finding{job_id="bad"}')}
    assert roles == {"nccl_timeout": "cascade", "host_oom_kill": "root"}


def test_nodes_are_series(filled):
    assert rows(ask(filled, "jobmeter_node_up")) == [((("node", "n1"),), "1")]
    assert rows(ask(filled, "jobmeter_agent_interval_seconds")) == [((("node", "n1"),), "15")]
    assert rows(ask(filled, "jobmeter_agent_silent_seconds < 60"))[0][0] == (("node", "n1"),)


def test_the_disk_is_for_administrators(filled):
    (one,) = ask(filled, DISK_FREE)
    assert 0 <= float(one["value"][1]) <= 1
    query = {"Effect": "Allow", "Action": ["prometheus:query"], "Resource": "*"}
    assert ask(filled, DISK_FREE, token=made(filled, policies=[own(query)])["token"]) == []
    assert ask(filled, DISK_FREE, filled.key("reader")) == []
    assert ask(filled, DISK_FREE, filled.key("admin", "lab")) == []


@pytest.mark.parametrize("name", sorted({*FACTS} - {DISK_FREE}))
def test_the_permission_of_a_query_does_not_list_jobs_and_nodes(filled, name):
    finding(filled, "bad", "host_oom_kill")
    query = {"Effect": "Allow", "Action": ["prometheus:query"], "Resource": "*"}
    lists = {"Effect": "Allow", "Action": ["prometheus:query", "jobmeter:listJobs", "jobmeter:listNodes"]}
    narrow, wide = made(filled, policies=[own(query)]), made(filled, policies=[own({**lists, "Resource": "*"})])
    assert ask(filled, name, token=narrow["token"]) == []
    assert ask(filled, name, token=wide["token"])
    assert ask(filled, name, filled.key("reader"))
    assert ask(filled, name, filled.key("reader", "other")) == []


def test_samples_of_spans():
    spans = [FactSpan(7 * SECOND, 40 * SECOND, 1.0), FactSpan(40 * SECOND, 70 * SECOND, 0.0)]
    times, values = make_samples(spans, 0, HOUR, 100)
    assert times.tolist() == [one * SECOND for one in (7, 15, 30, 40, 45, 60, 70)]
    assert values[:-1].tolist() == [1, 1, 1, 0, 0, 0]
    assert values[-1] != values[-1]
    with pytest.raises(LimitExceededError):
        make_samples([FactSpan(0, 200 * STEP_MS)], 0, 200 * STEP_MS, 100)


@pytest.mark.parametrize(
    ("rule", "others", "role"),
    [
        ("nccl_timeout", [], FindingRole.ROOT),
        ("nccl_timeout", ["host_oom_kill"], FindingRole.CASCADE),
        ("host_oom_kill", ["nccl_timeout"], FindingRole.ROOT),
        ("nccl_timeout", ["nccl_timeout", "cpu_throttled"], FindingRole.ROOT),
        ("no_such_rule", ["host_oom_kill"], FindingRole.ROOT),
    ],
)
def test_roles(rule, others, role):
    assert choose_role(rule, [rule, *others]) is role


def test_the_series_of_a_job_end_when_the_job_ends(filled):
    now = filled.clock.now_ms()
    points = [(now - at, 7.0) for at in range(10 * MINUTE, 12 * MINUTE, 15 * SECOND)]
    assert filled.ingest(frames.samples([frames.row("app.loss", points, job) for job in ("run", "bad")])).status == 200
    found = ask(filled, "jobmeter_app_loss", start=(now - 12 * MINUTE) / 1000, end=now / 1000, step="1")
    # Both have the same samples: the last sample of the running job counts for five minutes.
    last = {one["metric"]["job_id"]: round(one["values"][-1][0] * 1000) - now for one in found}
    assert last == {"run": -5 * MINUTE - SECOND, "bad": -10 * MINUTE}
    assert len(ask(filled, "last_over_time(jobmeter_app_loss[15m])")) == 2


def test_an_instant_and_a_range_agree_about_samples_after_the_end_of_a_job(filled):
    now = filled.clock.now_ms()
    end = now - 10 * MINUTE
    late = [end + at for at in (-15 * SECOND, 0, 5 * SECOND, 20 * SECOND)]
    much_later = [end + 2 * MINUTE, end + 2 * MINUTE + 10 * SECOND]
    rows = [frames.row("app.loss", [(at, 7.0) for at in (*late, *much_later)], "bad")]
    assert filled.ingest(frames.samples(rows)).status == 200
    found = ask(filled, "jobmeter_app_loss", start=(end - 10_000) / 1000, end=(end + 130_000) / 1000, step="5")
    times = [round(time * 1000) - end for time, _ in found[0]["values"]]
    # The job's end ends the series until a late sample comes; 30 s later the series ends again. Then samples continue.
    seconds = (-10, -5, 0, *range(5, 31, 5), 120, 125, 130)
    assert times == [one * SECOND for one in seconds]
    for at in range(-10, 131, 10):
        one = ask(filled, "jobmeter_app_loss", time=end / 1000 + at)
        assert bool(one) == (at in seconds), at

"""Tests of ``/jobs/{job}/alerts``: the open alerts of a job, for callers who may see the job and read alerts."""

import json

import pytest
from tests.support import frames
from tests.support.serving import BASE
from tests.unit.server.test_alerts import alerts, forward, load, start
from tests.unit.server.test_policies import allow, key

from jobmeter.model.time import HOUR, SECOND, format_iso
from jobmeter.query.alerts import MOST_OF_JOB


@pytest.fixture
def server(tmp_path):
    made = start(tmp_path, alert_shipped="off")
    yield made
    made.application.close()


def asked(server, job="busy", who=None, project=None):
    query = f"?project={project}" if project else ""
    return server.call("GET", f"/jobs/{job}/alerts{query}", key=who)


def found(server, job="busy", who=None):
    reply = asked(server, job, who)
    assert reply.status == 200, reply.body
    return reply.json()


def test_an_alert_is_listed_from_pending_to_its_end(server):
    forward(server, 1, 1.0)
    assert found(server) == {"alerts": [], "total": 0, "silences": []}
    forward(server, 1, 9.0)
    began = server.clock.now_ms()
    (one,) = found(server)["alerts"]
    assert one.pop("labels")["job_id"] == "busy"
    assert one.pop("fingerprint")
    assert one == {
        "name": "Loaded", "state": "pending", "severity": "page", "summary": "busy has 9", "description": "",
        "value": "9", "start": began, "fired": None, "muted": False, "silences": [],
    }  # fmt: skip
    forward(server, 61, 9.0)
    (one,) = found(server)["alerts"]
    assert (one["state"], one["start"], one["fired"]) == ("firing", began, server.clock.now_ms())
    forward(server, 10, 1.0)
    assert found(server) == {"alerts": [], "total": 0, "silences": []}


def test_only_alerts_of_the_job_in_its_project_are_listed(server):
    server.clock.time_ms += SECOND
    load(server, 9.0, "other")
    load(server, 9.0, "busy", "elsewhere")
    forward(server, 1, 9.0)
    assert len(alerts(server)) == 3
    assert asked(server).status == 400  # two projects have the job
    assert asked(server, project="default").json()["total"] == 1
    (one,) = found(server, "busy", server.key("reader", "elsewhere"))["alerts"]
    assert one["labels"]["project"] == "elsewhere"
    assert asked(server, "busy", server.key("reader", "third")).status == 404
    assert asked(server, "nothing").status == 404


def test_policies_decide_who_reads_the_alerts_of_a_job(server):
    load(server, 9.0, "other")
    forward(server, 1, 9.0)
    blind = key(server, allow("jobmeter:getJob"))
    assert asked(server, who=blind).status == 403
    some = key(server, allow("jobmeter:*", "acs:*:*:*:job/busy"))
    assert found(server, "busy", some)["total"] == 1
    assert asked(server, "other", some).status == 404


def test_a_link_to_the_job_shows_no_alerts(server):
    forward(server, 1, 9.0)
    token = server.call("POST", "/jobs/busy/links", {"expires_in": 3600}).json()["token"]
    reply = server.raw("GET", f"{BASE}/jobs/busy/alerts", headers={"Authorization": f"Bearer {token}"})
    assert reply.status == 403


def test_a_silenced_alert_is_muted(server):
    forward(server, 1, 9.0)
    now = server.clock.now_ms()
    matchers = [{"name": name, "value": value} for name, value in (("alertname", "Loaded"), ("job_id", "busy"))]
    body = {
        "matchers": matchers,
        "startsAt": format_iso(now),
        "endsAt": format_iso(now + HOUR),
        "createdBy": "lin",
        "comment": "x",
    }
    credential = {"Authorization": f"Bearer {server.admin.token}"}
    reply = server.raw("POST", "/api/v2/silences", json.dumps(body).encode(), credential)
    assert reply.status == 200, reply.body
    assert [one["muted"] for one in found(server)["alerts"]] == [True]
    server.clock.time_ms += HOUR
    assert [one["muted"] for one in found(server)["alerts"]] == [False]


def silence(server, job="busy", who=None, **changes):
    body = {"alert": "Loaded", "seconds": 3600, "author": "lin", "comment": "known", **changes}
    return server.call("POST", f"/jobs/{job}/silences", body, key=who)


def test_a_writer_silences_the_alerts_of_one_name_about_one_job_and_ends_the_silence(server):
    load(server, 9.0, "other")
    forward(server, 1, 9.0)
    now = server.clock.now_ms()
    writer = server.key("writer", "default")
    made = silence(server, who=writer).json()
    assert (made["author"], made["comment"], made["start"], made["end"]) == ("lin", "known", now, now + HOUR)
    page = found(server)
    assert page["silences"] == [made]
    assert [(one["muted"], one["silences"]) for one in page["alerts"]] == [(True, [made["id"]])]
    (other,) = found(server, "other")["alerts"]
    assert (other["muted"], other["silences"]) == (False, [])
    reader = server.key("reader", "default")
    path = f"/jobs/busy/silences/{made['id']}"
    assert server.call("DELETE", path, key=reader).status == 403
    assert server.call("DELETE", path.replace("busy", "other"), key=writer).status == 404
    assert server.call("DELETE", path, key=server.key("writer", "elsewhere")).status == 404
    assert server.call("DELETE", path, key=writer).json()["end"] == now
    assert found(server)["silences"] == []
    assert [one["muted"] for one in found(server)["alerts"]] == [False]


def test_a_silence_of_the_administrator_mutes_without_showing_its_text_to_a_project(server):
    forward(server, 1, 9.0)
    assert silence(server, who=server.admin).status == 200
    page = found(server, who=server.key("reader", "default"))
    assert [(one["muted"], one["silences"]) for one in page["alerts"]] == [(True, [])]
    assert page["silences"] == []
    (shown,) = asked(server, project="default").json()["silences"]
    assert (shown["project"], shown["comment"]) == ("", "known")


def test_a_silence_of_a_job_without_a_reason_a_length_or_a_job_is_refused(server):
    forward(server, 1, 9.0)
    for wrong in ({"comment": " "}, {"author": ""}, {"seconds": 0}, {"seconds": -(2**70)}, {"seconds": 367 * 86_400}):
        assert silence(server, **wrong).status == 400, wrong
    assert silence(server, "nothing").status == 404
    assert silence(server, who=server.key("reader", "default")).status == 403


def test_firing_alerts_come_first_and_the_rest_is_counted(server):
    forward(server, 1, 9.0)
    server.clock.time_ms += 60 * SECOND
    at = server.clock.now_ms()
    replicas = [{"metric": "app.load", "job": "busy", "replica": f"late-{n}"} for n in range(MOST_OF_JOB + 5)]
    assert server.ingest(frames.samples([(one, [(at, 9.0)]) for one in replicas])).status == 200
    forward(server, 1, 9.0)
    page = found(server)
    assert (len(page["alerts"]), page["total"]) == (MOST_OF_JOB, MOST_OF_JOB + 6)
    assert [one["state"] for one in page["alerts"]] == ["firing", *["pending"] * (MOST_OF_JOB - 1)]
    assert page["alerts"][0]["labels"]["replica"] == "worker-0"

"""Tests of alerts in a whole server: rules evaluated, states stored, queries answered within their scope."""

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.support import frames
from tests.support.serving import serving
from tests.unit.server.test_key_policies import made, own

from jobmeter.alerts.config import load_config
from jobmeter.alerts.messages import Mail
from jobmeter.alerts.rules import load_rules
from jobmeter.model.alert import Message, PostedAlert
from jobmeter.model.event import Event, EventSource, Level
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, MINUTE, SECOND, format_iso
from jobmeter.server import alert_delivery, alerting
from jobmeter.server.alert_delivery import AlertDelivery
from jobmeter.server.alerting import Alerting

RULES = """
groups:
  - name: mine
    interval: 1s
    limit: 500
    rules:
      - record: lab:load:max
        expr: max by (project, job_id) (jobmeter_app_load)
        labels: {team: research}
      - alert: Loaded
        expr: jobmeter_app_load > 5
        for: 1m
        labels: {severity: page}
        annotations: {summary: "{{ $labels.job_id }} has {{ $value }}"}
      - alert: Broken
        expr: jobmeter_app_load + on (project) jobmeter_app_load
"""
CONFIG = """
allow: [127.0.0.0/8]
route: {receiver: team, group_wait: 0s, group_by: [alertname]}
receivers: [{name: team, webhook_configs: [{url: 'http://127.0.0.1:1/x'}]}]
"""


def start(tmp_path, **options):
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "alerts.yml").write_text(CONFIG)
    files = {"alert_rules": str(tmp_path / "rules.yml"), "alert_config": str(tmp_path / "alerts.yml")}
    return serving(tmp_path / "data", **{**files, **options})


@pytest.fixture
def server(tmp_path):
    made_here = start(tmp_path)
    yield made_here
    made_here.application.close()


def load(server, value, job="busy", project=None):
    now = server.clock.now_ms()
    series = {"metric": "app.load", "job": job, "replica": "worker-0"}
    key = server.key("writer", project) if project else None
    assert server.ingest(frames.samples([(series, [(now - SECOND, value)])]), key).status == 200


def get(server, path, key=None, token="", **parameters):
    token = token or (key or server.admin).token
    reply = server.raw("GET", f"{path}?{urlencode(parameters)}", headers={"Authorization": f"Bearer {token}"})
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def alerts(server, key=None, name="Loaded"):
    found = get(server, "/prometheus/api/v1/alerts", key)["data"]["alerts"]
    return [one for one in found if one["labels"]["alertname"] == name]


def forward(server, seconds, value=None):
    server.clock.time_ms += seconds * SECOND
    if value is not None:
        load(server, value)
    server.application.services.alerting.round()


def test_an_alert_waits_fires_and_ends(server):
    forward(server, 1, 9.0)
    (one,) = alerts(server)
    assert (one["state"], one["value"]) == ("pending", "9")
    assert one["labels"] == {
        "alertname": "Loaded", "job_id": "busy", "project": "default", "replica": "worker-0", "severity": "page",
    }  # fmt: skip
    forward(server, 61, 9.0)
    (one,) = alerts(server)
    assert (one["state"], one["annotations"]) == ("firing", {"summary": "busy has 9"})
    forward(server, 10, 1.0)
    assert alerts(server) == []
    stored = [one for one in server.application.services.registry.alerts.list_alerts() if one.name == "Loaded"]
    assert [one.state.value for one in stored] == ["resolved"]
    forward(server, 20 * 60, 1.0)
    assert [one for one in server.application.services.registry.alerts.list_alerts() if one.name == "Loaded"] == []


def test_rules_show_their_state_and_errors(server):
    load(server, 9.0, "second")
    forward(server, 1, 9.0)
    groups = get(server, "/prometheus/api/v1/rules")["data"]["groups"]
    (mine,) = [one for one in groups if one["name"] == "mine"]
    record, loaded, broken = mine["rules"]
    assert mine["limit"] == 500
    assert (record["type"], record["health"]) == ("recording", "ok")
    assert (loaded["type"], loaded["state"], loaded["duration"], len(loaded["alerts"])) == (
        "alerting",
        "pending",
        60,
        2,
    )
    assert (broken["health"], broken["state"]) == ("err", "inactive")
    assert "many-to-many" in broken["lastError"] or "duplicate" in broken["lastError"]
    narrow = get(server, "/prometheus/api/v1/rules", server.key("reader", "other"))["data"]["groups"]
    errors = {rule.get("lastError") for one in narrow for rule in one["rules"]}
    assert errors == {None, "it was not evaluated"}
    only = get(server, "/prometheus/api/v1/rules", type="record")["data"]["groups"]
    assert [rule["name"] for one in only for rule in one["rules"]] == ["lab:load:max"]


def test_a_recorded_series_is_stored(server):
    forward(server, 1, 9.0)
    found = get(server, "/prometheus/api/v1/query", query="lab:load:max")["data"]["result"]
    assert [(one["metric"]["team"], one["value"][1]) for one in found] == [("research", "9")]


def test_for_survives_a_restart(tmp_path):
    first = start(tmp_path)
    forward(first, 1, 9.0)
    store, now = first.application.services.store, first.clock.now_ms()
    second = serving(
        tmp_path / "data",
        store,
        alert_rules=str(tmp_path / "rules.yml"),
    )
    second.clock.time_ms = now
    forward(second, 61, 9.0)
    assert [one["state"] for one in alerts(second)] == ["firing"]
    third = serving(tmp_path / "data", store)
    third.clock.time_ms = second.clock.now_ms()
    third.application.services.alerting.round()
    assert alerts(third) == []
    for one in (second, third):
        one.application.services.registry.close()
    first.application.close()


def test_an_alert_about_a_job_is_an_event_of_the_job_once(tmp_path):
    first = start(tmp_path, alert_shipped="off")
    forward(first, 1, 9.0)
    forward(first, 61, 9.0)
    fired = first.clock.now_ms()
    options = {"alert_rules": str(tmp_path / "rules.yml"), "alert_shipped": "off"}
    second = serving(tmp_path / "data", first.application.services.store, **options)
    second.clock.time_ms = fired
    for seconds, value in ((10, 9.0), (10, 1.0), (10, 1.0)):
        forward(second, seconds, value)
    path = "/api/jobmeter/v1/jobs/busy"
    found = get(second, f"{path}/events", type="alert")["events"]
    assert [(one["time"], one["reason"], one["level"], one["replica"], one["message"]) for one in found] == [
        (fired, "AlertFiring", "info", "worker-0", "Loaded (page): busy has 9"),
        (fired + 20 * SECOND, "AlertResolved", "info", "worker-0", "Loaded (page): busy has 9"),
    ]
    (fingerprint,) = [
        one.fingerprint for one in second.application.services.registry.alerts.list_alerts() if one.name == "Loaded"
    ]
    assert {(one["object"]["kind"], one["object"]["name"]) for one in found} == {("alert", fingerprint)}
    shown = [(one["time"], one["name"]) for one in get(second, f"{path}/timeline")]
    assert {(one["time"], one["reason"]) for one in found} <= set(shown)
    link = json.loads(second.raw(
        "POST", f"{path}/links", b"{}", headers={"Authorization": f"Bearer {second.admin.token}"}
    ).body)["token"]  # fmt: skip
    assert get(second, f"{path}/events", token=link, type="alert")["events"] == []
    assert get(second, f"{path}/events", token=link)["events"] != []
    assert not [one for one in get(second, f"{path}/timeline", token=link) if "Alert" in one["name"]]
    second.application.services.registry.close()
    first.application.close()


def test_alerts_of_a_removed_rule_are_deleted(tmp_path):
    first = start(tmp_path, alert_shipped="off")
    forward(first, 1, 9.0)
    forward(first, 61, 9.0)
    first.application.services.registry.close()
    second = serving(tmp_path / "data", first.application.services.store, alert_shipped="off")
    table = second.application.services.registry.alerts
    second.clock.time_ms = first.clock.now_ms()
    forward(second, 1)
    assert {one.state.value for one in table.list_alerts()} == {"resolved"}
    forward(second, 15 * 60)
    assert table.list_alerts() == second.application.services.alerting.list_alerts() == []
    second.application.close()


def test_rules_are_evaluated_after_the_clock_was_set_back(server):
    server.clock.time_ms += 24 * HOUR
    forward(server, 1)
    server.clock.time_ms -= 24 * HOUR
    forward(server, 1, 9.0)
    assert [one["state"] for one in alerts(server)] == ["pending"]
    forward(server, 61, 9.0)
    assert [one["state"] for one in alerts(server)] == ["firing"]


def test_a_pending_alert_begins_again_after_a_long_outage(tmp_path):
    first = start(tmp_path)
    forward(first, 1, 9.0)
    first.application.services.registry.close()
    second = serving(tmp_path / "data", first.application.services.store, alert_rules=str(tmp_path / "rules.yml"))
    second.clock.time_ms = first.clock.now_ms() + 2 * HOUR
    forward(second, 1, 9.0)
    assert [one["state"] for one in alerts(second)] == ["pending"]
    second.application.close()


def test_the_end_of_a_job_ends_its_alerts(server):
    forward(server, 1, 9.0)
    forward(server, 61, 9.0)
    assert [one["state"] for one in alerts(server)] == ["firing"]
    now = server.clock.now_ms()
    ended = {"job_id": "busy", "state": "Succeeded", "start": now - HOUR, "end": now}
    assert server.ingest(frames.records({"jobs": [ended]})).status == 200
    forward(server, 2)
    assert alerts(server) == []


def test_alerts_are_shown_within_the_scope(server):
    server.clock.time_ms += SECOND
    load(server, 9.0, "theirs", "other")
    forward(server, 1, 9.0)
    assert {one["labels"]["job_id"] for one in alerts(server)} == {"busy", "theirs"}
    assert [one["labels"]["job_id"] for one in alerts(server, server.key("reader", "other"))] == ["theirs"]
    assert alerts(server, server.key("reader", "third")) == []
    query = own({"Effect": "Allow", "Action": ["prometheus:query"], "Resource": "*"})
    token = made(server, policies=[query])["token"]
    reply = server.raw("GET", "/prometheus/api/v1/alerts", headers={"Authorization": f"Bearer {token}"})
    assert reply.status == 403


def test_messages_are_stored_with_the_decision(tmp_path):
    server = start(tmp_path, alert_shipped="off")
    forward(server, 1, 9.0)
    forward(server, 61, 9.0)
    table, bodies = server.application.services.registry.alerts, []
    while waiting := table.list_waiting():
        (message,) = waiting
        assert message.destination == "team/webhook/0"
        bodies.append(json.loads(message.body)["groupLabels"]["alertname"])
        table.delete_message(message.id)
    assert sorted(bodies) == ["Broken", "Loaded"]
    assert max(one.sent for one in table.list_groups()) == server.clock.now_ms()
    server.application.close()


def test_a_retry_does_not_wait_for_a_clock_that_was_set_back(tmp_path, monkeypatch):
    server = start(tmp_path, alert_shipped="off")
    services, delivered = server.application.services, []
    monkeypatch.setattr(alert_delivery, "deliver", lambda _, message, *__: delivered.append(message.body))
    delivery = AlertDelivery(
        services.alerting.config, services.executor, services.registry, server.clock, services.thresholds
    )
    now = server.clock.now_ms()
    services.registry.alerts.decide([], [], [Message(destination="team/webhook/0", body="{}", created=now)], now)
    (message,) = services.registry.alerts.list_waiting()
    services.registry.alerts.retry(message.id, now + 5 * MINUTE, "away")
    delivery.round()
    assert delivered == []
    server.clock.time_ms -= HOUR
    delivery.round()
    assert delivered == ["{}"]
    server.application.close()


def test_a_mail_has_the_evidence_of_a_new_diagnosis_of_its_rule(server):
    now, services = server.clock.now_ms(), server.application.services
    job = {"job_id": "run", "state": "Running", "start": now - HOUR}
    lost = {"job": "run", "reason": "Finding", "level": "error", "source": "job", "subject": "device n1/gpu0"}
    lost |= {"time": now, "message": "gpu_missing (device n1/gpu0): n1/gpu0 left the bus"}
    assert server.ingest(frames.records({"jobs": [job], "events": [lost]})).status == 200
    delivery = AlertDelivery(
        services.alerting.config, services.executor, services.registry, server.clock, services.thresholds
    )

    def evidence(job, rule):
        return delivery.find_evidence(Mail(subject="", text="", project="default", job=job, rule=rule))

    assert [text for text in evidence("run", "gpu_missing") if "left the bus" in text]
    assert evidence("run", "nccl_timeout") == evidence("run", "") == evidence("nothing", "gpu_missing") == []


def test_shipped_rules_fire(server):
    now = server.clock.now_ms()
    jobs = [
        {"job_id": "bad", "state": "Failed", "start": now - HOUR, "end": now - MINUTE, "user": "ada"},
        {"job_id": "run", "state": "Running", "start": now - HOUR},
    ]
    assert server.ingest(frames.records({"jobs": jobs, "nodes": [{"name": "n1", "info": {"a": 1}}]})).status == 200

    def finding(job, rule, subject=""):
        server.application.services.registry.add_events(
            [
                Event(
                    time=now, job=job, source=EventSource.JOB, level=Level.ERROR, reason="Finding", subject=subject,
                    message=f"{rule} ({subject or f'job {job}'}): It broke",
                )
            ]
        )  # fmt: skip

    finding("bad", "host_oom_kill")
    finding("bad", "nccl_timeout")
    finding("run", "gpu_missing", "device n1/gpu0")
    forward(server, 1)
    forward(server, 31)
    found = get(server, "/prometheus/api/v1/alerts")["data"]["alerts"]
    firing = {one["labels"]["alertname"]: one for one in found if one["state"] == "firing"}
    assert {"JobFailed", "JobOutOfMemory", "CriticalFinding", "GpuMissing"} <= set(firing)
    assert firing["JobFailed"]["annotations"]["description"].startswith("Root cause: host_oom_kill")
    forward(server, 200)
    found = get(server, "/prometheus/api/v1/alerts")["data"]["alerts"]
    assert "NodeDown" in {one["labels"]["alertname"] for one in found}


def test_idle_devices_fire_after_an_hour_of_idling(server):
    now = server.clock.now_ms()
    job = {"job_id": "run", "state": "Running", "start": now}
    assert server.ingest(frames.records({"jobs": [job]})).status == 200
    series = {"metric": "gpu.utilization", "job": "run", "replica": "w-0", "node": "n1", "device": "gpu0"}

    def minutes(count, value):
        for _ in range(count):
            server.clock.time_ms += MINUTE
            at = server.clock.now_ms()
            assert server.ingest(frames.samples([(series, [(at - SECOND, value)])])).status == 200
            server.application.services.alerting.round()

    minutes(30, 0.0)
    minutes(1, 0.9)
    minutes(61, 0.0)
    assert [one["state"] for one in alerts(server, name="GpuIdle")] == ["pending"]
    minutes(3, 0.0)
    assert [one["state"] for one in alerts(server, name="GpuIdle")] == ["firing"]
    assert [one["state"] for one in alerts(server, name="GpuIdleLong")] == ["pending"]
    minutes(46, 0.0)
    assert [one["state"] for one in alerts(server, name="GpuIdleLong")] == ["firing"]


def test_shipped_rules_can_be_turned_off(tmp_path):
    server = start(tmp_path, alert_shipped="off")
    groups = get(server, "/prometheus/api/v1/rules")["data"]["groups"]
    assert [one["name"] for one in groups] == ["mine"]
    assert Path(groups[0]["file"]).name == "rules.yml"
    server.application.close()


def test_a_series_moves_no_alert_to_another_project_or_out_of_it(tmp_path):
    (tmp_path / "rules.yml").write_text("groups: [{name: g, interval: 1s, rules: [{alert: A, expr: load_now > 1}]}]")
    server = serving(tmp_path / "data", alert_rules=str(tmp_path / "rules.yml"))
    server.clock.time_ms += SECOND
    now = server.clock.now_ms()
    # The first project names the second one in a label; otherwise both send series with the same labels.
    for project, labels in (("first", ()), ("first", (("project", "second"),)), ("second", ())):
        series = Series("external.load_now", labels=labels, project=project)
        reply = server.ingest(frames.samples([(series, [(now - SECOND, 5.0)])]), server.key("writer", project))
        assert reply.status == 200, reply.body
    forward(server, 1)
    shown = {
        project: {one["labels"].get("exported_project") for one in alerts(server, server.key("reader", project), "A")}
        for project in ("first", "second")
    }
    assert shown == {"first": {None, "second"}, "second": {None}}
    server.application.close()


@pytest.mark.parametrize(("expression", "value"), [("vector(0) / 0", "NaN"), ("vector(1) / 0", "+Inf")])
def test_odd_values_survive_a_restart(tmp_path, expression, value):
    (tmp_path / "rules.yml").write_text(f"groups: [{{name: g, rules: [{{alert: A, expr: {expression}}}]}}]")
    for _ in range(2):
        server = serving(tmp_path / "data", alert_rules=str(tmp_path / "rules.yml"))
        server.application.services.alerting.round()
        assert [one["value"] for one in alerts(server, name="A")] == [value]
        server.application.close()


def test_one_of_two_servers_evaluates_and_the_other_takes_over(tmp_path):
    first = start(tmp_path, alert_shipped="off")
    services = first.application.services

    def another():
        groups = load_rules([str(tmp_path / "rules.yml")], shipped=False)
        config = load_config(str(tmp_path / "alerts.yml"))
        parts = (services.executor, services.registry, first.clock, services.settings, groups, config)
        return Alerting(*parts, lambda *_: None, shared=True)

    def states(server):
        return {one.name: one.state.value for one in server.list_alerts()}

    one, two = another(), another()
    first.clock.time_ms += SECOND
    load(first, 9.0)
    one.round()
    two.round()
    assert states(one)["Loaded"] == "pending"
    assert states(two) == states(one)
    assert {rule.health for group in two.list_rules() for rule in group.rules} == {"unknown"}
    # The first server dies. Its lease ends, and the time that the alert has been pending counts.
    first.clock.time_ms += 61 * SECOND
    load(first, 9.0)
    two.round()
    assert states(two)["Loaded"] == "firing"
    messages = len(services.registry.alerts.list_groups())
    one.round()
    assert len(services.registry.alerts.list_groups()) == messages
    first.application.close()


def test_a_server_that_lost_its_lease_for_a_time_reads_the_states_again(tmp_path):
    first = start(tmp_path, alert_shipped="off")
    services = first.application.services
    groups = load_rules([str(tmp_path / "rules.yml")], shipped=False)
    parts = (services.executor, services.registry, first.clock, services.settings, groups, load_config(""))
    one, two = (Alerting(*parts, lambda *_: None, shared=True) for _ in range(2))
    first.clock.time_ms += SECOND
    load(first, 9.0)
    one.round()
    # The first server stalls. Another server takes the lease, changes states, and stops.
    first.clock.time_ms += 61 * SECOND
    load(first, 9.0)
    two.round()
    first.clock.time_ms += 61 * SECOND
    load(first, 9.0)
    one.round()
    (loaded,) = [found for found in one.list_alerts() if found.name == "Loaded"]
    assert loaded.fired == first.clock.now_ms() - 61 * SECOND
    first.application.close()


def post(server, *alerts, key=None):
    headers = {"Authorization": f"Bearer {(key or server.admin).token}", "Content-Type": "application/json"}
    return server.raw("POST", "/api/v2/alerts", json.dumps(alerts).encode(), headers=headers)


def active(server, key=None):
    return {one["labels"]["alertname"]: one for one in get(server, "/api/v2/alerts", key)}


def named(name, **labels):
    return {"labels": {"alertname": name, **labels}}


def test_posted_alerts_fire_end_and_are_reported(server):
    server.application.services.alerting.round()
    now = server.clock.now_ms()
    lasting = {**named("Lasting"), "endsAt": format_iso(now + HOUR), "startsAt": format_iso(now - HOUR)}
    zero = {**named("Short"), "startsAt": "0001-01-01T00:00:00.000Z", "endsAt": "0001-01-01T00:00:00.000Z"}
    assert post(server, lasting, zero, {**named("Over"), "endsAt": format_iso(now - 1)}).status == 200
    found = active(server)
    assert set(found) == {"Lasting", "Short"}
    assert found["Lasting"]["startsAt"] == format_iso(now - HOUR)
    assert found["Lasting"]["endsAt"] == format_iso(now + HOUR)
    assert found["Short"]["endsAt"] == format_iso(now + 5 * MINUTE)
    forward(server, 4 * 60)
    assert "Short" in active(server)
    assert post(server, named("Short")).status == 200, "repeated, so that it lasts"
    forward(server, 4 * 60)
    assert "Short" in active(server)
    forward(server, 61)
    assert set(active(server)) == {"Lasting"}
    assert post(server, {**named("Lasting"), "endsAt": format_iso(server.clock.now_ms())}).status == 200
    forward(server, 1)
    assert active(server) == {}
    forward(server, 16 * 60)
    assert [one for one in server.application.services.registry.alerts.list_alerts() if one.rule == "posted"] == []


def test_posted_alerts_belong_to_the_project_of_the_key_and_survive_a_restart(tmp_path):
    first = start(tmp_path)
    lab = first.key("writer", "lab")
    forward(first, 1)
    assert post(first, named("Own", project="other", job_id="j"), key=lab).status == 200
    assert post(first, named("Named", project="other")).status == 200
    assert active(first, lab)["Own"]["labels"] == {
        "alertname": "Own", "exported_project": "other", "job_id": "j", "project": "lab",
    }  # fmt: skip
    assert set(active(first, lab)) == {"Own"}
    assert set(active(first)) == {"Own", "Named"}
    assert post(first, named("Own"), key=first.key("reader", "lab")).status == 403
    first.application.close()
    second = start(tmp_path)
    second.clock.time_ms = first.clock.now_ms()
    forward(second, 1)
    assert set(active(second)) == {"Own", "Named"}
    second.application.close()


@pytest.mark.parametrize(
    "bad",
    [
        {"labels": {}},
        {"labels": {"a": ""}},
        {"labels": {"a b": "c"}},
        {"labels": {"a": "x" * 2_001}},
        {"labels": {f"a{number}": "c" for number in range(33)}},
        {"labels": {"a": "b"}, "annotations": {f"a{number}": "x" * 2_000 for number in range(8)}},
        {"labels": {"a": "b"}, "generatorURL": "javascript:alert(1)"},
        {"labels": {"a": "b"}, "endsAt": "yesterday"},
        {"labels": {"a": "b"}, "startsAt": "2026-01-02T00:00:00Z", "endsAt": "2026-01-01T00:00:00Z"},
        {"annotations": {}},
    ],
)
def test_posted_alerts_that_are_not_valid_are_refused(server, bad):
    assert post(server, named("Good"), bad).status == 400
    assert active(server) == {}, "all or none"


def test_posted_alerts_have_a_limit(server):
    forward(server, 1)
    for part in range(2):
        some = [named("Many", project="p", number=str(500 * part + number)) for number in range(500)]
        assert post(server, *some).status == 200
    assert post(server, named("Many", project="p", number="x")).status == 413
    assert post(server, named("Many", project="p", number="1")).status == 200, "a known alert is repeated"
    assert post(server, named("Many", project="q")).status == 200


def test_posted_alerts_take_no_room_from_rules(tmp_path, monkeypatch):
    server = start(tmp_path, alert_shipped="off")
    monkeypatch.setattr(alerting, "MOST_ALERTS", 2)
    forward(server, 1)
    assert post(server, *(named("Many", number=str(number)) for number in range(3))).status == 200
    forward(server, 1, 9.0)
    assert [one["state"] for one in alerts(server)] == ["pending"]
    server.application.close()


def test_a_server_knows_alerts_posted_to_other_servers_before_it_changes_or_ends_alerts(tmp_path):
    server = start(tmp_path, alert_shipped="off")
    services, clock = server.application.services, server.clock
    parts = (
        services.executor,
        services.registry,
        clock,
        services.settings,
        load_rules([], shipped=False),
        load_config(""),
    )
    one, two = (Alerting(*parts, lambda *_: None, shared=True) for _ in range(2))
    alert = PostedAlert(labels={"alertname": "X"})

    def states():
        return [found.state.value for found in services.registry.alerts.list_alerts()]

    one.round()
    two.post([alert], None)
    one.post([PostedAlert(labels=alert.labels, end=clock.now_ms())], None)
    assert states() == ["resolved"], "the end came to a server that had not read of the alert"
    clock.time_ms += SECOND
    one.post([alert], None)
    clock.time_ms += 5 * MINUTE - SECOND
    one.round()
    two.post([alert], None)
    clock.time_ms += 2 * SECOND
    one.round()
    assert states() == ["firing"], "another server heard of the alert again"
    clock.time_ms += 5 * MINUTE
    one.round()
    assert states() == ["resolved"]
    server.application.close()

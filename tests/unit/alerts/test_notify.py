"""Tests of notification settings, routes, silences, inhibitions, and the times of messages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobmeter.alerts.config import AlertConfig, AlertRoute, read_config
from jobmeter.alerts.muting import check_matcher, fulfils, mute_alerts, parse_matcher, select_fulfilling
from jobmeter.alerts.notify import RESEND_MS, decide, find_receivers
from jobmeter.alerts.yaml_file import load_text
from jobmeter.diagnose.registry import list_rules
from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.alert import POSTED, Alert, AlertPage, AlertState, LabelMatcher, NotificationGroup, Silence

CONFIG = """
global:
  smtp_smarthost: mail.example.org:25
  smtp_from: jobmeter@example.org
allow: [hooks.example.org, 127.0.0.0/8]
route:
  receiver: team
  group_by: [alertname]
  group_wait: 10s
  group_interval: 1m
  repeat_interval: 1h
  routes:
    - receiver: owner
      matchers: ['job_id!=""']
      continue: true
    - receiver: pager
      matchers: [severity="critical"]
    - receiver: mail
      match_re: {severity: warn.*}
receivers:
  - name: team
    webhook_configs: [{url: 'https://hooks.example.org/x?token=1'}]
  - name: owner
    owner_configs: [{domain: example.org}]
  - name: pager
    alertmanager_configs: [{url: 'http://127.0.0.1:9093'}]
  - name: mail
    email_configs: [{to: ops@example.org}]
inhibit_rules:
  - source_matchers: [alertname="NodeDown"]
    target_matchers: [alertname="GpuIdle"]
    equal: [node]
"""
SECOND = 1_000
NOW = 1_700_000_000_000


def config(text=CONFIG):
    return read_config(load_text("alerts.yml", text.encode()))


def alert(name="A", state=AlertState.FIRING, at=NOW, **labels):
    own = {"alertname": name, **labels}
    return Alert(
        fingerprint=json.dumps(own),
        rule="r",
        project=labels.get("project", ""),
        labels=own,
        annotations={"summary": f"{name} happened"},
        state=state,
        value="1",
        started=at,
        fired=None if state is AlertState.PENDING else at,
        resolved=at if state is AlertState.RESOLVED else None,
    )


def step(found, alerts, groups, at, silences=()):
    """Decide at a time; return the destinations and bodies, and apply the change to the groups."""
    made = decide(found, mute_alerts(alerts, silences, found.inhibitions, at), groups, at, "https://m.example")
    groups |= {one.key: one for one in made.groups}
    for key in made.forgotten:
        groups.pop(key)
    return [(one.destination, json.loads(one.body)) for one in made.messages]


def test_routes_lead_to_receivers():
    found = config()
    alerts = [alert(severity="info"), alert(severity="critical", job_id="j"), alert(severity="warning")]
    first, second, third = (find_receivers(found, alerts)[one.fingerprint] for one in alerts)
    assert first == [("team", {"alertname": "A"})]
    assert [name for name, _ in second] == ["owner", "pager"]
    assert [name for name, _ in third] == ["mail"]


def test_a_group_waits_repeats_and_ends():
    found = config()
    groups: dict[str, NotificationGroup] = {}
    one, two = alert(node="n1"), alert(node="n2", at=NOW + 20 * SECOND)
    assert step(found, [one], groups, NOW + 9 * SECOND) == []
    ((name, body),) = step(found, [one], groups, NOW + 10 * SECOND)
    assert name == "team/webhook/0"
    assert (body["status"], body["groupLabels"], body["receiver"]) == ("firing", {"alertname": "A"}, "team")
    assert body["version"] == "4"
    assert body["alerts"][0]["labels"]["node"] == "n1"
    assert step(found, [one, two], groups, NOW + 30 * SECOND) == []
    ((_, body),) = step(found, [one, two], groups, NOW + 70 * SECOND)
    assert len(body["alerts"]) == 2
    assert body["commonLabels"] == {"alertname": "A"}
    assert step(found, [one, two], groups, NOW + 3_000 * SECOND) == []
    assert len(step(found, [one, two], groups, NOW + 3_670 * SECOND)) == 1
    gone = [alert(node=node, state=AlertState.RESOLVED, at=NOW + 3_700 * SECOND) for node in ("n1", "n2")]
    ((_, body),) = step(found, gone, groups, NOW + 3_800 * SECOND)
    assert body["status"] == "resolved"
    assert {one["status"] for one in body["alerts"]} == {"resolved"}
    assert step(found, gone, groups, NOW + 3_900 * SECOND) == []
    assert step(found, [], groups, NOW + 9_000 * SECOND) == []
    assert groups == {}


def test_a_clock_that_was_set_back_delays_no_message():
    found = config()
    groups: dict[str, NotificationGroup] = {}
    late, one = NOW + 10**10, alert()
    assert len(step(found, [alert(at=late)], groups, late + 10 * SECOND)) == 1
    assert len(step(found, [one], groups, NOW)) == 1
    assert step(found, [one], groups, NOW + 3_599 * SECOND) == []
    assert len(step(found, [one], groups, NOW + 3_600 * SECOND)) == 1


def test_an_alert_that_fires_again_is_reported_again():
    found = config()
    groups: dict[str, NotificationGroup] = {}
    step(found, [alert(severity="warning")], groups, NOW + 10 * SECOND)
    ended = alert(severity="warning", state=AlertState.RESOLVED, at=NOW + 60 * SECOND)
    assert step(found, [ended], groups, NOW + 100 * SECOND) == []
    again = alert(severity="warning", at=NOW + 110 * SECOND)
    assert [name for name, _ in step(found, [again], groups, NOW + 120 * SECOND)] == ["mail/email/0"]


def test_an_alertmanager_gets_alerts_at_once_and_again():
    found = config()
    groups: dict[str, NotificationGroup] = {}
    one = alert(severity="critical")
    ((name, body),) = step(found, [one], groups, NOW)
    assert name == "pager/alertmanager/0"
    assert body[0]["labels"] == one.labels
    assert body[0]["startsAt"] < body[0]["endsAt"]
    assert step(found, [one], groups, NOW + RESEND_MS - 1) == []
    assert len(step(found, [one], groups, NOW + RESEND_MS)) == 1
    ended = alert(severity="critical", state=AlertState.RESOLVED, at=NOW + 2 * RESEND_MS)
    assert len(step(found, [ended], groups, NOW + 2 * RESEND_MS)) == 1


def test_an_owner_gets_one_mail_for_a_job_and_rule():
    found = config()
    groups: dict[str, NotificationGroup] = {}
    one = alert(job_id="j", project="lab", node="n1")
    ((name, body),) = step(found, [one, alert(job_id="j", project="lab", node="n2")], groups, NOW)
    assert name == "owner/owner/0"
    assert (body["project"], body["job"], body["to"]) == ("lab", "j", "")
    assert "A happened" in body["subject"]
    assert "https://m.example/#/jobs/j?project=lab" in body["text"]
    assert step(found, [], groups, NOW + 1) == []
    assert step(found, [alert(job_id="j", project="lab", at=NOW + 10**9)], groups, NOW + 10**9) == []
    assert len(step(found, [alert(name="B", job_id="j", project="lab", at=NOW)], groups, NOW)) == 1


def test_a_mail_about_a_finding_has_the_advice_of_its_rule():
    found, rule = config(), list_rules()[0]
    one = alert(job_id="j", project="lab", rule=rule.name)
    ((_, body),) = step(found, [one], {}, NOW)
    assert body["rule"] == rule.name
    for part in ("summary: A happened", f"advice: {rule.advice}", "https://m.example/#/jobs/j?project=lab"):
        assert part in body["text"].splitlines()


def test_muted_alerts_are_not_reported():
    found = config()
    groups: dict[str, NotificationGroup] = {}
    silence = Silence(
        id="s", project="", matchers=(LabelMatcher("node", "n.", True),), start=NOW, end=NOW + 50 * SECOND,
        author="a", comment="c", updated=NOW,
    )  # fmt: skip
    one = alert(node="n1")
    assert step(found, [one], groups, NOW + 20 * SECOND, [silence]) == []
    assert len(step(found, [one], groups, NOW + 50 * SECOND, [silence])) == 1
    assert mute_alerts([one], [silence], (), NOW + 1).silenced == {one.fingerprint: ["s"]}
    idle, down = alert("GpuIdle", node="n1"), alert("NodeDown", node="n1")
    assert mute_alerts([idle, down], (), found.inhibitions, NOW).inhibited == {idle.fingerprint: [down.fingerprint]}
    assert mute_alerts([idle, alert("NodeDown", node="n2")], (), found.inhibitions, NOW).inhibited == {}


def test_a_posted_alert_of_a_project_inhibits_alerts_of_this_project_alone():
    own, other, none = (alert("GpuIdle", node="n1", project=project) for project in ("lab", "other", ""))
    down = replace(alert("NodeDown", node="n1", project="lab"), rule=POSTED)
    assert mute_alerts([own, other, none, down], (), config().inhibitions, NOW).inhibited == {
        own.fingerprint: [down.fingerprint]
    }
    whole = replace(alert("NodeDown", node="n1"), rule=POSTED)
    assert mute_alerts([own, other, whole], (), config().inhibitions, NOW).inhibited == {
        one.fingerprint: [whole.fingerprint] for one in (own, other)
    }


def test_consequences_are_silent_while_their_root_fires():
    root = alert("CriticalFinding", role="root", job_id="j", project="lab")
    other = alert("CriticalFinding", role="cascade", job_id="j", project="lab")
    elsewhere = alert("CriticalFinding", role="cascade", job_id="j", project="other")
    page = mute_alerts([root, other, elsewhere], (), config().inhibitions, NOW)
    assert page.inhibited == {other.fingerprint: [root.fingerprint]}
    ended = alert("CriticalFinding", role="root", job_id="j", project="lab", state=AlertState.RESOLVED)
    assert mute_alerts([ended, other], (), config().inhibitions, NOW).inhibited == {}


def test_a_silence_of_a_project_covers_its_alerts_alone():
    silence = Silence(
        id="s", project="lab", matchers=(LabelMatcher("alertname", "A"),), start=0, end=NOW * 2,
        author="a", comment="c", updated=0,
    )  # fmt: skip
    mine, theirs = alert(project="lab"), alert(project="other")
    assert mute_alerts([mine, theirs, alert()], [silence], (), NOW).silenced == {mine.fingerprint: ["s"]}


@pytest.mark.parametrize(
    ("text", "labels", "wanted"),
    [
        ('a="x"', {"a": "x"}, True),
        ("a=x", {"a": "xy"}, False),
        ("a!=x", {}, True),
        ('a=~"x|y"', {"a": "y"}, True),
        ('a=~"x|y"', {"a": "xz"}, False),
        ('a=~"x|y"', {"a": "zx"}, False),
        ('a!~"x.*"', {"a": "xyz"}, False),
        ('a=~".*"', {"a": "x\ny"}, True),
        ('a=""', {}, True),
    ],
)
def test_matchers(text, labels, wanted):
    matcher = parse_matcher(text)
    assert fulfils([matcher], labels) is wanted


WORDS = st.sampled_from(["", "x", "y", "xy"])
MATCHERS = st.lists(st.builds(LabelMatcher, st.sampled_from("ab"), WORDS, st.booleans(), st.booleans()), max_size=3)
ALERTS = st.lists(st.dictionaries(st.sampled_from("ab"), WORDS), max_size=5)
OWN = {"receiver": WORDS, "matchers": MATCHERS.map(tuple), "goes_on": st.booleans()}
ROUTES = st.recursive(
    st.builds(AlertRoute, **OWN),
    lambda below: st.builds(AlertRoute, routes=st.lists(below, max_size=3).map(tuple), **OWN),
    max_leaves=8,
)


def reached(route, labels):
    """Return the receivers of one alert, as the documentation of Alertmanager describes its tree of routes."""
    if not fulfils(route.matchers, labels):
        return []
    found = []
    for child in route.routes:
        below = reached(child, labels)
        found += below
        if below and not child.goes_on:
            break
    return found or [route.receiver]


@given(MATCHERS, ALERTS)
def test_alerts_are_selected_together_as_one_by_one(matchers, labels):
    alerts = [alert(**one) for one in labels]
    assert list(select_fulfilling(matchers, alerts)) == [one for one in alerts if fulfils(matchers, one.labels)]


@given(ROUTES, ALERTS)
def test_each_alert_takes_its_way_through_the_routes(route, labels):
    alerts = list({one.fingerprint: one for one in (alert(**one) for one in labels)}.values())
    found = find_receivers(AlertConfig(route=route), alerts)
    for one in alerts:
        assert [name for name, _ in found.get(one.fingerprint, [])] == reached(route, one.labels)


@pytest.mark.parametrize("text", ["", "a", "1a=x", 'a=~"("', "a b=c"])
def test_texts_that_are_no_matchers(text):
    with pytest.raises(InvalidRequestError):
        parse_matcher(text)


def test_a_long_matcher_is_refused():
    with pytest.raises(InvalidRequestError):
        check_matcher(LabelMatcher("a", "x" * 2_000))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("receiver: team", "receiver: none"), "the receiver 'none' is not defined"),
        (("route:", "roote:"), "roote: this field is unknown"),
        (("group_wait: 10s", "group_wait: 10"), "'10' is not a duration"),
        (("url: 'https", "url: 'ftp"), "webhook_configs[0].url"),
        (("{domain: example.org}", "{}"), "domain is needed"),
        (("mail.example.org:25", "mail.example.org"), "HOST:PORT is needed"),
        (("to: ops@example.org", "to: ops@example.org, html: x"), "templates are not supported"),
        (("continue: true", "continue: perhaps"), "true or false is needed"),
        (("    equal: [node]", "    equals: [node]"), "this field is unknown"),
        (("match_re: {severity: warn.*}", "match_re: {severity: '('}"), "error parsing regexp"),
        (("allow: [hooks.example.org", "allow: [http://x"), "is not a host name"),
        (("group_by: [alertname]", "group_by: [alertname]\n  matchers: [a=b]"), "it has no matchers"),
        (("      continue: true", "      mute_time_intervals: [x]"), "'x' is not defined; defined are none"),
    ],
)
def test_wrong_settings_are_refused_with_their_place(change, problem):
    assert change[0] in CONFIG
    with pytest.raises(ConfigurationError) as refused:
        config(CONFIG.replace(*change))
    assert problem in str(refused.value)


def test_secrets_come_from_files_and_are_not_shown(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    secret = f"http_config: {{authorization: {{credentials_file: {tmp_path}/token}}}}"
    text = CONFIG.replace("{url: 'https://hooks.example.org/x?token=1'}", f"{{url: 'https://hooks.x/x', {secret}}}")
    (first, *_) = config(text).destinations
    assert first.target.authorization == "Bearer s3cret"
    assert "s3cret" not in repr(first)


def test_a_large_group_is_cut_and_counted():
    found = config()
    groups: dict[str, NotificationGroup] = {}
    many = [alert(node=f"n{number}", text="x" * 9_000) for number in range(150)]
    ((_, body),) = step(found, many, groups, NOW + 10 * SECOND)
    assert 0 < len(body["alerts"]) < 100
    assert body["truncatedAlerts"] == 150 - len(body["alerts"])
    assert step(found, many, groups, NOW + 100 * SECOND) == []


def test_nothing_is_sent_without_settings():
    assert step(AlertConfig(), [alert()], {}, NOW + 10**6) == []
    assert AlertPage([]).alerts == []

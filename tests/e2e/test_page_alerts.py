"""Tests of the alerts on a job's page: list, chart marks, muting, removal, and jobs without alerts or permission."""

import json

import pytest

from jobmeter.model.time import HOUR, MINUTE, SystemClock, format_iso
from tests.e2e.page import facts, import_samples, needs_page, samples, wait_for_page
from tests.support.browser import check_view
from tests.support.processes import running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TRAIN, ALERTS = "jobs/train-1", "section[aria-label=Alerts]"
LONG = "node-with-a-long-name" * 6
RULES = f"""
groups:
  - name: mine
    interval: 1s
    rules:
      - alert: BusyRank
        expr: max by (project, job_id, replica) (max_over_time(jobmeter_gpu_utilization_ratio[3h])) > 0.5
        labels: {{severity: critical}}
        annotations: {{summary: "{{{{ $labels.replica }}}} is busy", description: "{LONG}"}}
      - alert: StillRuns
        expr: jobmeter_job_state{{state="Running"}} == 1
        for: 10h
        labels: {{severity: warning}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("page-alerts")
    (folder / "rules.yml").write_text(RULES)
    options, off = ("--alert-rules", str(folder / "rules.yml")), {"JOBMETER_ALERT_SHIPPED": "off"}
    with running(folder / "data", *options, environment=off) as made:
        now = SystemClock().now_ms()
        assert made.request("POST", "/jobs", facts(now)).status == 200
        import_samples(made, folder, samples(now))
        wait_until(lambda: made.request("GET", "/jobs/train-1/alerts").json()["total"] == 16, "the alerts of the job")
        yield made


@pytest.mark.parametrize(("width", "scheme"), [("wide", "light"), ("phone", "dark")])
def test_the_alerts_of_a_job_are_listed_with_the_worst_first(viewer, width, scheme):
    viewer.look(width, scheme)
    page = viewer.open(TRAIN, f"{ALERTS} li")
    first, second = page.locator(f"{ALERTS} > ol > li").all()
    assert "is busy" in first.inner_text()
    assert "14 more of this rule" in first.inner_text()
    assert "critical alert" in first.inner_text()
    assert "firing since" in first.inner_text()
    assert "StillRuns" in second.inner_text()
    assert "pending since" in second.inner_text()
    second.locator("summary").click()
    assert "jobmeter silence add alertname=StillRuns job_id=train-1" in second.locator("details code").inner_text()
    check_view(page, f"alerts, {width}, {scheme}")


def test_a_chosen_alert_is_marked_on_every_chart(viewer):
    page = viewer.open(TRAIN, f"{ALERTS} li")
    button = page.locator(f"{ALERTS} li button", has_text="StillRuns")
    button.click()
    page.wait_for_selector(".marked-bar")
    assert button.get_attribute("aria-pressed") == "true"
    page.click(".marked-bar >> text=Clear")
    page.wait_for_selector(".marked-bar", state="detached")
    assert button.get_attribute("aria-pressed") == "false"


def test_the_page_lists_nothing_without_alerts_or_without_the_permission(browser, viewer, server):
    page = viewer.open("jobs/failed-1", ".findings")
    page.wait_for_load_state("networkidle")
    assert page.locator(ALERTS).count() == 0
    statement = {"Effect": "Allow", "Action": "jobmeter:*", "Resource": "*"}
    refused = {"Effect": "Deny", "Action": "jobmeter:getJobAlerts", "Resource": "*"}
    document = {"Version": "1", "Statement": [statement, refused]}
    key = server.request("POST", "/keys", {"name": "blind", "policies": [{"name": "own", "document": document}]}).json()
    context = browser.new_context()
    page = context.new_page()
    bearer = {"Authorization": f"Bearer {key['token']}"}
    code = server.call("POST", "/api/jobmeter/v1/session/link", headers=bearer).json()["code"]
    page.goto(f"{server.url}/#/open?code={code}")
    page.wait_for_selector("main h1")
    with page.expect_response("**/jobs/train-1/alerts*") as answer:
        page.goto(f"{server.url}/#/{TRAIN}")
    assert answer.value.status == 403
    page.wait_for_selector(".findings")
    page.wait_for_selector("figure.chart")
    assert page.locator(ALERTS).count() == 0
    assert page.locator("[role=alert]").count() == 0
    context.close()


def test_a_writer_silences_an_alert_and_ends_the_silence(viewer, server):
    page = viewer.open(TRAIN, f"{ALERTS} li")
    alert = page.locator(f"{ALERTS} > ol > li", has_text="StillRuns")
    alert.locator("summary").click()
    form = alert.locator("form")
    assert form.locator("button").is_disabled()
    form.locator("select").select_option(label="8 hours")
    form.locator("[aria-label='Your name']").fill("lin")
    form.locator("[aria-label=Reason]").fill("waits for <data>")
    form.locator("button").click()
    silenced = alert.locator(".silence")
    silenced.wait_for()
    assert "by lin: waits for <data>" in silenced.inner_text()
    assert "muted" in alert.locator("button").first.inner_text()
    (made,) = server.request("GET", "/jobs/train-1/alerts").json()["silences"]
    assert made["end"] - made["start"] == 8 * HOUR
    silenced.locator("text=End the silence").click()
    silenced.wait_for(state="detached")
    assert server.request("GET", "/jobs/train-1/alerts").json()["silences"] == []


def test_a_silence_mutes_an_alert_and_the_end_of_the_job_ends_it(viewer, server):
    now = SystemClock().now_ms()
    matchers = [{"name": "alertname", "value": "StillRuns"}]
    silence = {
        "matchers": matchers,
        "startsAt": format_iso(now),
        "endsAt": format_iso(now + HOUR),
        "createdBy": "lin",
        "comment": "x",
    }
    assert server.call("POST", "/api/v2/silences", json.dumps(silence).encode()).status == 200
    page = viewer.open(TRAIN, f"{ALERTS} li")
    text = page.locator(f"{ALERTS} li", has_text="StillRuns").inner_text()
    assert "muted" in text
    assert "by lin: x" in text
    assert "End the silence" not in text, "the silence covers other jobs too"
    ended = {"job_id": "train-1", "state": "Succeeded", "start": now - 40 * MINUTE, "end": now}
    assert server.request("POST", "/jobs", ended).status == 200
    wait_until(lambda: server.request("GET", "/jobs/train-1/alerts").json()["total"] == 0, "no alert is open")
    page.reload()
    page.wait_for_selector("figure.chart")
    page.wait_for_load_state("networkidle")
    wait_for_page(page, f"document.querySelector('{ALERTS}') === null")

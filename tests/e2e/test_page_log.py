"""Tests of the log and the events on a job's page: following, searching, marks on every chart, cutting to a span."""

from urllib.parse import parse_qs, urlsplit

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from tests.e2e.page import RANKS, needs_page, training_server, wait_for_page
from tests.support.browser import check_view
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
TRAIN = "jobs/train-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    with training_server(tmp_path_factory.mktemp("page")) as made:
        yield made


def ink(page, selector):
    """Return the picture of a chart, which changes with its marks."""
    return page.evaluate(f"document.querySelector({selector!r}).toDataURL()")


def test_a_log_line_that_is_chosen_marks_every_chart_and_the_heat_map(viewer):
    page = viewer.open(TRAIN, ".log .line")
    page.wait_for_selector('.chart[data-metric="cpu.usage"] canvas')
    charts = ('.chart[data-metric="cpu.usage"] canvas', '.chart[data-metric="gpu.utilization"] canvas', ".heat canvas")
    # A live chart redraws without a change, so compare a fixed range.
    page.click("[aria-label='Zoom out']")
    page.wait_for_selector(".timebar >> text=paused")
    page.wait_for_selector(".log .line button.link")
    before = [ink(page, one) for one in charts]
    page.focus(".log .line:nth-of-type(3) button.link")
    page.keyboard.press("Enter")
    page.wait_for_selector(".marked-bar")
    wait_until(
        lambda: all(ink(page, one) != old for one, old in zip(charts, before, strict=True)), "every chart is marked"
    )
    assert page.get_attribute(".log .marked button", "aria-pressed") == "true"
    page.click(".marked-bar >> text=Zoom to it")
    wait_for_page(page, "location.hash.includes('from=')")
    wait_for_page(page, "document.querySelectorAll('.log .line').length < 10")
    page.click(".marked-bar >> text=Clear")
    page.wait_for_selector(".marked-bar", state="detached")


def test_the_log_is_followed_and_who_reads_further_up_stays_there(viewer, server):
    now = SystemClock().now_ms()
    assert (
        server.request("POST", "/jobs", {"job_id": "chatty", "state": "Running", "start": now - MINUTE}).status == 200
    )

    def push(*texts):
        lines = [{"text": text, "time": now + at} for at, text in enumerate(texts)]
        assert server.request("POST", "/jobs/chatty/logs", {"lines": lines}).status == 200

    push(*(f"step {at}" for at in range(80)))
    page = viewer.open("jobs/chatty", ".log .line")
    at_end = "(one => one.scrollHeight - one.scrollTop - one.clientHeight < 5)(document.querySelector('.log'))"
    has = "document.querySelector('.log').textContent.includes({!r})".format
    wait_for_page(page, at_end)
    push("first of all that follow")
    wait_for_page(page, has("first of all that follow"))
    wait_for_page(page, at_end)
    page.evaluate("document.querySelector('.log').scrollTop = 0")
    push("seen by nobody yet", "and this")
    wait_for_page(page, has("and this"))
    assert page.evaluate("document.querySelector('.log').scrollTop") == 0
    page.fill("[aria-label='Search in the log']", "follow")
    wait_for_page(page, "document.querySelectorAll('.log .line').length === 1")
    push("it will follow, too")
    wait_for_page(page, "document.querySelectorAll('.log .line').length === 2")


def test_lines_that_come_faster_than_they_are_shown_are_counted_and_loaded(viewer, server):
    # Put all lines into one second of the log, so that the first page and the rest do not share the next one.
    now = SystemClock().now_ms() // 1_000 * 1_000 + 300
    server.request("POST", "/jobs", {"job_id": "flood", "state": "Running", "start": now - MINUTE})

    def push(first, last):
        lines = [{"text": f"line {at}", "time": now - 5_000 + at} for at in range(first, last)]
        assert server.request("POST", "/jobs/flood/logs", {"lines": lines}).status == 200

    push(0, 10)
    page = viewer.open("jobs/flood", ".log .line")
    page.wait_for_selector(".log[aria-label='Log lines']")
    push(10, 2_610)
    page.wait_for_selector(".log .gap")
    shown = page.locator(".log .line")

    def left_out():
        return [int(text.split(" ")[0].replace(",", "")) for text in page.locator(".log .gap").all_inner_texts()]

    wait_until(lambda: shown.count() + sum(left_out()) == 2_610, "what is not shown is counted")
    assert shown.count() == 510
    check_view(page, "left out")
    assert page.inner_text(".log .gap >> nth=0").split("\n") == ["2,100 lines were left out", "Load the last 1,000"]
    while page.locator(".log .gap").count():
        before = shown.count()
        page.locator(".log .gap button").first.click()
        wait_until(lambda: shown.count() > before, "more of them")  # noqa: B023
        # A page loads its last second completely. More lines follow at once.
        wait_until(lambda: shown.count() + sum(left_out()) == 2_610, "what is still left out")
    assert page.evaluate("[...document.querySelectorAll('.log .text')].map(one => one.textContent)") == [
        f"line {at}" for at in range(2_610)
    ]


def test_lines_that_came_while_nobody_followed_are_counted(viewer, server):
    now = SystemClock().now_ms()
    server.request("POST", "/jobs", {"job_id": "paused", "state": "Running", "start": now - 5 * MINUTE})

    def push(first, last):
        lines = [{"text": f"line {at}", "time": now - 4 * MINUTE + at * 100} for at in range(first, last)]
        assert server.request("POST", "/jobs/paused/logs", {"lines": lines}).status == 200

    push(0, 5)
    page = viewer.open("jobs/paused", ".log .line")
    page.click("#logs >> text=Follow")
    push(5, 1_505)
    page.click("#logs >> text=Follow")
    page.wait_for_selector(".log .line:has-text('line 1504')")
    # The update begins within a second, and contains that second completely.
    page.wait_for_selector(".log .gap:has-text('1,000 lines were left out')")
    page.route("**/logs?*", lambda route: route.fulfill(status=429, json={"error": {"message": "too many questions"}}))
    page.click(".log .gap button")
    page.wait_for_selector("#logs .problem:has-text('Too many questions.')")
    assert page.locator(".log .line").count() == 505, "what was there stays"
    page.unroute("**/logs?*")
    page.click(".log .gap button")
    page.wait_for_selector(".log .gap", state="detached")
    page.wait_for_selector("#logs .problem", state="detached")
    assert page.locator(".log .line").count() == 1_505


def test_a_span_that_is_brushed_filters_events_and_log_lines(viewer):
    page = viewer.open(TRAIN, ".log .line")
    assert page.locator(".log .line").count() == 10
    now = SystemClock().now_ms()
    page = viewer.open(f"{TRAIN}?from={now - 36 * MINUTE}&to={now - 30 * MINUTE}", "article.job")
    page.wait_for_selector("#logs >> text=No lines match.")
    page.wait_for_selector("#events >> text=No events in this range.")


def queried(request, call):
    """Return the query of a request if it is that call of the job."""
    parts = urlsplit(request.url)
    return parse_qs(parts.query) if parts.path.endswith(f"/{TRAIN}/{call}") else {}


def test_of_a_span_that_is_over_only_the_job_is_followed_until_its_end_is_looked_at(viewer):
    now = SystemClock().now_ms()
    page = viewer.page
    with page.expect_request(lambda one: queried(one, "live").get("by") == ["job"]):
        viewer.open(f"{TRAIN}?from={now - 50 * MINUTE}&to={now - 20 * MINUTE}", ".timebar >> text=paused")
    with page.expect_request(lambda one: queried(one, "live").get("by") == ["device"]):
        page.click("text=Follow live")
    page.wait_for_selector(".timebar >> text=following live")
    wait_for_page(page, "!location.hash.includes('from=')")


def test_what_came_while_a_part_was_looked_at_is_there_when_the_job_is_followed_again(viewer):
    now = SystemClock().now_ms()
    page = viewer.open(TRAIN, ".chart canvas")
    page.click("[aria-label='Zoom in']")
    page.wait_for_selector(".timebar >> text=paused")
    page.evaluate("Date.now = ((now) => () => now() + 600_000)(Date.now)")
    with page.expect_request(lambda one: int(queried(one, "metrics").get("end", ["0"])[0]) >= now + 10 * MINUTE):
        page.click("text=Follow live")


def test_what_all_ranks_did_at_once_is_one_row_of_events(viewer):
    page = viewer.open(TRAIN, "#events details")
    assert f"{RANKS} replicas, worker-0 to worker-{RANKS - 1}" in page.inner_text("#events summary")
    page.click("#events summary")
    assert "worker-7 on node-0" in page.inner_text("#events details")
    page.wait_for_selector("#events li:has-text('Saved')")

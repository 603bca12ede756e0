"""Tests of the list of jobs: columns, filters, findings, resource usage, many rows."""

import re

import pytest

from jobmeter.model.time import HOUR, MINUTE, SystemClock
from tests.e2e.page import WIDTHS, facts, import_samples, needs_page, samples, wait_for_page
from tests.support.browser import check_view
from tests.support.processes import running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def found(now):
    """Store findings as the server does, for jobs that ended too long ago for the server's own evaluation."""
    jobs = [
        {"job_id": f"ended-{n}", "state": "Failed", "start": now - 9 * HOUR + n, "end": now - 8 * HOUR}
        for n in range(3)
    ]
    event = {"time": now, "reason": "Finding"}
    events = [
        {**event, "job": "ended-0", "level": "error", "message": "gpu_idle_allocated (job ended-0): it was idle"},
        {**event, "job": "ended-0", "level": "info", "message": "straggler_rank (replica worker-1): it is slow"},
        {**event, "job": "ended-1", "level": "warning", "message": "gpu_idle_allocated (job ended-1): it was idle"},
    ]
    jobs.append({"job_id": "old-1", "state": "Succeeded", "start": now - 72 * HOUR, "end": now - 70 * HOUR})
    return {"jobs": jobs, "events": events}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("page-job")
    with running(folder / "data") as made:
        now = SystemClock().now_ms() // MINUTE * MINUTE
        assert made.request("POST", "/jobs", facts(now)).status == 200
        assert made.request("POST", "/jobs", found(now)).status == 200
        import_samples(made, folder, samples(now))
        yield made


def heads(page):
    return [text.strip() for text in page.locator(".row.head [role=columnheader]").all_inner_texts()]


def test_columns_are_chosen_stored_in_the_address_and_by_the_browser(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    assert "User" in heads(page)
    page.focus(".menu summary")
    page.keyboard.press("Enter")
    page.click(".menu label:has-text('User') input")
    page.click(".menu label:has-text('Group') input")
    page.click(".menu label:has-text('Exit status') input")
    wait_for_page(page, "location.hash.includes('columns=')")
    assert "User" not in heads(page)
    assert "Exit status" in heads(page)
    page.keyboard.press("Escape")
    assert page.evaluate("document.querySelector('.menu').open") is False
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page = viewer.open("jobs/failed-1", "header.job h1")
    page = viewer.open("", ".rows .row[data-at]")
    assert "Exit status" in heads(page)
    assert "columns" not in page.url
    page = viewer.open("?columns=type,nonsense", ".rows .row[data-at]")
    assert heads(page)[2:] == ["Job", "Type"]
    page.click(".menu summary")
    page.click("text=Default columns")
    wait_for_page(page, "document.querySelector('.row.head').textContent.includes('User')")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=ended-&severity=critical", {"ended-0"}),
        ("q=ended-&finding=gpu_idle_allocated", {"ended-0", "ended-1"}),
        ("q=ended-&finding=any&severity=warning", {"ended-1"}),
    ],
)
def test_the_server_filters_by_findings(viewer, query, expected):
    page = viewer.open(f"?{query}", ".rows .row[data-at]")
    wait_until(lambda: set(page.locator(".rows .c-name b").all_inner_texts()) == expected, query)
    assert page.inner_text(".figures b") == str(len(expected))


def test_a_finding_is_chosen_in_the_filters(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    page.click("text=Filters")
    page.wait_for_selector("option[value=gpu_idle_allocated]", state="attached")
    page.select_option(".more label:has-text('Finding') select", "gpu_idle_allocated")
    page.select_option(".more label:has-text('Severity') select", "critical")
    wait_for_page(page, "document.querySelectorAll('.rows .row[data-at]').length === 1")
    assert {"finding=gpu_idle_allocated", "severity=critical"} <= set(page.url.partition("?")[2].split("&"))
    page.click("text=Clear all")
    wait_for_page(page, "document.querySelectorAll('.rows .row[data-at]').length > 3")


def test_a_row_says_the_worst_that_was_found(viewer):
    page = viewer.open("?q=ended-", ".rows .found")
    wait_for_page(page, "document.querySelectorAll('.rows .row[data-at]').length === 3")
    cells = {
        row.locator(".c-name b").inner_text(): row.locator(".c-findings").inner_text().split("\n")
        for row in page.locator(".rows .row[data-at]").all()
    }
    # The sentence without its start time, which differs in each run.
    times = {name: [word for word in words if re.fullmatch(r"[\d:]+", word)] for name, words in cells.items()}
    words = {name: [word for word in words if word not in times[name]] for name, words in cells.items()}
    assert {name: len(found) for name, found in times.items()} == {"ended-0": 1, "ended-1": 1, "ended-2": 0}
    assert words == {
        "ended-0": ["critical:", "it was idle", "+1"],
        "ended-1": ["warning:", "it was idle"],
        "ended-2": [""],
    }
    assert "Straggler rank" in page.get_attribute(".found.critical", "title")


def test_what_is_found_meanwhile_appears_by_itself(viewer, server):
    now = SystemClock().now_ms()
    job = {"job_id": "growing", "state": "Running", "start": now - MINUTE}
    assert server.request("POST", "/jobs", job).status == 200
    page = viewer.open("?q=growing", ".rows .row[data-at]")
    event = {"time": now, "job": "growing", "reason": "Finding", "level": "warning"}
    event["message"] = "memory_leak (replica worker-3): it grows"
    assert server.request("POST", "/jobs", {"events": [event]}).status == 200
    wait_for_page(page, "document.querySelector('.rows .c-findings')?.textContent.includes('it grows')")


@pytest.mark.parametrize("width", [360, 640, 780, 930, 1020, 1180, 1440])
def test_columns_that_have_no_room_are_left_out_and_named(viewer, width):
    viewer.page.set_viewport_size({"width": width, "height": 800})
    every = "type,project,user,group,workspace,created,start,end,duration,exit,error,findings,cpu,gpu"
    page = viewer.page
    for place in ("", f"?columns={every}"):
        viewer.open(place, ".rows .row[data-at]")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
        beyond = (
            "[...document.querySelectorAll('.row > div')].filter(one => one.getBoundingClientRect().right > innerWidth)"
        )
        assert page.evaluate(f"{beyond}.length") == 0, place
        assert "Duration" in heads(page)
        assert "GPU" in heads(page)
    page.click(".menu summary")
    missing = page.locator(".menu label", has_text="no room")
    assert missing.count() == 14 - (len(heads(page)) - 3)


def test_a_phone_shows_what_each_job_used(viewer):
    viewer.look("phone")
    page = viewer.open("?q=train-1", ".rows .spark-gpu svg path")
    wait_for_page(page, "document.querySelectorAll('.rows .row[data-at]').length === 1")
    places = [page.locator(f".rows .c-{name}").bounding_box() for name in ("duration", "gpu")]
    assert places[0]["x"] == places[1]["x"]
    assert places[0]["y"] + places[0]["height"] <= places[1]["y"] + 1
    assert re.search(r"\d\d\.\d %", page.inner_text(".rows .c-gpu"))


def test_a_phone_shows_jobs_with_findings(viewer):
    viewer.look("phone")
    page = viewer.open("?q=ended-", ".rows .c-name .found.critical")
    # The old rows stay until the narrowed list is there.
    wait_for_page(page, "document.querySelectorAll('.rows .row[data-at]').length === 3")
    row = page.locator(".rows .row[data-at]", has_text="ended-0")
    assert "critical: Allocated GPU idle" in row.locator(".c-name").text_content()
    assert page.locator(".rows .c-name .found").count() == 2
    check_view(page, "findings on a phone")


def test_only_rows_in_sight_are_drawn(viewer, server):
    now = SystemClock().now_ms()
    many = [{"job_id": f"many-{at:04}", "state": "Succeeded", "created": now - at} for at in range(900)]
    assert server.request("POST", "/jobs", many).status == 200
    page = viewer.open("?q=many-&sort=name&order=asc", ".rows .row[data-at]")
    wait_for_page(page, "document.querySelector('.figures b').textContent === '900'")
    assert page.inner_text('.rows .row[data-at="0"] .c-name b') == "many-0000"
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector('.rows .row[data-at="899"]')
    assert page.inner_text('.rows .row[data-at="899"] .c-name b') == "many-0899"
    assert page.locator(".rows .row").count() < 60


def test_rows_in_sight_stay_when_more_pages_come_than_are_stored(viewer, server):
    now = SystemClock().now_ms()
    long = [{"job_id": f"long-{at:04}", "state": "Succeeded", "created": now - at} for at in range(3_100)]
    for first in range(0, len(long), 1_000):
        assert server.request("POST", "/jobs", long[first : first + 1_000]).status == 200
    page = viewer.open("?q=long-&sort=name&order=asc", ".rows .row[data-at]")
    wait_for_page(page, "document.querySelector('.figures b').textContent === '3,100'")
    for at in range(50, 3_100, 100):
        page.evaluate(f"scrollTo(0, {at} * 46)")
        page.wait_for_selector(f'.rows .row[data-at="{at}"]')
    # The first page stays; the second one was discarded.
    with page.expect_response(lambda one: re.search(r"offset=100(&|$)", one.url) is not None):
        page.evaluate("scrollTo(0, 140 * 46)")
    page.wait_for_load_state("networkidle")
    page.evaluate("[...document.querySelectorAll('.who button')].find(one => one.textContent === 'UTC').click()")
    assert page.locator(".rows .row.waiting").count() == 0
    assert page.inner_text('.rows .row[data-at="140"] .c-name b') == "long-0140"


@pytest.mark.parametrize("width", WIDTHS)
def test_times_in_the_list_are_whole(viewer, width):
    viewer.look(width)
    page = viewer.open("?q=old-1", ".rows .row[data-at]")
    # The old rows stay until the answer to the new query is there.
    wait_for_page(page, "[...document.querySelectorAll('.rows .c-name')].map(one => one.textContent) == 'old-1'")
    assert "2 h 00 m" in page.inner_text(".rows .c-duration")
    cells = "[...document.querySelectorAll('.rows .c-start, .rows .c-duration')]"
    assert page.evaluate(f"{cells}.every(one => one.scrollWidth <= one.clientWidth)")
    if width == "wide":
        assert re.fullmatch(r"(\d\d-\d\d \d\d:\d\d|\d{4}-\d\d-\d\d)", page.inner_text(".rows .c-start"))

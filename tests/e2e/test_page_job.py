"""What people do with the list and with one job on the page: columns, findings, marks, a rank, commands, links."""

import re
import shlex
import subprocess
from urllib.parse import parse_qs, urlsplit

import pytest

from jobmeter.model.time import HOUR, MINUTE, SystemClock
from tests.browser import check_view
from tests.e2e.page import RANKS, SLOW, WIDTHS, Viewer, facts, import_samples, needs_page, samples, wait_for_page
from tests.needs import needs
from tests.processes import running
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
TRAIN = "jobs/train-1"


PHASED = "jobs/phased-1"
START_MINUTES, WORK_MINUTES, END_MINUTES = 6, 30, 4


def phased(now):
    """A job that ended long ago: it was queued for 10 minutes, prepared for 2, and has the phases named above."""
    start = now - 30 * HOUR
    end = start + (START_MINUTES + WORK_MINUTES + END_MINUTES) * MINUTE
    job = {"job_id": "phased-1", "state": "Succeeded", "created": start - 12 * MINUTE, "start": start, "end": end}
    event = {"time": start - 2 * MINUTE, "job": "phased-1", "reason": "Scheduled", "message": "assigned"}
    replica = {"name": "worker-0", "node": "node-0", "devices": ["gpu0"], "start": start, "end": end}
    lines = []
    for at in range(start, end, 10_000):
        works = START_MINUTES <= (at - start) / MINUTE < START_MINUTES + WORK_MINUTES
        lines.append(f"phased-1,worker-0,node-0,gpu0,gpu.utilization,{at},{0.9 if works else 0}")
    return {"jobs": [{**job, "replicas": [replica]}], "events": [event]}, lines


def found(now):
    """Findings as the server stores them, of jobs that ended too long ago for it to look at them by itself."""
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
        records, lines = phased(now)
        assert made.request("POST", "/jobs", records).status == 200
        import_samples(made, folder, [*samples(now), *lines])
        lines = [
            {"text": f"step {n}", "time": now - 20 * MINUTE + n * MINUTE, "replica": f"worker-{n % 2}"}
            for n in range(10)
        ]
        assert made.request("POST", "/jobs/train-1/logs", {"lines": lines}).status == 200
        events = [
            {"time": now - 15 * MINUTE, "job": "train-1", "reason": name, "message": name} for name in ("Saved", "Late")
        ]
        assert made.request("POST", "/jobs", {"events": events}).status == 200
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
    page.click("text=The usual ones")
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
    # The sentence, and the time since when, which is another one in each run.
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
def test_columns_that_have_no_room_are_left_out_and_named(browser, server, width):
    viewer = Viewer(browser, server)
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
    missing = page.locator(".menu label", has_text="no room here")
    assert missing.count() == 14 - (len(heads(page)) - 3)
    viewer.close()


def test_a_phone_shows_what_each_job_used(browser, server):
    viewer = Viewer(browser, server, "phone")
    page = viewer.open("?q=train-1", ".rows .spark-gpu svg path")
    wait_for_page(page, "document.querySelectorAll('.rows .row[data-at]').length === 1")
    places = [page.locator(f".rows .c-{name}").bounding_box() for name in ("duration", "gpu")]
    assert places[0]["x"] == places[1]["x"]
    assert places[0]["y"] + places[0]["height"] <= places[1]["y"] + 1
    assert re.search(r"\d\d\.\d %", page.inner_text(".rows .c-gpu"))
    viewer.close()


def test_a_phone_shows_jobs_with_findings(browser, server):
    viewer = Viewer(browser, server, "phone", bypass_csp=True)
    page = viewer.open("?q=ended-", ".rows .c-name .found.critical")
    row = page.locator(".rows .row[data-at]", has_text="ended-0")
    assert "critical: GPU idle" in row.locator(".c-name").text_content()
    assert page.locator(".rows .c-name .found").count() == 2
    check_view(page, "findings on a phone")
    viewer.close()


def test_a_phone_shows_how_far_a_rank_is_from_the_median(browser, server):
    viewer = Viewer(browser, server, "phone")
    page = viewer.open(f"{TRAIN}?rank=worker-{SLOW}", ".rank-panel table")
    assert "GPU utilization" in page.inner_text(".rank-panel tbody")
    assert page.evaluate("(one => one.scrollWidth <= one.clientWidth)(document.querySelector('.rank-panel .wide'))")
    viewer.close()


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
    with page.expect_response(lambda one: "offset=0" in one.url):
        page.evaluate("scrollTo(0, 140 * 46)")
    page.wait_for_load_state("networkidle")
    page.evaluate("[...document.querySelectorAll('.who button')].find(one => one.textContent === 'UTC').click()")
    assert page.locator(".rows .row.waiting").count() == 0
    assert page.inner_text('.rows .row[data-at="140"] .c-name b') == "long-0140"


def test_replicas_and_devices_have_their_newest_values_and_are_chosen(viewer):
    page = viewer.open(TRAIN, "#replicas tbody tr")
    wait_until(lambda: "%" in page.inner_text("#replicas tbody"), "values")
    rows = page.locator("#replicas tbody tr")
    assert page.inner_text("#replicas-title") == f"{RANKS} replicas, {RANKS} devices"
    cells = rows.nth(SLOW).inner_text().split("\t")
    assert [text.strip() for text in cells[:4]] == [str(SLOW), f"worker-{SLOW}", f"gpu{SLOW}", "node-0"]
    assert "40.0 %" in cells
    rows.nth(SLOW).locator("button").click()
    wait_for_page(page, f"location.hash.includes('rank=worker-{SLOW}')")
    assert rows.nth(SLOW).get_attribute("class") == "chosen"


def test_the_line_under_the_pointer_is_named_among_many(viewer):
    page = viewer.open(TRAIN, '.chart[data-metric="gpu.utilization"] .u-over')
    chart = page.locator('.chart[data-metric="gpu.utilization"]')
    assert "grey: each of 16" in chart.inner_text()
    over = chart.locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    # The axis goes to a little above 100 %: the slow rank lies at 40 % of it.
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * (1 - 0.4 / 1.02))
    wait_until(lambda: f"worker-{SLOW}" in chart.locator(".when").inner_text(), "the line is named")


@pytest.mark.parametrize("width", WIDTHS)
def test_times_in_the_list_are_whole(browser, server, width):
    viewer = Viewer(browser, server, width)
    page = viewer.open("?q=old-1", ".rows .row[data-at]")
    # The rows of the question before stay until the answer to this one is there.
    wait_for_page(page, "[...document.querySelectorAll('.rows .c-name')].map(one => one.textContent) == 'old-1'")
    assert "2 h 00 m" in page.inner_text(".rows .c-duration")
    cells = "[...document.querySelectorAll('.rows .c-start, .rows .c-duration')]"
    assert page.evaluate(f"{cells}.every(one => one.scrollWidth <= one.clientWidth)")
    if width == "wide":
        assert re.fullmatch(r"(\d\d-\d\d \d\d:\d\d|\d{4}-\d\d-\d\d)", page.inner_text(".rows .c-start"))
    viewer.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_finding_with_long_names_wraps(browser, server, width):
    viewer = Viewer(browser, server, width, bypass_csp=True)
    now = SystemClock().now_ms()
    subject = {"kind": "device", "name": f"{'gpu-node-0017.' * 4}example.org/gpu0"}
    told: dict[str, object] = {
        "rule": "gpu_mem_near_full",
        "role": "root",
        "severity": "critical",
        "subject": subject,
        "evidence": [],
    }
    told |= {"start": now - 72 * HOUR, "end": now - 71 * HOUR, "advice": "See xid.", "source": "", "confidence": 1}
    viewer.page.route("**/jobs/train-1/findings*", lambda route: route.fulfill(json=[told]))
    page = viewer.open(TRAIN, ".finding abbr")
    viewer.see(".chart canvas")
    check_view(page, width)
    viewer.close()


def ink(page, selector):
    """How much of a chart is drawn in: it changes where something is marked."""
    return page.evaluate(f"document.querySelector({selector!r}).toDataURL()")


def test_a_log_line_that_is_chosen_marks_every_chart_and_the_heat_map(viewer):
    page = viewer.open(TRAIN, ".log .line")
    page.wait_for_selector('.chart[data-metric="cpu.usage"] canvas')
    charts = ('.chart[data-metric="cpu.usage"] canvas', '.chart[data-metric="gpu.utilization"] canvas', ".heat canvas")
    # What is followed live is drawn again by itself: a range that stands still is compared.
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
    # Within one second of the log, so that the lines of the first page and those left out do not share the next one.
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
        # Lines of a second that are shown already are loaded with it: then more follow at once.
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
    # The update begins in the middle of a second, and has it whole.
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
    page.wait_for_selector("#logs >> text=No line matches.")
    page.wait_for_selector("#events >> text=Nothing happened in this range.")


def queried(request, call):
    """The query of a request where it is that call of the job."""
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


def test_findings_of_one_rule_are_read_once_and_each_can_be_marked(viewer):
    def finding(at, rule="gpu_mem_leak", advice="Free what you no longer need."):
        now = SystemClock().now_ms()
        span = {"start": now - 10 * MINUTE - at, "end": now - 5 * MINUTE}
        text = {"advice": advice, "evidence": [{"text": f"grew by {at} MiB"}], "source": "", "confidence": 1}
        subject = {"kind": "device", "name": f"node-0/gpu{at}"}
        return {"rule": rule, "role": "root", "severity": "warning", "subject": subject, **span, **text}

    stored_findings = [
        *(finding(at) for at in range(4)),
        finding(4, "cuda_oom", "Use less; see gpu_mem_leak, link_flap and num_workers."),
    ]
    viewer.page.route("**/jobs/train-1/findings*", lambda route: route.fulfill(json=stored_findings))
    page = viewer.open(TRAIN, "section.findings details")
    assert page.locator(".finding").count() == 2
    assert page.inner_text(".finding >> nth=0").count("Free what you no longer need.") == 1
    assert "The same 3 times more: node-0/gpu1, node-0/gpu2, node-0/gpu3" in page.inner_text(".finding summary")
    assert "GPU memory leak" in page.inner_text(".finding >> nth=0")
    assert "GPU out of memory" in page.inner_text(".finding >> nth=1")
    assert page.inner_text(".finding .rule >> nth=0") == "gpu_mem_leak"
    advice = page.locator(".finding p >> nth=1")
    page.wait_for_selector(".finding p >> text=Link up and down")  # titles of rules come with a request
    assert advice.inner_text() == "Use less; see “GPU memory leak”, " + ("“Link up and down” and num_workers.")
    assert advice.locator("abbr").get_attribute("title") == "rule link_flap"
    advice.locator("a").click()
    assert "GPU memory leak" in page.evaluate("document.activeElement.textContent")
    page.click(".finding summary")
    page.click(".finding details button >> nth=1")
    page.wait_for_selector(".marked-bar")
    assert page.get_attribute(".finding details button >> nth=1", "aria-pressed") == "true"


def test_the_heat_map_says_which_time_it_is(viewer):
    page = viewer.open(TRAIN, ".heat .ticks span")
    texts = page.locator(".heat .ticks span").all_inner_texts()
    assert len(texts) >= 2
    assert all(re.fullmatch(r"\d\d:\d\d|\d\d-\d\d", text) for text in texts), "the day where midnight is between two"


def test_a_row_of_the_heat_map_opens_the_rank_beside_the_median(viewer):
    page = viewer.open(TRAIN, ".heat canvas")
    page.wait_for_selector(".outliers button")
    box = page.locator(".heat canvas").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * (SLOW + 0.5) / RANKS)
    page.wait_for_selector(".rank-panel")
    assert page.inner_text("#rank-title") == f"Rank {SLOW}: worker-{SLOW}"
    row = page.inner_text(".rank-panel tr:has-text('gpu.utilization')")
    assert re.search(r"40\.0 %\s+90\.0 %\s+\N{MINUS SIGN}50\.0 points", row)
    page.click("[aria-label='Next rank']")
    wait_for_page(page, f"document.querySelector('#rank-title').textContent.includes('worker-{SLOW + 1}')")
    assert f"rank=worker-{SLOW + 1}" in page.url
    page.focus("[aria-label='Next rank']")
    page.keyboard.press("Escape")
    page.wait_for_selector(".rank-panel", state="detached")


def active(page):
    """What a screen reader says of the row that the keyboard is at."""
    row = page.get_attribute(".heatrows", "aria-activedescendant")
    return page.get_attribute(f"#{row}", "aria-label")


def test_the_keyboard_alone_goes_over_the_heat_map_into_a_rank_and_back(viewer):
    page = viewer.open(TRAIN, ".heatrows [role=option]")
    page.wait_for_selector(".outliers button")
    page.focus(".outliers button")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "listbox"
    assert active(page) == f"rank {SLOW}, worker-{SLOW}: mean 40.0 %, computes at 40 %; the median is 90 %"
    assert active(page) in page.inner_text(".heat .caption")
    for key, rank in (("ArrowDown", SLOW + 1), ("ArrowUp", SLOW), ("Home", 0), ("ArrowUp", 0), ("End", RANKS - 1)):
        page.keyboard.press(key)
        assert active(page).startswith(f"rank {rank}, worker-{rank}: mean"), key
    page.keyboard.press("Enter")
    page.wait_for_selector(".rank-panel")
    wait_for_page(page, "document.activeElement.id === 'rank-title'")
    assert page.inner_text("#rank-title") == f"Rank {RANKS - 1}: worker-{RANKS - 1}"
    assert page.get_attribute(".heatrows [aria-selected=true]", "id") == f"heat-row-{RANKS - 1}"
    page.keyboard.press("Escape")
    page.wait_for_selector(".rank-panel", state="detached")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "listbox"
    assert active(page).startswith(f"rank {RANKS - 1}, ")


def test_every_command_of_the_export_runs_and_shows_no_secret(viewer, server):
    needs("curl")
    now = SystemClock().now_ms() // MINUTE * MINUTE
    page = viewer.open(
        f"{TRAIN}?from={now - 30 * MINUTE}&to={now - 10 * MINUTE}", '.chart[data-metric="cpu.usage"] canvas'
    )
    page.click("text=Export")
    page.wait_for_selector("text=ShowTrainingJobMetrics")
    commands = page.locator(".export pre").all_inner_texts()
    titles = page.locator(".export dt b").all_inner_texts()
    assert len(commands) == len(titles) == 7
    for title, command in zip(titles, commands, strict=True):
        assert "$JOBMETER_KEY" in command
        assert server.token not in command
        assert shlex.split(command)[0] == "curl"
        made = subprocess.run(
            ["sh", "-c", command.replace("curl ", "curl -sS --fail-with-body ", 1)],
            env={"PATH": "/usr/bin:/bin", "JOBMETER_KEY": server.token}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, (title, made.stdout, made.stderr)
        assert "worker-" in made.stdout or "gpuUtil" in made.stdout or "train-1" in made.stdout, title
    page.select_option("[aria-label='Metric of the commands']", "cpu.usage")
    wait_for_page(page, "!document.querySelector('.export').textContent.includes('GpuCoreUsage')")


def test_a_link_is_made_opened_by_a_stranger_and_ended(viewer, browser, server):
    page = viewer.open(TRAIN, ".chart canvas")
    page.click(".timebar >> text=Share")
    page.wait_for_selector("text=No link opens this job now.")
    page.select_option(".share select", label="1 hour")
    page.click("text=Make a link")
    page.wait_for_selector(".share li input")
    link = page.input_value(".share li input")
    stranger = browser.new_context()
    guest = stranger.new_page()
    guest.goto(link)
    guest.wait_for_selector(".chart canvas")
    assert guest.inner_text("header.job h1") == "llama"
    assert "link=" not in guest.url
    assert "One job, opened by a link" in guest.inner_text("header.top")
    assert guest.query_selector("nav") is None
    assert guest.query_selector(".timebar >> text=Share") is None
    guest.wait_for_selector(".log .line")
    guest.goto(f"{server.url}/#/jobs/failed-1")
    guest.wait_for_selector("header.job h1:has-text('llama')")
    page.click("[aria-label^='End it']")
    page.wait_for_selector("text=No link opens this job now.")
    guest.reload()
    guest.wait_for_selector("form.signin, main.signin")
    guest.goto(link)
    guest.reload()
    guest.wait_for_selector("main.signin")
    stranger.close()


def test_a_signed_in_user_opens_a_link_as_themselves(viewer, server):
    made = server.request("POST", "/jobs/train-1/links").json()
    page = viewer.open(f"open?link={made['token']}&job=train-1", "header.job h1")
    page.reload()
    page.wait_for_selector("header.job h1")
    assert page.query_selector("nav") is not None
    assert server.request("DELETE", f"/jobs/train-1/links/{made['id']}").status == 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_what_opens_fits_its_width_and_has_no_serious_fault(browser, server, width, scheme):
    viewer = Viewer(browser, server, width, bypass_csp=True, color_scheme=scheme)
    made = server.request("POST", "/jobs/train-1/links").json()
    page = viewer.open("?finding=any", ".rows .row[data-at]")
    page.click(".menu summary")
    check_view(page, "columns and findings")
    page = viewer.open(f"{TRAIN}?rank=worker-0", ".rank-panel table")
    page.click(".timebar >> text=Export")
    page.wait_for_selector("text=ShowTrainingJobMetrics")
    page.click(".log .line button.link")
    check_view(page, "rank, export and mark")
    page.click(".timebar >> text=Export")
    page.click(".timebar >> text=Share")
    page.wait_for_selector(".share li")
    check_view(page, "share")
    assert server.request("DELETE", f"/jobs/train-1/links/{made['id']}").status == 200
    viewer.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_phases_of_a_job_are_a_band_on_the_time_axis_with_their_lengths(browser, server, width):
    viewer = Viewer(browser, server, width)
    page = viewer.open(PHASED, ".phases .band i")
    texts = [text.strip() for text in page.locator(".phases li").all_inner_texts()]
    assert texts == [
        "queued 10 m 00 s",
        "image pull or prolog 2 m 00 s",
        "start 6 m 00 s",
        "training 30 m 00 s",
        "end 4 m 00 s",
    ]
    # The page begins at the start of the job: what was before it has its length, and no place on the axis.
    parts = page.locator(".phases .band i")
    classes = [part.get_attribute("class") for part in parts.all()]
    assert classes == ["phase-start", "phase-training", "phase-end"]
    band = page.locator(".phases .band").bounding_box()
    boxes = [part.bounding_box() for part in parts.all()]
    assert boxes[1]["x"] - band["x"] == pytest.approx(band["width"] * 6 / 40, abs=2)
    assert boxes[1]["width"] == pytest.approx(band["width"] * 30 / 40, abs=2)
    assert band["height"] <= 12
    check_view(page, width)
    viewer.close()


def test_the_band_follows_the_range_that_is_shown(viewer):
    page = viewer.open(PHASED, ".phases .band i")
    assert page.locator(".phases .band .phase-end").count() == 1
    page.click("button[aria-label='Zoom in']")
    wait_for_page(page, "document.querySelectorAll('.phases .band i').length === 1")
    width = page.evaluate("document.querySelector('.phases .band .phase-training').style.width")
    assert width == "100%"
    assert page.locator(".phases li").count() == 5


def test_a_job_of_which_no_phase_is_separate_has_no_band(viewer):
    with viewer.page.expect_response(lambda one: "/jobs/ended-1/phases" in one.url) as answer:
        page = viewer.open("jobs/ended-1", "header.job h1")
    assert set(answer.value.json()["totals"]) == {"unattributed"}
    page.wait_for_selector("#events li, #events .hint")
    assert page.locator(".phases").count() == 0

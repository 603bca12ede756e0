"""The page as people use it: Chromium on a real server with real jobs, at three widths.

It also says what has to stay true of every view: nothing from elsewhere, no text of a stranger that runs, no serious
fault of accessibility.
"""

import contextlib
import gzip
import http.client
import re
from pathlib import Path

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from jobmeter.server.pages import FOLDER, read_files
from tests.needs import needs
from tests.processes import run_cli, running
from tests.programs import find
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = {"wide": (1440, 900), "middle": (900, 1000), "phone": (390, 844)}
MOST_BYTES = 300_000
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
RANKS, SLOW = 16, 5


def seen(page, expression):
    """Wait until that is true on the page; its own policy forbids what Playwright would wait with."""
    wait_until(lambda: page.evaluate(expression), expression)


def facts(now):
    """A training job of 16 ranks of which one is slow, one that failed, and texts that would like to run."""
    start = now - 40 * MINUTE
    replicas = [
        {"name": f"worker-{rank}", "rank": rank, "node": f"node-{rank // 8}", "devices": [f"gpu{rank % 8}"]}
        for rank in range(RANKS)
    ]
    train = {"job_id": "train-1", "name": "llama", "type": "PyTorchJob", "state": "Running", "user": "lin"}
    failed = {"job_id": "failed-1", "name": EVIL, "state": "Failed", "error": EVIL, "start": start, "end": now - MINUTE}
    event = {"time": now - 2 * MINUTE, "job": "failed-1", "reason": EVIL, "message": EVIL, "level": "warning"}
    return {
        "jobs": [{**train, "start": start, "replicas": replicas}, {**failed, "labels": {"team": EVIL}, "user": EVIL}],
        "events": [event],
    }


def samples(now):
    """CSV, as `jobmeter import` reads it."""
    yield "job_id,replica,node,device,metric,time,value"
    for at in range(now - 40 * MINUTE, now, 15_000):
        for rank in range(RANKS):
            place = f"train-1,worker-{rank},node-{rank // 8}"
            yield f"{place},gpu{rank % 8},gpu.utilization,{at},{0.4 if rank == SLOW else 0.9}"
            yield f"{place},,cpu.usage,{at},{2 + rank / 10}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs("chromium")
    if not read_files(FOLDER):
        pytest.skip("the page is not built: make page")
    folder = tmp_path_factory.mktemp("page")
    with running(folder / "data", "--store", "memory://") as made:
        now = SystemClock().now_ms() // MINUTE * MINUTE
        assert made.request("POST", "/jobs", facts(now)).status == 200
        (folder / "samples.csv").write_text("\n".join(samples(now)) + "\n")
        done = run_cli("import", str(folder / "samples.csv"), "--server", made.url, "--key", made.token)
        assert done.returncode == 0, done.stderr
        lines = {"lines": [{"text": f"step {n} {EVIL}", "time": now - MINUTE + n} for n in range(5)]}
        assert made.request("POST", "/jobs/failed-1/logs", lines).status == 200
        yield made


@pytest.fixture(scope="module")
def chromium():
    needs("chromium")
    from playwright.sync_api import sync_playwright

    options = ["--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find("chromium"), args=options)
        yield browser
        browser.close()


class Viewer:
    """A tab that is signed in, with everything that went wrong in it."""

    def __init__(self, browser, server, width="wide", **options):
        size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
        self.context = browser.new_context(viewport=size, bypass_csp=options.pop("bypass_csp", False), **options)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"a script ran: {dialog.message}"))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.server = server
        code = server.request("POST", "/session/link").json()["code"]
        self.page.goto(f"{server.url}/#/open?code={code}")
        self.page.wait_for_selector("main h1")

    def open(self, place, wanted):
        self.page.goto(f"{self.server.url}/#/{place}")
        self.page.wait_for_selector(wanted)
        return self.page

    def close(self):
        self.context.close()
        assert self.problems == []
        assert self.hosts <= {self.server.url.split("/")[2]}


@pytest.fixture
def viewer(chromium, server):
    made = Viewer(chromium, server)
    yield made
    made.close()


def test_the_link_signs_in_once_and_leaves_no_trace_in_the_address(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    assert "code=" not in page.url
    (cookie,) = viewer.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""


def test_a_stranger_sees_how_to_sign_in_and_a_key_opens_it(chromium, server):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/#/jobs/train-1")
    page.wait_for_selector("form")
    page.fill("#token", "wrong")
    page.click("button[type=submit]")
    page.wait_for_selector("[role=alert]")
    page.fill("#token", server.admin["token"])
    page.click("button[type=submit]")
    page.wait_for_selector("header.job h1")
    page.click("text=Sign out")
    page.wait_for_selector("form")
    assert context.cookies() == []
    context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_fits_its_width_and_has_no_serious_fault(chromium, server, width):
    viewer = Viewer(chromium, server, width, bypass_csp=True)
    views = {
        "": ".rows .row[data-at]",
        "jobs/train-1": ".chart canvas",
        "jobs/failed-1": ".log .line",
        "nodes": "main table",
    }
    for place, wanted in views.items():
        page = viewer.open(place, wanted)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
        if not AXE.exists():
            continue
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}]
        assert serious == [], place
    viewer.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_have_enough_contrast(chromium, server, scheme):
    if not AXE.exists():
        pytest.skip("axe-core is not there: make page")
    viewer = Viewer(chromium, server, bypass_csp=True, color_scheme=scheme)
    page = viewer.open("jobs/train-1", ".chart canvas")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {runOnly: ['color-contrast']})")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    viewer.close()


def test_texts_of_strangers_stay_texts(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    assert EVIL in page.inner_text(".rows")
    page = viewer.open("jobs/failed-1", ".log .line")
    page.click("text=Command and labels")
    for part in ("header.job h1", ".error", ".labels", ".events", ".log"):
        assert EVIL in page.inner_text(part), part
    assert page.query_selector("main img, main script") is None


def test_the_list_is_searched_sorted_and_filtered_in_the_address(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    page.keyboard.press("/")
    page.keyboard.type("lla")
    seen(page, "location.hash.includes('q=lla')")
    seen(page, "document.querySelectorAll('.rows .row[data-at]').length === 1")
    assert "llama" in page.inner_text(".rows")
    page = viewer.open("?state=Failed", ".rows .row[data-at]")
    assert page.inner_text(".rows .c-state").strip() == "Failed"
    page.click("role=columnheader >> text=Job")
    seen(page, "location.hash.includes('sort=name')")
    page = viewer.open("?q=nothing-like-it", ".empty")
    assert "No job matches" in page.inner_text(".empty")


def test_the_list_shows_what_each_job_used(viewer):
    page = viewer.open("?q=train-1", ".spark-gpu svg path")
    assert re.search(r"\d\d\.\d %", page.inner_text(".spark-gpu"))


def test_the_keyboard_alone_goes_from_the_list_into_a_job(viewer):
    page = viewer.open("?sort=name&order=desc", ".rows .row[data-at] a")
    page.focus('.rows .row[data-at="0"] a')
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('[data-at]').dataset.at") == "1"
    page.keyboard.press("Enter")
    page.wait_for_selector("header.job h1")


def test_the_slow_rank_is_named_and_chosen(viewer):
    page = viewer.open("jobs/train-1", ".outliers button")
    assert page.inner_text(".outliers button").startswith(f"worker-{SLOW} 50 points below the median")
    page.click(".outliers button")
    page.wait_for_selector(f'.legend .name:text-is("worker-{SLOW}")')
    assert f"rank=worker-{SLOW}" in page.url
    assert f"worker-{SLOW} is" in (page.get_attribute(".heat canvas", "aria-label") or "")


def test_one_cursor_and_one_brush_for_all_charts(viewer):
    page = viewer.open("jobs/train-1", '.chart[data-metric="cpu.usage"] .u-over')
    first = page.locator('.chart[data-metric="gpu.utilization"] .u-over')
    first.scroll_into_view_if_needed()
    box = first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    seen(page, "document.querySelector('.chart[data-metric=\"cpu.usage\"] .when').textContent !== ''")
    times = page.locator(".chart .when").all_inner_texts()
    assert len({text.split()[-1] for text in times if text}) == 1
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=5)
    page.mouse.up()
    seen(page, "location.hash.includes('from=')")
    page.wait_for_selector(".timebar >> text=paused")
    page.click("text=Follow live")
    page.wait_for_selector(".timebar >> text=following live")


def test_a_running_job_is_followed_live(viewer, server):
    page = viewer.open("jobs/train-1", ".timebar .live-live")
    now = SystemClock().now_ms()
    places = (f"train-1,worker-{rank},node-{rank // 8},gpu{rank % 8}" for rank in range(RANKS))
    lines = ["job_id,replica,node,device,metric,time,value", *(f"{one},gpu.utilization,{now},0.123" for one in places)]
    (server.data.parent / "more.csv").write_text("\n".join(lines) + "\n")
    told = run_cli("import", str(server.data.parent / "more.csv"), "--server", server.url, "--key", server.token)
    assert told.returncode == 0
    seen(
        page,
        "document.querySelector('.chart[data-metric=\"gpu.utilization\"] .legend b').textContent.startsWith('12.3')",
    )
    done = {"job_id": "train-1", "state": "Succeeded", "end": now + 1}
    assert server.request("POST", "/jobs", done).status == 200
    page.wait_for_selector("header.job .state-succeeded")
    again = {"job_id": "train-1", "state": "Running", "end": None}
    assert server.request("POST", "/jobs", again).status == 200


def test_the_log_is_searched(viewer):
    page = viewer.open("jobs/failed-1", ".log .line")
    assert page.locator(".log .line").count() == 5
    page.fill("[aria-label='Search in the log']", "step 3")
    seen(page, "document.querySelectorAll('.log .line').length === 1")
    assert page.inner_text(".log mark") == "step 3"


def test_what_is_seen_is_taken_along(viewer, server):
    page = viewer.open("jobs/train-1", ".chart canvas")
    page.click("text=Export")
    assert f"{server.url}/api/jobmeter/v1/jobs/train-1/metrics?metric=gpu.utilization" in page.inner_text(".export pre")
    with page.expect_download() as csv:
        page.click("text=CSV of all charts")
    assert Path(csv.value.path()).read_text().startswith("metric,") or "time" in Path(csv.value.path()).read_text()[:80]
    with page.expect_download() as png:
        page.click("text=PNG of all charts")
    assert Path(png.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_job_that_is_none_says_so(viewer):
    page = viewer.open("jobs/none-such", ".notice")
    assert "There is no job none-such" in page.inner_text(".notice")


def test_a_server_that_stops_ends_what_is_looked_at_live(tmp_path):
    with running(tmp_path / "data", "--store", "memory://") as server:
        assert server.request("POST", "/jobs", {"job_id": "j1", "state": "Running"}).status == 200
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/jobmeter/v1/jobs/j1/live", headers={"Authorization": f"Bearer {server.token}"})
        with contextlib.closing(connection), connection.getresponse() as answer:
            told = [answer.readline() for _ in range(3)]
            assert told[0] == b"retry: 2000\n"
            assert b'"state":"Running"' in told[2]
            assert server.stop(seconds=20.0) == 0
            assert b"data" not in answer.read()


def test_the_page_is_light():
    files = read_files(FOLDER)
    if not files:
        pytest.skip("the page is not built: make page")
    assert sum(len(gzip.compress(file.forms[""], 9)) for file in files.values()) < MOST_BYTES
    assert all({"br", "gzip"} <= set(file.forms) for file in files.values())

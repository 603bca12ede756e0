"""Tests of the page in Chromium on a real server with real jobs, at three widths.

They also check invariants of every view: no foreign resource, no stored text that runs as a script, and no serious
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
from tests.e2e.page import (
    EVIL,
    RANKS,
    SLOW,
    WIDTHS,
    facts,
    import_samples,
    needs_built_page,
    needs_page,
    samples,
    wait_for_page,
)
from tests.support.browser import AXE, check_view
from tests.support.processes import run_cli, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
MOST_BYTES = 300_000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("page")
    with running(folder / "data") as made:
        now = SystemClock().now_ms() // MINUTE * MINUTE
        assert made.request("POST", "/jobs", facts(now)).status == 200
        import_samples(made, folder, samples(now))
        lines = {"lines": [{"text": f"step {n} {EVIL}", "time": now - MINUTE + n} for n in range(5)]}
        assert made.request("POST", "/jobs/failed-1/logs", lines).status == 200
        yield made


def test_the_link_signs_in_once_and_leaves_no_trace_in_the_address(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    assert "code=" not in page.url
    (cookie,) = viewer.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""


def test_a_stranger_sees_how_to_sign_in_and_a_key_opens_it(browser, server):
    context = browser.new_context()
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
    page.wait_for_selector("#token")
    assert context.cookies() == []
    context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_fits_its_width_and_has_no_serious_fault(viewer, width):
    viewer.look(width)
    views = {
        "": ".rows .row[data-at]",
        "jobs/train-1": ".chart canvas",
        "jobs/failed-1": ".log .line",
        "nodes": ".fleet .tile",
        "compare?job=train-1&job=failed-1": ".chart canvas",
    }
    for place, wanted in views.items():
        page = viewer.open(place, wanted)
        check_view(page, place)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_have_enough_contrast(viewer, scheme):
    if not AXE.exists():
        pytest.skip("axe-core is not there: make page")
    viewer.look("wide", scheme)
    page = viewer.open("jobs/train-1", ".chart canvas")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {runOnly: ['color-contrast']})")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


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
    wait_for_page(page, "location.hash.includes('q=lla')")
    wait_for_page(page, "document.querySelectorAll('.rows .row[data-at]').length === 1")
    assert "llama" in page.inner_text(".rows")
    page = viewer.open("?state=Failed", ".rows .row[data-at]")
    # The old rows stay until the answer to the new query is there.
    wait_for_page(
        page, "[...document.querySelectorAll('.rows .c-state')].map(one => one.textContent.trim()) == 'Failed'"
    )
    page.click("role=columnheader >> text=Job")
    wait_for_page(page, "location.hash.includes('sort=name')")
    page = viewer.open("?q=nothing-like-it", ".empty")
    assert "No job matches" in page.inner_text(".empty")


def test_the_list_shows_what_each_job_used(viewer):
    page = viewer.open("?q=train-1", ".spark-gpu svg path")
    assert re.search(r"\d\d\.\d %", page.inner_text(".spark-gpu"))


def test_the_curve_of_a_running_job_is_read_again_when_updates_were_missed(viewer, server, tmp_path):
    row = f"train-1,worker-0,node-0,,cpu.usage,{SystemClock().now_ms()},2"
    import_samples(server, tmp_path, ["job_id,replica,node,device,metric,time,value", row])
    page = viewer.open("?q=train-1", ".spark-gpu svg path")
    page.reload()  # without the rows of the list that was open before
    page.wait_for_selector(".spark-gpu svg path")
    with page.expect_request(lambda one: "/jobs/train-1/metrics" in one.url):
        page.evaluate("Date.now = ((now) => () => now() + 3_600_000)(Date.now)")


def test_the_keyboard_alone_goes_from_the_list_into_a_job(viewer):
    page = viewer.open("?sort=name&order=desc", ".rows .row[data-at] a")
    page.focus('.rows .row[data-at="0"] a')
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('[data-at]').dataset.at") == "1"
    page.keyboard.press("Enter")
    page.wait_for_selector("header.job h1")


def test_a_live_page_connects_again_when_what_it_may_see_changes_and_signs_out_with_its_key(browser, server):
    def policy(resource):
        statement = {"Effect": "Allow", "Action": "*", "Resource": resource}
        return {"policies": [{"name": "own", "document": {"Version": "1", "Statement": [statement]}}]}

    key = server.request("POST", "/keys", {"name": "viewer", **policy("*")}).json()
    bearer = {"Authorization": f"Bearer {key['token']}"}
    code = server.call("POST", "/api/jobmeter/v1/session/link", headers=bearer).json()["code"]
    context = browser.new_context()
    page = context.new_page()
    opened = []
    page.on("request", lambda request: opened.append(request.url) if request.url.endswith("/live/jobs") else None)
    page.goto(f"{server.url}/#/open?code={code}")
    page.wait_for_selector(".live.live-live")
    before = len(opened)
    assert server.request("PUT", f"/keys/{key['id']}/policies", policy("acs:*:*:*:job/train-1")).status == 200
    page.wait_for_selector(".live.live-lost")
    page.wait_for_selector(".live.live-live")
    assert len(opened) == before + 1
    assert server.request("DELETE", f"/keys/{key['id']}").status == 200
    page.wait_for_selector("main.signin")
    context.close()


def test_the_slow_rank_is_named_and_chosen(viewer):
    page = viewer.open("jobs/train-1", ".outliers button")
    assert page.inner_text(".outliers button").startswith(f"worker-{SLOW} computes at 40 %; the median is 90 %")
    page.click(".outliers button")
    page.wait_for_selector(f'.legend .name:text-is("worker-{SLOW}")')
    assert f"rank=worker-{SLOW}" in page.url
    assert f"worker-{SLOW} computes at 40 %" in (page.get_attribute(".heat canvas", "aria-label") or "")


def test_a_finding_begins_with_a_sentence_and_the_heat_map_names_the_same_rank(viewer, server):
    [one] = server.call("GET", "/api/jobmeter/v1/jobs/train-1/findings").json()
    place = f"worker-{SLOW} (node-0, gpu{SLOW})"
    assert (one["rule"], one["sentence"]) == ("straggler_gpu", f"{place} computes at 40 %; the median is 90 %")
    page = viewer.open("jobs/train-1", ".finding[data-rule=straggler_gpu]")
    assert page.inner_text(".finding b") == one["sentence"]
    page.wait_for_selector(".outliers button")
    assert page.inner_text(".outliers").startswith(f"worker-{SLOW} ")
    page.select_option("select[aria-label='Metric of the heat map']", "cpu.usage")
    page.wait_for_selector(f".outliers button:has-text('worker-{SLOW}')")
    assert page.locator(".outliers button").count() == 1, "no rank that no finding names"


def test_light_and_dark_are_chosen_by_a_button_and_drawn_alike(viewer):
    page = viewer.open("jobs/train-1", ".outliers button")
    ground = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(ground)
    page.click(".who button[aria-label$='colours']")
    wait_for_page(page, f"{ground} !== {first!r}")
    assert {first, page.evaluate(ground)} == {"rgb(255, 255, 255)", "rgb(16, 20, 24)"}
    page.click(".who button[aria-label$='colours']")
    wait_for_page(page, f"{ground} === {first!r}")


def test_one_cursor_and_one_brush_for_all_charts(viewer):
    page = viewer.open("jobs/train-1", '.chart[data-metric="cpu.usage"] .u-over')
    first = page.locator('.chart[data-metric="gpu.utilization"] .u-over')
    first.scroll_into_view_if_needed()
    box = wait_until(first.bounding_box)  # None while a fresh answer redraws the chart
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    wait_for_page(page, "document.querySelector('.chart[data-metric=\"cpu.usage\"] .when').textContent !== ''")
    times = page.locator(".chart .when").all_inner_texts()
    assert len({text.split()[-1] for text in times if text}) == 1
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=5)
    page.mouse.up()
    wait_for_page(page, "location.hash.includes('from=')")
    page.wait_for_selector(".timebar >> text=paused")
    page.click("text=Follow live")
    page.wait_for_selector(".timebar >> text=following live")


def test_a_running_job_is_followed_live(viewer, server):
    page = viewer.open("jobs/train-1", ".timebar .live-live")
    now = SystemClock().now_ms()
    places = (f"train-1,worker-{rank},node-{rank // 8},gpu{rank % 8}" for rank in range(RANKS))
    lines = ["job_id,replica,node,device,metric,time,value", *(f"{one},gpu.utilization,{now},0.123" for one in places)]
    (server.data.parent / "more.csv").write_text("\n".join(lines) + "\n")
    answered = run_cli("import", str(server.data.parent / "more.csv"), "--server", server.url, "--key", server.token)
    assert answered.returncode == 0
    wait_for_page(
        page,
        "document.querySelector('.chart[data-metric=\"gpu.utilization\"] .legend b').textContent.startsWith('12.3')",
    )
    done = {"job_id": "train-1", "state": "Succeeded", "end": now + 1}
    assert server.request("POST", "/jobs", done).status == 200
    page.wait_for_selector("header.job .state-succeeded")
    again = {"job_id": "train-1", "state": "Running", "end": None}
    assert server.request("POST", "/jobs", again).status == 200


def test_the_log_is_searched(viewer):
    page = viewer.open("jobs/failed-1", "#logs .line")
    assert page.locator("#logs .line").count() == 5
    page.fill("[aria-label='Search in the log']", "step 3")
    wait_for_page(page, "document.querySelectorAll('#logs .line').length === 1")
    assert page.inner_text("#logs mark") == "step 3"
    # Searches match whole words and patterns of them, while the text filter above matches any part.
    page.fill("[aria-label='Search in the log']", "st?p 3 | nothing*")
    wait_for_page(page, "document.querySelectorAll('#logs .line').length === 1")
    wait_for_page(page, "document.querySelectorAll('#logs mark').length === 0")
    page.fill("[aria-label='Search in the log']", "*")
    wait_for_page(page, "document.querySelectorAll('#logs .line').length === 5")
    page.fill("[aria-label='Search in the log']", "severity>=loud")
    page.wait_for_selector("#logs .problem:has-text('level>=warning')")


def test_what_is_shown_is_taken_along(viewer, server):
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
    with running(tmp_path / "data") as server:
        assert server.request("POST", "/jobs", {"job_id": "j1", "state": "Running"}).status == 200
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/jobmeter/v1/jobs/j1/live", headers={"Authorization": f"Bearer {server.token}"})
        with contextlib.closing(connection), connection.getresponse() as answer:
            answered = [answer.readline() for _ in range(3)]
            assert answered[0] == b"retry: 2000\n"
            assert b'"state":"Running"' in answered[2]
            assert server.stop(seconds=20.0) == 0
            assert b"data" not in answer.read()


def test_the_page_is_light():
    needs_built_page()
    files = read_files(FOLDER)
    assert sum(len(gzip.compress(file.forms[""], 9)) for file in files.values()) < MOST_BYTES
    assert all({"br", "gzip"} <= set(file.forms) for file in files.values())

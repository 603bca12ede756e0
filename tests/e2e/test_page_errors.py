"""Tests of the page's errors: no server, an expired session, a query beyond the limits, a job without permission."""

import re

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from tests.e2e.page import Viewer, facts, import_samples, needs_page, samples, wait_for_page
from tests.support.browser import check_view
from tests.support.processes import ServerProcess

pytestmark = pytest.mark.slow
TRAIN = "jobs/train-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    folder = tmp_path_factory.mktemp("page-errors")
    made = ServerProcess(folder / "data").start()
    now = SystemClock().now_ms() // MINUTE * MINUTE
    assert made.request("POST", "/jobs", facts(now)).status == 200
    import_samples(made, folder, samples(now))
    yield made
    made.kill()


@pytest.fixture
def viewer(browser, server):
    made = Viewer(browser, server, bypass_csp=True)
    yield made
    made.close()


def away(page):
    """Refuse every connection to the server."""
    page.context.set_offline(True)


def back(page):
    page.context.set_offline(False)


@pytest.mark.parametrize(("place", "wanted"), [(TRAIN, ".chart canvas"), ("", ".rows .row[data-at]")])
def test_a_server_that_is_away_is_named_on_every_page_until_it_is_back(viewer, place, wanted):
    page = viewer.open(place, wanted)
    away(page)
    page.evaluate("location.hash = '#/admin/keys'")
    page.wait_for_selector(".away[role=alert]")
    text = page.inner_text(".away")
    assert re.search(r"The server has not answered since \d\d:\d\d:\d\d\. This page shows values from then", text)
    assert "reconnects automatically" in text
    page.wait_for_selector(".notice.problem:has-text('The server does not answer.')")
    check_view(page, "away")
    back(page)
    page.wait_for_selector(".away", state="detached")
    # The page repeats failed requests without a click.
    page.wait_for_selector("#keys table")


def test_figures_that_stand_still_are_named_as_such(viewer):
    page = viewer.open(TRAIN, ".timebar .live-live")
    page.route("**/live?*", lambda route: route.fulfill(status=429, json={"error": {"code": "throttled"}}))
    page.click("role=button[name='15 m']")
    page.evaluate("location.hash = '#/'")
    page.wait_for_selector(".rows .row[data-at]")
    page.evaluate("location.hash = '#/jobs/train-1'")
    page.wait_for_selector(".timebar .live-lost")
    page.wait_for_selector(".away:has-text('Live updates stopped at')")
    page.unroute("**/live?*")
    page.wait_for_selector(".timebar .live-live")
    page.wait_for_selector(".away", state="detached")


def test_a_session_that_is_over_says_so_and_signing_in_goes_on_where_one_was(viewer, server):
    page = viewer.open(f"{TRAIN}?heat=cpu.usage", ".chart canvas")
    page.context.clear_cookies()
    # The page may notice the return of the server before or during the click.
    page.evaluate("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Export')?.click()")
    page.wait_for_selector("main.signin [role=alert]")
    assert "Your session has ended. Sign in again" in page.inner_text("[role=alert]")
    assert page.query_selector("article.job") is None
    check_view(page, "session over")
    page.fill("#token", server.token)
    page.click("button[type=submit]")
    page.wait_for_selector("header.job h1")
    wait_for_page(page, "document.querySelector('[aria-label=\"Metric of the heat map\"]')?.value === 'cpu.usage'")


def test_signing_out_shows_no_error(viewer):
    page = viewer.open(TRAIN, ".chart canvas")
    page.click("text=Sign out")
    page.wait_for_selector("main.signin")
    assert page.query_selector("[role=alert]") is None


def test_a_job_that_is_none_and_one_that_the_key_must_not_see_say_what_to_do_and_not_which_it_is(browser, server):
    made = server.request("POST", "/keys", {"name": "other", "role": "reader", "project": "other"}).json()
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto(f"{server.url}/#/jobs/train-1")
    page.fill("#token", made["token"])
    page.click("button[type=submit]")
    texts = []
    for name in ("train-1", "none-such"):
        page.goto(f"{server.url}/#/jobs/{name}")
        page.wait_for_selector(f".notice:has-text('There is no job {name}, or your key may not see it')")
        texts.append(page.inner_text(".notice").replace(name, "JOB"))
    assert texts[0] == texts[1]
    assert "sign in with a key of that project" in texts[0]
    check_view(page, "no job")
    page.click("text=Search all jobs for it")
    page.wait_for_selector("text=No job matches")
    context.close()


def test_a_question_that_is_refused_is_sent_again_and_shows_no_old_figures(viewer):
    page = viewer.open(TRAIN, '.chart[data-metric="cpu.usage"] canvas')
    refusal = {"error": {"code": "throttled", "message": "too many questions"}}
    refused = []

    def refuse(route):
        refused.append(route.request.url)
        route.fulfill(status=429, json=refusal, headers={"Retry-After": "1"})

    page.route("**/jobs/train-1/metrics?*", refuse)
    now = SystemClock().now_ms()
    page.goto(f"{viewer.server.url}/#/{TRAIN}?from={now - 30 * MINUTE}&to={now - 10 * MINUTE}")
    page.wait_for_selector(".notice.problem:has-text('Too many questions.')")
    assert "tries again in 1 s" in page.inner_text(".notice.problem")
    page.wait_for_selector("text=The server has not answered yet.")
    page.wait_for_selector(".finding[data-rule=straggler_gpu]")  # findings need no figures
    assert page.query_selector(".chart canvas") is None
    check_view(page, "refused")
    page.unroute("**/jobs/train-1/metrics?*")
    page.wait_for_selector('.chart[data-metric="cpu.usage"] canvas')
    page.wait_for_selector(".notice.problem", state="detached")
    assert refused


def test_a_search_that_is_refused_shows_no_rows_of_another(viewer):
    page = viewer.open("", ".rows .row[data-at]")
    fails = {"error": {"code": "unavailable", "message": "the registry is away"}}
    page.route("**/jobs?*name=lla*", lambda route: route.fulfill(status=503, json=fails))
    page.fill("input[type=search]", "lla")
    page.wait_for_selector(".notice.problem:has-text('The registry is away.')")
    wait_for_page(page, "document.querySelectorAll('.rows .row').length === 0")
    assert page.query_selector(".figures b") is None or "match" not in page.inner_text(".figures")
    page.unroute("**/jobs?*name=lla*")
    page.click("text=Try again")
    wait_for_page(page, "document.querySelectorAll('.rows .row[data-at]').length === 1")

"""Tests of exports of a job's page: pictures, commands, and links for other people."""

import shlex
import subprocess

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from tests.e2e.page import LOOKS, needs_page, training_server, wait_for_page
from tests.support.browser import check_view
from tests.support.needs import needs

pytestmark = pytest.mark.slow
TRAIN = "jobs/train-1"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    with training_server(tmp_path_factory.mktemp("page")) as made:
        yield made


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


def test_a_command_is_copied_by_a_page_without_https(viewer):
    page = viewer.open(TRAIN, ".chart canvas")
    # Browsers offer no clipboard API to remote pages without TLS.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.click("text=Export")
    page.click("[aria-label='Copy curl: Jobmeter, all charts']")
    page.wait_for_selector("[aria-label='Copied: Jobmeter, all charts']")
    page.keyboard.press("Escape")
    page.focus("#logs input[type=search]")
    page.keyboard.press("Control+v")
    assert page.input_value("#logs input[type=search]").startswith('curl -H "Authorization: Bearer $JOBMETER_KEY"')


def test_a_link_is_made_opened_by_a_stranger_and_ended(viewer, browser, server):
    page = viewer.open(TRAIN, ".chart canvas")
    page.click(".timebar >> text=Share")
    page.wait_for_selector("text=There are no links to this job.")
    page.select_option(".share select", label="1 hour")
    page.click("text=Create link")
    page.wait_for_selector(".share li input")
    link = page.input_value(".share li input")
    stranger = browser.new_context()
    guest = stranger.new_page()
    guest.goto(link)
    guest.wait_for_selector(".chart canvas")
    assert guest.inner_text("header.job h1") == "llama"
    assert "link=" not in guest.url
    assert "Shared job, link valid until" in guest.inner_text("header.top")
    assert guest.query_selector("nav") is None
    assert guest.query_selector(".timebar >> text=Share") is None
    guest.wait_for_selector(".log .line")
    guest.goto(f"{server.url}/#/jobs/failed-1")
    guest.wait_for_selector("header.job h1:has-text('llama')")
    page.click("[aria-label^='Revoke']")
    page.wait_for_selector("text=There are no links to this job.")
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


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_what_opens_fits_its_width_and_has_no_serious_fault(viewer, server, width, scheme):
    viewer.look(width, scheme)
    made = server.request("POST", "/jobs/train-1/links").json()
    page = viewer.open("?finding=any", ".rows .row[data-at]")
    page.click(".menu summary")
    check_view(page, "columns and findings")
    page = viewer.open(f"{TRAIN}?rank=worker-0", ".rank-panel table")
    page.click(".log .line button.link")
    page.click(".timebar >> text=Export")
    page.wait_for_selector("text=ShowTrainingJobMetrics")
    check_view(page, "rank, export and mark")
    page.keyboard.press("Escape")
    page.click(".timebar >> text=Share")
    page.wait_for_selector(".share li")
    check_view(page, "share")
    assert server.request("DELETE", f"/jobs/train-1/links/{made['id']}").status == 200


@pytest.mark.parametrize("name", ["Export", "Share"])
def test_a_panel_lies_over_the_page_and_escape_closes_it(viewer, name):
    page = viewer.open(TRAIN, ".chart canvas")
    bar = page.locator(".timebar").bounding_box()["height"]
    page.click(f".timebar >> text={name}")
    page.wait_for_selector("dialog[open]")
    assert page.locator(".timebar").bounding_box()["height"] == bar, "the bar that stays in sight does not grow"
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert page.evaluate("document.activeElement.textContent") == name
    page.click(f".timebar >> text={name}")
    page.click("dialog >> text=Close")
    page.wait_for_selector("dialog", state="detached")
    page.click(f".timebar >> text={name}")
    page.wait_for_selector("dialog[open]")
    page.mouse.click(5, 5)
    page.wait_for_selector("dialog", state="detached")

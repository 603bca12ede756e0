"""Tests of empty views: each fits the width, has no serious fault of accessibility, and says what to do next."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from jobmeter.model.time import HOUR, SystemClock
from jobmeter.ship import sinks
from jobmeter.ship.registry import KINDS
from jobmeter.ship.sink import SinkSettings
from tests.e2e.page import LOOKS, Viewer, needs_page
from tests.support.browser import check_view
from tests.support.processes import running

pytestmark = pytest.mark.slow
VIEWS = {
    "": ".empty:has-text('jobmeter run')",
    "nodes": ".notice:has-text('jobmeter agent')",
    "use": "main",
    "compare": ".notice:has-text('jobmeter compare')",
    "admin/usage": "main",
    "admin/keys": "#keys .hint:has-text('Only your own key so far')",
    "admin/retention": "p:has-text('No projects yet')",
    "admin/shippers": "#shippers .notice:has-text('There are no log shippers')",
}
BARE = {
    "jobs/bare": "#logs p:has-text('No log lines are stored')",
    "nodes/quiet": "#syslog p:has-text('No log lines are stored')",
    "?finding=any": ".empty:has-text('No job matches')",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    needs_page()
    with running(tmp_path_factory.mktemp("page-empty") / "data") as made:
        yield made


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Run a server with a job and a node without any measurements."""
    needs_page()
    with running(tmp_path_factory.mktemp("page-bare") / "data") as made:
        now = SystemClock().now_ms()
        facts = {
            "jobs": [{"job_id": "bare", "state": "Succeeded", "start": now - HOUR, "end": now - HOUR // 2}],
            "nodes": [{"name": "quiet"}],
        }
        assert made.request("POST", "/jobs", facts).status == 200
        yield made


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_empty_view_fits_its_width_and_has_no_serious_fault(browser, server, bare, width, scheme):
    for of, views in ((server, VIEWS), (bare, BARE)):
        viewer = Viewer(browser, of, width, bypass_csp=True, color_scheme=scheme)
        for place, wanted in views.items():
            page = viewer.open(place, wanted)
            check_view(page, f"{place} {scheme}")
        viewer.close()


def test_a_job_without_samples_says_what_is_missing(browser, bare):
    viewer = Viewer(browser, bare)
    page = viewer.open("jobs/bare", "#logs p")
    page.wait_for_selector("p.findings:has-text('it is unknown if the job had problems')")
    text = page.inner_text("main")
    for part in ("No measurements of this job", "No log lines are stored"):
        assert part in text
    assert "No findings" not in text
    viewer.close()


def test_the_empty_list_of_shippers_names_every_kind_of_sink_and_a_file_that_works(browser, server):
    viewer = Viewer(browser, server)
    page = viewer.open("admin/shippers", "#shippers .notice")
    files = {file.stem for file in Path(sinks.__file__).parent.glob("*.py")} - {"__init__"}
    assert page.locator(".kinds dt").all_inner_texts() == sorted(files) == sorted(KINDS)
    given = tomllib.loads(page.inner_text("#shippers pre >> nth=0"))
    (sink,) = msgspec.convert(given["sink"], list[SinkSettings])
    assert (sink.project, sink.logstore, sink.kind) == ("train", "lines", "file")
    assert f"--to {sink.project}/{sink.logstore}" in page.inner_text("#shippers pre >> nth=-1")
    viewer.close()

"""Signed-in tab of the page, and the jobs that the page tests use."""

import runpy
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobmeter.model.time import MINUTE, SystemClock
from tests.support.needs import needs
from tests.support.processes import run_cli, running
from tests.support.waiting import wait_until

BUILDER = Path(__file__).parents[2] / "web" / "build.py"
WIDTHS = {"wide": (1440, 900), "middle": (900, 1000), "phone": (360, 780)}
LOOKS = [("wide", "light"), ("middle", "light"), ("phone", "dark")]
"""Width and colour scheme of a tab. Layouts depend on the width alone, contrasts on the scheme alone."""
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
RANKS, SLOW = 16, 5


def wait_for_page(page, expression):
    """Wait until a condition holds on the page. Playwright's own wait needs a script that the page's policy forbids."""
    wait_until(lambda: page.evaluate(expression), expression)


def facts(now):
    """Return records of a training job with 16 ranks, one of them slow; a failed job; and texts with script code."""
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
    """Yield samples as CSV for `jobmeter import`."""
    yield "job_id,replica,node,device,metric,time,value"
    for at in range(now - 40 * MINUTE, now, 15_000):
        for rank in range(RANKS):
            place = f"train-1,worker-{rank},node-{rank // 8}"
            yield f"{place},gpu{rank % 8},gpu.utilization,{at},{0.4 if rank == SLOW else 0.9}"
            yield f"{place},,cpu.usage,{at},{2 + rank / 10}"


def needs_page():
    """Skip without a browser. ``needs_built_page`` checks the page."""
    needs("chromium")
    needs_built_page()


def needs_built_page():
    """Fail if the built page differs from its source. Skip if this machine cannot build it."""
    builder = runpy.run_path(str(BUILDER))
    if builder["is_current"]():
        return
    if builder["has_tools"]():
        pytest.fail("The page is not built from its source as it is now. `make page` says why.")
    pytest.skip("the page is not built, as Node.js or its packages are missing: make page")


def import_samples(server, folder, lines):
    """Import CSV lines with the command line."""
    (folder / "samples.csv").write_text("\n".join(lines) + "\n")
    done = run_cli("import", str(folder / "samples.csv"), "--server", server.url, "--key", server.token)
    assert done.returncode == 0, done.stderr


@contextmanager
def training_server(folder):
    """Run a server with the jobs above, ten log lines of the training job, and two of its events."""
    with running(folder / "data") as made:
        now = SystemClock().now_ms() // MINUTE * MINUTE
        assert made.request("POST", "/jobs", facts(now)).status == 200
        import_samples(made, folder, samples(now))
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


def _size(width):
    return dict(zip(("width", "height"), WIDTHS[width], strict=True))


@contextmanager
def signed_in(browser, server, width="wide", **options):
    """Open a signed-in browser session for the tabs of several tests."""
    viewer = Viewer(browser, server, width, **options)
    viewer.page.close()
    yield viewer.context
    viewer.close()


class Viewer:
    """Signed-in tab that records all errors."""

    def __init__(self, browser, server, width="wide", session=None, **options):
        """Open an empty tab in ``session``, or a signed-in tab in a new session."""
        self.session = session
        self.context = session or browser.new_context(viewport=_size(width), **options)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.hosts: set[str] = set()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"a script ran: {dialog.message}"))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.server = server
        if session is None:
            code = server.request("POST", "/session/link").json()["code"]
            self.page.goto(f"{server.url}/#/open?code={code}")
            self.page.wait_for_selector("main h1")

    def look(self, width, scheme="light"):
        """Set a width of ``WIDTHS`` and a colour scheme."""
        self.page.set_viewport_size(_size(width))
        self.page.emulate_media(color_scheme=scheme)

    def open(self, place, wanted):
        self.page.goto(f"{self.server.url}/#/{place}")
        return self.see(wanted)

    def see(self, wanted):
        """Wait for an element. Scroll to a chart, because the page draws charts only near the visible part."""
        around = wanted.removesuffix(" canvas")
        self.page.wait_for_selector(around)
        if around != wanted:
            wait_until(lambda: self._drawn(around, wanted), wanted)
        self.page.wait_for_selector(wanted)
        return self.page

    def _drawn(self, around, wanted):
        """Scroll to the chart and return it if it is drawn.

        Content that appears above it moves it out of sight again.
        """
        self.page.evaluate("one => document.querySelector(one)?.scrollIntoView({ block: 'nearest' })", around)
        return self.page.query_selector(wanted)

    def close(self):
        if self.session is None:
            self.context.close()
        else:
            self.page.evaluate("localStorage.clear()")
            self.page.close()
        assert self.problems == [], self.problems
        assert self.hosts <= {self.server.url.split("/")[2]}

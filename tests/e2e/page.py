"""A tab of the page that is signed in, and the jobs that the tests of the page look at."""

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
"""A width and a colour scheme: layouts depend on the width alone, contrasts on the scheme alone."""
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
RANKS, SLOW = 16, 5


def wait_for_page(page, expression):
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


def needs_page():
    """Skip where there is no browser. For the page itself see ``needs_built_page``."""
    needs("chromium")
    needs_built_page()


def needs_built_page():
    """Fail where the page is not that of its source; skip where this machine has nothing to build it with."""
    builder = runpy.run_path(str(BUILDER))
    if builder["is_current"]():
        return
    if builder["has_tools"]():
        pytest.fail("The page is not built from its source as it is now. `make page` says why.")
    pytest.skip("the page is not built, as Node.js or its packages are missing: make page")


def import_samples(server, folder, lines):
    """Import lines of CSV with the command line."""
    (folder / "samples.csv").write_text("\n".join(lines) + "\n")
    done = run_cli("import", str(folder / "samples.csv"), "--server", server.url, "--key", server.token)
    assert done.returncode == 0, done.stderr


@contextmanager
def training_server(folder):
    """A server with the jobs above, ten lines of the training job's log, and two of its events."""
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
    """Open a session of the browser that is signed in, for the tabs of several tests."""
    viewer = Viewer(browser, server, width, **options)
    viewer.page.close()
    yield viewer.context
    viewer.close()


class Viewer:
    """A tab that is signed in, with everything that went wrong in it."""

    def __init__(self, browser, server, width="wide", session=None, **options):
        """Open a tab in ``session``, which shows nothing yet, or else in a session of its own."""
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
        """Give the tab one of the ``WIDTHS`` and a colour scheme."""
        self.page.set_viewport_size(_size(width))
        self.page.emulate_media(color_scheme=scheme)

    def open(self, place, wanted):
        self.page.goto(f"{self.server.url}/#/{place}")
        return self.see(wanted)

    def see(self, wanted):
        """Wait for an element, and go where it is: a chart is drawn where it is near what is in sight."""
        around = wanted.removesuffix(" canvas")
        self.page.wait_for_selector(around)
        if around != wanted:
            wait_until(lambda: self._drawn(around, wanted), wanted)
        self.page.wait_for_selector(wanted)
        return self.page

    def _drawn(self, around, wanted):
        """Whether it is drawn, after going there: what comes later above it moves it out of sight again."""
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

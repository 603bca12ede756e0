"""Chromium on the page: opening a job, zooming, pointing and scrolling, with its own trace of each."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from benchmarks.page.trace import CATEGORIES, Frames, Tasks, frames, mark, tasks
from benchmarks.processes import cpu_seconds
from jobmeter.examples.server import OwnServer

_WINDOW = "--window-size=1440,987"
"""With the browser's own bar, so that a page has 1440 by 900 pixels.

A viewport that Playwright emulates would be larger than what the browser shows: a frame in which only the rest of it
changed would count as dropped.
"""
CHART = "figure.chart canvas"
FIRST_CHART = "first-chart"
_BEGIN = "begin"
HOVERS, ZOOMS = 240, 3
EMPTY = """
<style>figure { height: 9000px; margin: 200px 40px; } canvas { background: #eee; }
i { position: fixed; left: 0; top: 0; width: 1px; height: 150px; background: #000; will-change: transform; }</style>
<figure class="chart"><canvas width="460" height="150"></canvas><i></i></figure>
<script>addEventListener("pointermove", (event) => {
  document.querySelector("i").style.transform = `translate(${event.clientX}px, 200px)`;
});</script>"""
"""A page with nothing on it but a line that follows the pointer: frames that it drops no page could show here."""
_WATCH = f"""(() => {{
  const watch = new MutationObserver(() => {{
    if (!document.querySelector("{CHART}")) return;
    watch.disconnect();
    requestAnimationFrame(() => setTimeout(() => performance.mark("{FIRST_CHART}")));
  }});
  watch.observe(document, {{ childList: true, subtree: true }});
}})()"""
"""Marks the moment after the frame in which the first chart was drawn."""


@dataclass(frozen=True, slots=True)
class Opened:
    """How long the first chart took, and what of it was CPU time of the page's thread and of the server; milliseconds.

    ``asked`` is how many questions of the API were begun before it.
    """

    ms: float
    page_ms: float
    server_ms: float
    asked: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Frames shown and dropped while something moved."""

    frames: Frames
    tasks: Tasks


class Visitor:
    """Somebody who is signed in. Each tab begins without a cache."""

    def __init__(self, browser: Browser, server: OwnServer) -> None:
        self._browser = browser
        self._server = server
        context = browser.new_context(no_viewport=True)
        page = context.new_page()
        page.goto(server.api.create_page_link(""))
        page.wait_for_selector("main h1")
        self._session: Any = context.storage_state()
        context.close()

    @contextmanager
    def _tab(self) -> Iterator[Page]:
        context: BrowserContext = self._browser.new_context(no_viewport=True, storage_state=self._session)
        context.add_init_script(_WATCH)
        try:
            yield context.new_page()
        finally:
            context.close()

    def open(self, place: str) -> Opened:
        """Open a job's page as the first thing that this browser loads."""
        with self._tab() as page:
            self._browser.start_tracing(page=page, categories=list(CATEGORIES))
            before = cpu_seconds(self._server.pid)
            page.goto(f"{self._server.api.transport.server}/{place}", wait_until="commit")
            ms = _until(page, f"performance.getEntriesByName('{FIRST_CHART}')[0]?.startTime")
            server_ms = (cpu_seconds(self._server.pid) - before) * 1000
            asked = page.evaluate(
                "(ms) => performance.getEntriesByType('resource')"
                ".filter((one) => one.name.includes('/api/') && one.startTime < ms).length",
                ms,
            )
            events = json.loads(self._browser.stop_tracing())["traceEvents"]
            end = mark(events, FIRST_CHART)
            return Opened(ms, tasks(events, end, end["ts"] - ms * 1000, end["ts"]).total, server_ms, asked)

    def move(self, place: str, ready: str, act: Callable[[Page], None]) -> tuple[Moved, Moved]:
        """Do something on a page that is there, and rests; then the same on the empty page."""
        with self._tab() as page:
            page.goto(f"{self._server.api.transport.server}/{place}")
            page.wait_for_selector(ready)
            page.wait_for_timeout(3_000)
            found = self._traced(page, act)
        with self._tab() as page:
            page.set_content(EMPTY)
            page.wait_for_timeout(1_000)
            return found, self._traced(page, act)

    def _traced(self, page: Page, act: Callable[[Page], None]) -> Moved:
        self._browser.start_tracing(page=page, categories=list(CATEGORIES))
        page.evaluate(f"performance.mark('{_BEGIN}')")
        act(page)
        page.wait_for_timeout(300)
        events = json.loads(self._browser.stop_tracing())["traceEvents"]
        begin = mark(events, _BEGIN)
        return Moved(frames(events, begin), tasks(events, begin, begin["ts"]))

    def live_address(self, place: str) -> str:
        """What the page at that place follows."""
        with self._tab() as page, page.expect_request(lambda one: "/live?" in one.url) as found:
            page.goto(f"{self._server.api.transport.server}/{place}")
        parts = urlsplit(found.value.url)
        assert parse_qs(parts.query)["metric"]
        return f"{parts.path}?{parts.query}"


@contextmanager
def visiting(server: OwnServer) -> Iterator[Visitor]:
    """A visitor in a browser of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu", _WINDOW])
        try:
            yield Visitor(browser, server)
        finally:
            browser.close()


def hover(page: Page) -> None:
    """The pointer goes to and fro over a chart."""
    chart = page.locator(CHART).first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box
    for step in range(HOVERS):
        part = abs((step % 120) / 60 - 1)
        page.mouse.move(box["x"] + 80 + part * (box["width"] - 100), box["y"] + box["height"] / 2)
        page.wait_for_timeout(8)


def zoom(page: Page) -> None:
    """Pull across a chart, look, go back to the whole; some times."""
    for _ in range(ZOOMS):
        chart = page.locator(CHART).first
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box
        across = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.4, across)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.8, across, steps=20)
        page.mouse.up()
        page.wait_for_timeout(1_000)
        page.evaluate("document.querySelector('.timebar button.primary')?.click()")
        page.wait_for_timeout(1_000)


def scroll(page: Page) -> None:
    """Down a long list and up again, 6,000 pixels a second, as with a wheel that is turned fast."""
    session = page.context.new_cdp_session(page)
    for distance in (-24_000, 12_000):
        gesture = {"x": 700, "y": 500, "yDistance": distance, "speed": 6_000, "gestureSourceType": "mouse"}
        session.send("Input.synthesizeScrollGesture", gesture)


def _until(page: Page, expression: str) -> float:
    """The number that an expression has on the page at last; the page's policy forbids Playwright's own waiting."""
    while (value := page.evaluate(expression)) is None:
        page.wait_for_timeout(10)
    return float(value)

"""Chromium on the page: opening a job, zooming, pointing and scrolling, each recorded in the browser's trace."""

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
"""Size of the browser's window, which leaves 1440 by 900 pixels for the page below the toolbar.

A viewport that Playwright emulates would be larger than the visible part of the window. A frame that changes only the
invisible part would count as dropped.
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
"""Page that holds only a line that follows the pointer. The frames that it drops are due to the machine."""
_WATCH = f"""(() => {{
  const watch = new MutationObserver(() => {{
    if (!document.querySelector("{CHART}")) return;
    watch.disconnect();
    requestAnimationFrame(() => setTimeout(() => performance.mark("{FIRST_CHART}")));
  }});
  watch.observe(document, {{ childList: true, subtree: true }});
}})()"""
"""Script that marks the time after the frame in which the first chart was drawn."""


@dataclass(frozen=True, slots=True)
class Opened:
    """Times in milliseconds until the first chart: elapsed, CPU time of the page's main thread, CPU time of the server.

    ``asked`` is the number of API requests that began before the first chart.
    """

    ms: float
    page_ms: float
    server_ms: float
    asked: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Frames and tasks of a page during a movement."""

    frames: Frames
    tasks: Tasks


class Visitor:
    """Visitor who is signed in. Each tab starts with an empty cache."""

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
        """Open a page in a new tab with an empty cache, and measure the time to its first chart."""
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
        """Run ``act`` on a page and then on the empty page, and return the measurements of both.

        The page is left alone for three seconds after ``ready``, a selector, appears.
        """
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
        """Return path and query of the live updates that the page at ``place`` requests."""
        with self._tab() as page, page.expect_request(lambda one: "/live?" in one.url) as found:
            page.goto(f"{self._server.api.transport.server}/{place}")
        parts = urlsplit(found.value.url)
        assert parse_qs(parts.query)["metric"]
        return f"{parts.path}?{parts.query}"


@contextmanager
def visiting(server: OwnServer) -> Iterator[Visitor]:
    """Start a browser and yield a visitor in it. The browser ends with the context."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu", _WINDOW])
        try:
            yield Visitor(browser, server)
        finally:
            browser.close()


def hover(page: Page) -> None:
    """Move the pointer back and forth over a chart, ``HOVERS`` times."""
    chart = page.locator(CHART).first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box
    for step in range(HOVERS):
        part = abs((step % 120) / 60 - 1)
        page.mouse.move(box["x"] + 80 + part * (box["width"] - 100), box["y"] + box["height"] / 2)
        page.wait_for_timeout(8)


def zoom(page: Page) -> None:
    """Zoom into a range of a chart by dragging, and zoom out again, ``ZOOMS`` times."""
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
    """Scroll a long list down and up again at 6,000 pixels a second, as with a fast mouse wheel."""
    session = page.context.new_cdp_session(page)
    for distance in (-24_000, 12_000):
        gesture = {"x": 700, "y": 500, "yDistance": distance, "speed": 6_000, "gestureSourceType": "mouse"}
        session.send("Input.synthesizeScrollGesture", gesture)


def _until(page: Page, expression: str) -> float:
    """Wait until an expression has a value on the page, and return it.

    Playwright's ``wait_for_function`` does not work here, because the page's security policy forbids it.
    """
    while (value := page.evaluate(expression)) is None:
        page.wait_for_timeout(10)
    return float(value)

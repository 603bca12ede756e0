"""Real browser for tests of the page."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.programs import find
from tests.support.needs import needs

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
"""Path of the accessibility checker; see https://github.com/dequelabs/axe-core."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield Playwright's handle of a headless Chromium. Skip the test if no Chromium is installed."""
    needs("chromium")
    from playwright.sync_api import sync_playwright

    options = ["--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find("chromium"), args=options)
        yield browser
        browser.close()


def check_view(page: Any, what: str) -> None:
    """Check that a page fits its width, and that axe, if installed, finds no serious fault."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), what
    if not AXE.exists():
        return
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")["violations"]
    serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}]
    assert serious == [], what

"""A real browser for tests of the page."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.programs import find
from tests.support.needs import needs

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
"""The checker of accessibility; see https://github.com/dequelabs/axe-core."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's handle of a Chromium without a window. Skips the test where none is installed."""
    needs("chromium")
    from playwright.sync_api import sync_playwright

    options = ["--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find("chromium"), args=options)
        yield browser
        browser.close()


def check_view(page: Any, what: str) -> None:
    """A page fits its width, and axe, where it is there, finds no serious fault."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), what
    if not AXE.exists():
        return
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")["violations"]
    serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}]
    assert serious == [], what

"""Tests of the decision pages: the start page names each of them."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))
PAGE_LINES = 60


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_a_page_that_the_start_page_names(page: Path) -> None:
    assert page.read_text().count("\n") <= PAGE_LINES
    assert f"decisions/{page.name}" in (DOCS / "index.md").read_text()

"""Tests of the architecture page: its map names existing modules."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
NAMED = sorted(set(re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*/[a-z_0-9]*(?:\.py)?)(?:: [\w.]+)?`", TEXT)))


def test_it_names_modules() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize("name", NAMED)
def test_modules_named_by_the_map_exist(name: str) -> None:
    if any(word in name for word in ("NAME", "amd")):
        pytest.skip("an example")
    assert any((base / name).exists() for base in (ROOT / "src" / "jobmeter", ROOT))

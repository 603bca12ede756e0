"""The map names files and functions that there are."""

import re
from pathlib import Path

import jobmeter

ROOT = Path(__file__).parents[2]
SOURCE = Path(jobmeter.__file__).parent
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
NEW = {"collect/amd/", "tests/unit/dialects/NAME/"}
"""What does not exist: the examples of what to add."""


def test_every_file_and_folder_that_the_map_names_is_there():
    named = {found for found in re.findall(r"`([\w/]+(?:/|\.py))[^`]*`", PAGE) if "/" in found} - NEW
    assert len(named) > 30
    missing = [name for name in sorted(named) if not any((base / name).exists() for base in (SOURCE, ROOT))]
    assert missing == []


def test_every_folder_of_the_package_is_on_the_map():
    table = PAGE[PAGE.index("## Folders") : PAGE.index("## The way of a frame")]
    assert {name for name in FOLDERS if f"`{name}/`" not in table} <= {"testing", "examples"}

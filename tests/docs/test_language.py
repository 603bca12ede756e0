"""Tests of hand-written pages: short sentences, wrapped lines, no private words."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WORDS, COLUMNS = 25, 100
PRIVATE = (
    r"tells?|told|telling|kept|anew|in vain|let in|of (?:its|their|his|her|one's|your) own"
    r"|(?:a|one|first|each|two|last|every|next) looks?"
)
UNFINISHED: set[str] = {"docs/performance.md"}
"""Pages that are not yet in plain English. A page that passes must leave this list."""
PAGES = [
    ROOT / "README.md",
    *DOCS.glob("*.md"),
    *DOCS.glob("how-to/*.md"),
    *DOCS.glob("explanation/*.md"),
]
_CODE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) ")
_FULL_STOP = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=\S)")


def prose(text: str) -> Iterator[str]:
    """Yield the lines without code, headings and table rows."""
    for line in _CODE.sub("", text).splitlines():
        if not line.lstrip().startswith(("|", "#", "<!--", "![")):
            yield line


def blocks(text: str) -> Iterator[str]:
    """Yield paragraphs and list items, each on one line."""
    block: list[str] = []
    for line in [*prose(text), ""]:
        if block and (not line.strip() or _ITEM.match(line)):
            yield " ".join(block)
            block = []
        if line.strip():
            block.append(_ITEM.sub("", line).strip())


def readable(text: str) -> str:
    """Return the text as read: code becomes one word, and a link its words."""
    text = re.sub(r"``?[^`]+``?", "CODE", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> Iterator[str]:
    for block in blocks(text):
        yield from _FULL_STOP.split(readable(block))


def long_sentences(text: str) -> list[str]:
    return [one for one in sentences(text) if len(re.findall(r"\w[\w'.,-]*", one)) > WORDS]


def wide_lines(text: str) -> list[str]:
    """Return long lines that could be broken, because the rest after the last break is short enough."""
    return [line for line in prose(text) if len(line) > COLUMNS and len(line.split()[-1]) < COLUMNS - 4]


def private_words(text: str) -> list[str]:
    return re.findall(rf"\b(?:{PRIVATE})\b", readable(_CODE.sub("", text)), re.IGNORECASE)


def faults(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [*long_sentences(text), *wide_lines(text), *private_words(text)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if name(page) not in UNFINISHED], ids=name)
def test_a_page_is_in_plain_english(page):
    assert faults(page) == []


@pytest.mark.parametrize("page", sorted(UNFINISHED))
def test_a_page_that_is_finished_is_not_called_unfinished(page):
    assert faults(ROOT / page) != []


def test_faults_are_found():
    long = " ".join(["word"] * 26)
    assert long_sentences(f"Short. {long}.\n\n- {long}\n  more.\n\n{' '.join(['`a b c`'] * 20)}") == [
        f"{long}.",
        f"{long} more.",
    ]
    assert long_sentences(f"```\n{long}\n```\n| {long} |\n") == []
    assert wide_lines("a " * 60 + "\n" + "x" * 120 + "\n") == ["a " * 60]
    assert private_words("It is told, anew, in a folder of its own, at first look; `kept`.") == [
        "told",
        "anew",
        "of its own",
        "first look",
    ]

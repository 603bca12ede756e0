"""Patterns of log files. Their expansion takes a limited time, whatever users put into the folders.

``*``, ``?`` and ``[...]`` match characters of a name, ``**`` any number of folders. A name that begins with a dot only
matches a pattern that does. ``**`` does not follow symbolic links, which may form loops.
"""

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MOST_ENTRIES = 100_000
"""Most names in folders that are read for one pattern."""
_MAGIC = re.compile(r"[*?\[]")


class MatchBudget:
    """Remaining number of names that may be read."""

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self.left = most

    def take(self) -> bool:
        """Count a name. False once the budget is used up."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True)
class NamePattern:
    """Pattern of one name."""

    text: str

    @cached_property
    def _regular(self) -> re.Pattern[str]:
        return re.compile(fnmatch.translate(self.text))

    def fits(self, name: str) -> bool:
        """Return True for a matching name. A name that is no UTF-8 never matches."""
        if self._regular.match(name) is None or (name.startswith(".") and not self.text.startswith(".")):
            return False
        return name.isprintable() or _is_text(name)


class LogPattern:
    """Absolute path with wildcards."""

    def __init__(self, text: str) -> None:
        self.text = str(Path(text).absolute())
        _, *folders, last = Path(self.text).parts if len(Path(self.text).parts) > 1 else ("", "*")
        self._folders = (*folders, "**") if last == "**" else tuple(folders)
        self.name = NamePattern("*" if last == "**" else last)

    def list_directories(self, budget: MatchBudget) -> Iterator[str]:
        """Yield the folders in which a file may match, each once."""
        seen: set[str] = set()
        for directory in _expand("/", self._folders, budget):
            if directory not in seen:
                seen.add(directory)
                yield directory

    def list_names(self, directory: str, budget: MatchBudget) -> Iterator[str]:
        """Yield the names in a folder that match."""
        if not _MAGIC.search(self.name.text):
            if os.path.lexists(f"{directory}/{self.name.text}"):
                yield self.name.text
            return
        for entry in _entries(directory, budget):
            if self.name.fits(entry.name):
                yield entry.name


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _expand(base: str, parts: tuple[str, ...], budget: MatchBudget) -> Iterator[str]:
    if not parts:
        yield base
        return
    first, rest = parts[0], parts[1:]
    if first == "**":
        yield from _expand(base, rest, budget)
        for entry in _entries(base, budget):
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                yield from _expand(_join(base, entry.name), parts, budget)
    elif not _MAGIC.search(first):
        yield from _expand(_join(base, first), rest, budget)
    else:
        pattern = NamePattern(first)
        for entry in _entries(base, budget):
            if pattern.fits(entry.name) and _is_folder(entry):
                yield from _expand(_join(base, entry.name), rest, budget)


def _join(base: str, name: str) -> str:
    return f"/{name}" if base == "/" else f"{base}/{name}"


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _entries(directory: str, budget: MatchBudget) -> "list[os.DirEntry[str]]":
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not budget.take():
                    break
                found.append(entry)
    except OSError:
        return found
    return found

"""Counts in the source code: private words, functions that try without waiting, and the table of states."""

import io
import re
import token
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "jobmeter"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
STATES = "## What outlives a request"

PRIVATE = frozenset(
    {
        *("kept", "known", "told", "seen", "held", "soon", "hurry", "at_once", "things", "roster", "funnel"),
        *("coming", "door", "visit"),
    }
)
"""Words of this project in place of the field's terms, as parts of names."""

TWINS = re.compile(r"NotAtOnceError|\bat_once\b|\bhurry\b|\bwait: bool\b|\bwait=(?:False|True)\b|blocking=False")
"""Pattern of functions that try without waiting, beside functions that wait."""
_OTHERS = frozenset({"cli", "collect"})
"""Folders whose modules use the same words for waiting until a thread ends; neither path enters them."""

_STANDARD = frozenset({"call_soon_threadsafe", "first_seen", "last_seen"})
"""Names that do not count: names of the standard library, and usual names of fields."""

_PLACE = re.compile(r"`([^`]+)`")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def modules(folder: Path = SOURCES) -> Iterator[Path]:
    """Return the files of the package's modules."""
    return (path for path in sorted(folder.rglob("*.py")) if "__pycache__" not in path.parts)


def private_words(folder: Path = SOURCES) -> Counter[str]:
    """Count names with a private word as a whole part: ``known_jobs`` and ``Known``, but not ``unknown``."""
    found: Counter[str] = Counter()
    for path in modules(folder):
        found.update(_in_path(path.relative_to(folder)))
        for one in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if one.type == token.NAME and one.string.lstrip("_").removesuffix("_ms") not in _STANDARD:
                found.update(private_in(one.string))
    return found


def private_in(name: str) -> list[str]:
    """Return the private words in a name."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    pairs = [f"{left}_{right}" for left, right in pairwise(parts)]
    return [part for part in (*parts, *pairs) if part in PRIVATE]


def _in_path(path: Path) -> list[str]:
    return [word for part in (*path.parts[:-1], path.stem) for word in private_in(part)]


def twins(folder: Path = SOURCES) -> list[str]:
    """Return the modules that have functions of their own that try without waiting."""
    return [
        path.relative_to(folder).as_posix()
        for path in modules(folder)
        if path.relative_to(folder).parts[0] not in _OTHERS and TWINS.search(path.read_text(encoding="utf-8"))
    ]


class State(NamedTuple):
    """Row of the table of states: an object that outlives a request, and the modules and folders that the row names."""

    name: str
    where: tuple[str, ...]

    def entered_by(self, modules: Iterable[str]) -> bool:
        """Return True if the row names one of the modules (``jobmeter.store.cache``), or a folder with one of them."""
        paths = [module.removeprefix("jobmeter.").replace(".", "/") for module in modules]
        return any(
            path == place.removesuffix(".py") or (place.endswith("/") and path.startswith(place))
            for path in paths
            for place in self.where
        )


def states(page: Path = PAGE) -> list[State]:
    """Return the rows of the architecture page's table of objects that outlive a request; empty without the page."""
    if not page.is_file():
        return []
    _, _, rest = page.read_text(encoding="utf-8").partition(STATES)
    rows = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
    return [State(cell[0], tuple(_PLACE.findall(cell[1]))) for cell in cells]

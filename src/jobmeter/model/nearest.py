"""Names that somebody may have meant who wrote another one."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 3
_LONGEST = 200
"""A longer text is nobody's typing error, and comparing it would take long."""


def nearest(text: str, names: Iterable[str], most: int = MOST) -> list[str]:
    """At most so many of the names, the nearest first: those that hold the text, then those that look like it."""
    wanted = text.strip().lower()
    if not wanted or len(wanted) > _LONGEST:
        return []
    known = list(dict.fromkeys(name for name in names if name))
    holding = sorted((name for name in known if wanted in name.lower()), key=len)
    folded = {name.lower(): name for name in known}
    alike = [folded[name] for name in get_close_matches(wanted, folded, n=most)]
    return list(dict.fromkeys((*holding, *alike)))[:most]


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """``; did you mean a, b?`` to be put behind a refusal; empty where nothing is near."""
    found = nearest(text, names)
    return f"; did you mean {', '.join(found)}?" if found else ""

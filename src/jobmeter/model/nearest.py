"""Suggestions for a misspelt name."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

MOST = 3
_OFFERED = 12
"""Most names that a list of choices has."""
_LONGEST = 200
"""Longest text that is compared: a longer one is no typing error, and comparing would take long."""


def find_nearest(text: str, names: Iterable[str]) -> list[str]:
    """Return at most ``MOST`` names, nearest first: names that contain the text, then similar ones."""
    needle = text.strip().lower()
    if not needle or len(needle) > _LONGEST:
        return []
    distinct = list(dict.fromkeys(name for name in names if name))
    containing = sorted((name for name in distinct if needle in name.lower()), key=len)
    folded = {name.lower(): name for name in distinct}
    alike = [folded[name] for name in get_close_matches(needle, folded, n=MOST)]
    return list(dict.fromkeys((*containing, *alike)))[:MOST]


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Build ``; did you mean a, b?`` to append to an error message; empty without a similar name."""
    found = find_nearest(text, names)
    return f"; did you mean {', '.join(found)}?" if found else ""


def format_choices(text: str, names: Collection[str], introduced: str = "choose from") -> str:
    """Build ``; did you mean a?`` for an error message; without a similar name ``; choose from a, b and 3 more``."""
    ordered = sorted(names)
    more = f" and {len(ordered) - _OFFERED} more" if len(ordered) > _OFFERED else ""
    return did_you_mean(text, names) or f"; {introduced} {', '.join(ordered[:_OFFERED])}{more}"

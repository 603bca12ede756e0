"""Expand Slurm's hostlist expressions: ``n[1-3,7],gpu[01-02]``, also with ranges in several places."""

import re
from itertools import product

MOST = 65_536
"""Most names of one list. The rest is cut off, so that a broken answer costs no memory."""
_ITEM = re.compile(r"((?:[^,\[\]]|\[[^\]]*\])+)")
_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")


def expand(text: str) -> tuple[str, ...]:
    """Return the names in Slurm's order; empty for a text that means "no node"."""
    if not text or text.lower() in {"(null)", "none", "none assigned", "n/a"}:
        return ()
    names: list[str] = []
    for item in _ITEM.findall(text):
        parts = [_numbers(ranges) if ranges else [plain] for ranges, plain in _PART.findall(item)]
        for combination in product(*parts):
            names.append("".join(combination))
            if len(names) == MOST:
                return tuple(names)
    return tuple(names)


def _numbers(ranges: str) -> list[str]:
    found: list[str] = []
    for one in ranges.split(","):
        first, dash, last = one.partition("-")
        if dash and first.isdigit() and last.isdigit():
            width = len(first)
            stop = min(int(last), int(first) + MOST)
            found += [f"{number:0{width}d}" for number in range(int(first), stop + 1)]
        else:
            found.append(one)
        if len(found) >= MOST:
            break
    return found[:MOST]


def parse_indices(text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as ``0-2,5``; empty for any other text."""
    found = _numbers(text.strip()) if text.strip() else []
    return tuple(int(one) for one in found if one.isdigit())

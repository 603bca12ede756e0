"""Rules for the prose of docstrings."""

import ast
import re
from collections.abc import Iterator

# A docstring starts with a verb or with the noun that it describes, never with one of these words.
BEGINNINGS = (
    "What",
    "Those of",
    "Of",
    "As",
    "The same",
    "Whether",
    "Where",
    "Who",
    "How",
    "So that",
    "Until",
    "That",
    "One",
    "Nothing",
    "None",
)

# Phrases that a newcomer has to read twice.
PHRASES = (
    "what of",
    "those of",
    "is none",
    "so many",
    "is told",
    "are told",
    "in vain",
    "anew",
    "by itself",
)

_BEGINNING = re.compile(rf"(?:{'|'.join(BEGINNINGS)})\b")
# Case counts: "is None" speaks of Python's value.
_PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b")


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, those of attributes included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def faults(source: str) -> list[tuple[int, str]]:
    """Return the line and the forbidden words of each docstring that starts with or contains any."""
    found = []
    for line, text in docstrings(source):
        flat = " ".join(text.split())
        matches = [_BEGINNING.match(flat), *_PHRASE.finditer(flat)]
        found += [(line, match.group()) for match in matches if match]
    return found

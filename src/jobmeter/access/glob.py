"""Patterns with ``*`` and ``?``, matched in time bounded by their length times the text's."""

import re


class Glob:
    """``*`` stands for any characters, ``?`` for one, every other character for itself."""

    __slots__ = ("_first", "_last", "_last_length", "_middle", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        parts = re.split(r"\*+", text)
        first, *rest = map(_part, parts)
        self._first, self._middle, self._last = first, rest[:-1], rest[-1] if rest else None
        self._last_length = len(parts[-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glob) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, text: str) -> bool:
        """True when the whole text fits."""
        if self._last is None:
            return self._first.fullmatch(text) is not None
        start = self._first.match(text)
        if start is None:
            return False
        at = start.end()
        for part in self._middle:  # the leftmost match leaves the most text to the parts that follow
            found = part.search(text, at)
            if found is None:
                return False
            at = found.end()
        end = len(text) - self._last_length
        return end >= at and self._last.fullmatch(text, end) is not None


def _part(text: str) -> re.Pattern[str]:
    return re.compile("".join("." if letter == "?" else re.escape(letter) for letter in text), re.DOTALL)

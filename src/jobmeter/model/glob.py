"""Shell patterns, matched in time bounded by the pattern's length times the text's."""

import fnmatch
import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\*+|\?|\[[^\]]+\]|.", re.DOTALL)


class Glob:
    """Pattern: ``*`` matches any characters, ``?`` one, every other character itself.

    With ``classes``, ``[a-c]`` matches one of these characters and ``[!a-c]`` any other. Matching never backtracks, so
    no text makes it slow.
    """

    __slots__ = ("_classes", "_parts", "_stars", "text")

    def __init__(self, text: str, *, classes: bool = False) -> None:
        self.text = text
        self._classes = classes
        self._parts, self._stars = [_Part()], list[int]()
        for piece in _TOKEN.findall(text):
            if piece[0] == "*":
                self._stars.append(len(piece))
                self._parts.append(_Part())
            else:
                self._parts[-1].add(*self._convert_piece(piece))
        for part in self._parts:
            part.compile()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glob) and (self.text, self._classes) == (other.text, other._classes)

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, text: str) -> bool:
        """True if the whole text matches."""
        return self._find_starts(text) is not None

    def find_wildcards(self, text: str) -> tuple[str, ...] | None:
        """Return the text of each wildcard, in order; None if the text does not match.

        A ``*`` takes as much as it can before those to its right do.
        """
        starts = self._find_starts(text)
        return None if starts is None else tuple(self._fill_wildcards(text, starts))

    @property
    def count(self) -> int:
        """Number of wildcards."""
        return sum(self._stars) + sum(len(part.wild) for part in self._parts)

    def _convert_piece(self, piece: str) -> Iterator[tuple[str, bool]]:
        """Convert a piece to regular expressions for single characters, each with True for a wildcard."""
        if piece == "?":
            yield ".", True
        elif len(piece) > 1 and self._classes and (found := _class(piece)):
            yield found, True
        else:
            yield from ((re.escape(letter), False) for letter in piece)

    def _find_starts(self, text: str) -> list[int] | None:
        """Return the start of each part, the rightmost after ``*`` that leaves room for the rest; None if none fits."""
        first, *rest = self._parts
        backwards, end = text[::-1], len(text)
        room = end - first.length
        if room < 0 or not first.fits(backwards, room):
            return None
        if not rest:
            return None if room else [0]
        found = rest[-1].pattern.match(backwards)
        starts: list[int] = []
        for part in rest[-2::-1]:
            if found is None:
                return None
            starts.append(end - found.end())
            found = part.pattern.search(backwards, found.end())
        if found is None or found.end() > room:
            return None
        return [0, end - found.end(), *reversed(starts)]

    def _fill_wildcards(self, text: str, starts: list[int]) -> Iterator[str]:
        after = 0
        for part, start, stars in zip(self._parts, starts, [0, *self._stars], strict=True):
            if stars:  # the first of several takes everything
                yield text[after:start]
                yield from [""] * (stars - 1)
            yield from (text[start + at] for at in part.wild)
            after = start + part.length


class _Part:
    """Text of fixed length between two ``*``, as a pattern of the reversed text."""

    __slots__ = ("_pieces", "length", "pattern", "wild")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.wild: list[int] = []
        self.length = 0
        self.pattern = re.compile("")

    def add(self, *letters: tuple[str, bool]) -> None:
        """Append characters, each as a regular expression with True for a wildcard."""
        for piece, is_wild in letters:
            if is_wild:
                self.wild.append(self.length)
            self._pieces.append(piece)
            self.length += 1

    def compile(self) -> None:
        """Build the pattern."""
        self.pattern = re.compile("".join(reversed(self._pieces)), re.DOTALL)

    def fits(self, backwards: str, at: int) -> bool:
        """True if the part matches at that position."""
        return self.pattern.match(backwards, at) is not None


def _class(piece: str) -> str:
    """Convert a character class to a regular expression; empty for an invalid class such as ``[!]``."""
    made = fnmatch.translate(piece)  # (?s:SET)\Z
    inner = made[made.index(":") + 1 : made.rindex(")")]
    return inner if inner[0] != "\\" else ""

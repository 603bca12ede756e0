"""What reaches a terminal: text without the characters that a terminal acts on, whichever verb writes it.

Names, log lines and messages come from anybody. A control character in one could move the cursor or set the title, a
direction mark could show one name as another. ``guard`` puts a filter before standard output and standard error where
they are terminals; the console of ``jobmeter.cli.output`` writes its own colours past it, around text that it filters.
"""

import re
import sys
from collections.abc import Iterable
from typing import IO, Any, cast

REPLACEMENT = "\ufffd"
# Controls, marks of direction (Unicode's Bidi_Control), ends of lines, what has no width, annotations, tags.
_UNSAFE = (
    r"\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f"
)
_IN_A_LINE = re.compile(f"[{_UNSAFE}]")
_IN_TEXT = re.compile(f"(?![\t\n])[{_UNSAFE}]")
_BESIDE_COLOURS = re.compile(rf"(\x1b\[[0-9;]*m)|(?![\t\n])[{_UNSAFE}]")


def printable(text: str) -> str:
    """Return the text of one line with U+FFFD for each character that a terminal would act on."""
    return text if text.isascii() and text.isprintable() else _IN_A_LINE.sub(REPLACEMENT, text)


def printable_text(text: str) -> str:
    """Return text of several lines as ``printable`` does; line ends and tabs stay."""
    return text if text.isascii() and text.isprintable() else _IN_TEXT.sub(REPLACEMENT, text)


def printable_colours(text: str) -> str:
    """Return the text as ``printable_text`` does, with the colours that it sets itself."""
    return _BESIDE_COLOURS.sub(lambda found: found[1] or REPLACEMENT, text)


def printable_json(text: str) -> str:
    r"""Return the same JSON with ``\uXXXX`` for each character that a terminal would act on."""
    return text if text.isascii() and text.isprintable() else _IN_TEXT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class GuardedStream:
    """A text stream whose text is ``printable_text``. Everything else is that of the stream ``behind`` it."""

    def __init__(self, behind: IO[str]) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        """Write the text; give the length of what was to be written."""
        self.behind.write(printable_text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the stream has it
        return getattr(self.behind, name)


def guard() -> None:
    """Guard standard output and standard error, where they are terminals, for the rest of the process."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, GuardedStream):
            setattr(sys, name, GuardedStream(stream))


def unguarded(stream: IO[str]) -> IO[str]:
    """Return the stream itself, for text that is filtered already and for colours."""
    given = cast("object", stream)
    return given.behind if isinstance(given, GuardedStream) else stream

"""Filter of terminal output: removes characters that a terminal acts on, for every verb.

Names, log lines and messages come from anybody. A control character could move the cursor or set the title; a direction
mark could disguise a name. ``guard`` filters standard output and standard error if they are terminals. The console of
``jobmeter.cli.output`` writes its own colours directly, around filtered text.
"""

import re
import sys
from collections.abc import Iterable
from typing import IO, Any, cast

REPLACEMENT = "\ufffd"
# Control characters, Bidi_Control, line ends, zero-width characters, annotations, tags.
_UNSAFE = (
    r"\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f"
)
_IN_A_LINE = re.compile(f"[{_UNSAFE}]")
_IN_TEXT = re.compile(f"(?![\t\n])[{_UNSAFE}]")
_BESIDE_COLOURS = re.compile(rf"(\x1b\[[0-9;]*m)|(?![\t\n])[{_UNSAFE}]")


def make_printable(text: str) -> str:
    """Replace each character that a terminal would act on by U+FFFD, in the text of one line.

    A tab becomes a space.
    """
    return text if text.isascii() and text.isprintable() else _IN_A_LINE.sub(REPLACEMENT, text.replace("\t", " "))


def make_text_printable(text: str) -> str:
    """Filter text of several lines like ``make_printable``; line ends and tabs stay."""
    return text if text.isascii() and text.isprintable() else _IN_TEXT.sub(REPLACEMENT, text)


def make_colours_printable(text: str) -> str:
    """Filter text like ``make_text_printable``, but keep its colours."""
    return _BESIDE_COLOURS.sub(lambda found: found[1] or REPLACEMENT, text)


def make_json_printable(text: str) -> str:
    r"""Escape each character that a terminal would act on as ``\uXXXX`` in JSON."""
    return text if text.isascii() and text.isprintable() else _IN_TEXT.sub(_escape_units, text)


def _escape_units(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class GuardedStream:
    """Text stream that filters its text by ``make_text_printable``. The rest belongs to the stream ``behind`` it."""

    def __init__(self, behind: IO[str]) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        """Write the filtered text; return the length of the original."""
        self.behind.write(make_text_printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the stream has it
        return getattr(self.behind, name)


def guard() -> None:
    """Guard standard output and standard error, if they are terminals, for the rest of the process."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, GuardedStream):
            setattr(sys, name, GuardedStream(stream))


def unwrap_stream(stream: IO[str]) -> IO[str]:
    """Return the unguarded stream, for already filtered text and for colours."""
    given = cast("object", stream)
    return given.behind if isinstance(given, GuardedStream) else stream

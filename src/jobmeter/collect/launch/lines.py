"""Split output into lines of text. A progress bar is one line that changes."""

import re
from collections.abc import Iterator

from jobmeter.model.log import MAX_TEXT_BYTES, cut_bytes, cut_text

STATE_NS = 1_000_000_000
"""Interval at which a rewritten line is stored. It is stored at its end too."""
_BREAKS = re.compile(rb"[\r\n]")
# Control sequences that move or erase; colours stay.
_MOVES = re.compile(r"\x1b\[[0-9;?]*[@-ln-~]")
_UP = re.compile(rb"\x1b\[\d*[AF]")
_SURE = MAX_TEXT_BYTES // 4
"""Most characters of a line that fit into the byte limit in any encoding."""
Timed = tuple[int, str]
"""Time in nanoseconds and a text."""


class LineSplitter:
    """Splits one stream into lines with strictly growing times. For one thread at a time.

    A carriage return restarts the line, as on a terminal. Its text is stored when it was last stored a second ago, and
    at its end. A line that ends by moving the cursor up, as several bars do, is treated in the same way. Of a line that
    never ends only the beginning is stored.
    """

    def __init__(self) -> None:
        self._partial = bytearray()
        self._length = 0
        self._rewritten = False  # a carriage return started the line again
        self._state: str | None = None  # text of the line that was not stored yet
        self._drawn = False  # the line ended by moving the cursor up
        self._last_shown: str | None = None
        self._state_ns = -STATE_NS
        self._last_ns = -1

    def feed(self, data: bytes, now_ns: int) -> list[Timed]:
        """Return the lines that end in these bytes."""
        if self._rewritten or self._length > MAX_TEXT_BYTES or b"\r" in data or b"\x1b" in data:
            return list(self._feed(data, now_ns))
        end = data.rfind(b"\n")
        if end < 0:
            self._take(data, 0, len(data))
            return []
        # The fast path: plain lines.
        texts = (bytes(self._partial) + data[:end]).decode(errors="replace").split("\n")
        self._clear()
        self._take(data, end + 1, len(data))
        first = max(now_ns, self._last_ns + 1)
        self._last_ns = first + len(texts) - 1
        return [(first + place, text if len(text) <= _SURE else cut_text(text)) for place, text in enumerate(texts)]

    def tick(self, now_ns: int) -> list[Timed]:
        """Return the current text of a rewritten line, if it is time to store it."""
        if not self._rewritten or now_ns - self._state_ns < STATE_NS:
            return []
        shown = self._decode_text() if self._length else self._state
        return self._save_state(shown, now_ns)

    def end(self, now_ns: int) -> list[Timed]:
        """Return the last line, if it had no end."""
        if not self._length and self._state is None:
            return []
        return self._end_line(now_ns)

    def _feed(self, data: bytes, now_ns: int) -> Iterator[Timed]:
        at = 0
        for found in _BREAKS.finditer(data):
            self._take(data, at, found.start())
            at = found.end()
            if data[found.start()] == 0x0A:
                yield from self._end_line(now_ns)
            elif self._length:
                yield from self._restart_line(now_ns)
        self._take(data, at, len(data))

    def _take(self, data: bytes, start: int, end: int) -> None:
        room = MAX_TEXT_BYTES + 1 - len(self._partial)
        if room > 0:
            self._partial += data[start : min(end, start + room)]
        self._length += end - start

    def _decode_text(self) -> str:
        if self._length > MAX_TEXT_BYTES:
            return cut_bytes(bytes(self._partial), self._length)
        text = self._partial.decode(errors="replace")
        # A byte that is no UTF-8 becomes a character of three.
        return cut_text(_MOVES.sub("", text) if "\x1b" in text else text)

    def _restart_line(self, now_ns: int) -> list[Timed]:
        """Handle a carriage return, which restarts the line."""
        self._state = self._decode_text()
        self._rewritten = True
        self._clear()
        return self._save_state(self._state, now_ns) if now_ns - self._state_ns >= STATE_NS else []

    def _end_line(self, now_ns: int) -> list[Timed]:
        drawn = _UP.search(self._partial) is not None
        shown = self._decode_text() if self._length or not self._rewritten else self._state
        self._clear()
        if drawn:
            self._state, self._rewritten, self._drawn = shown, True, True
            return self._save_state(shown, now_ns) if now_ns - self._state_ns >= STATE_NS else []
        last = self._save_state(self._state, now_ns) if self._drawn and shown != self._state else []
        repeated = self._rewritten and (shown is None or shown == self._last_shown)
        self._rewritten, self._drawn, self._state, self._last_shown = False, False, None, None
        return last if repeated or shown is None else [*last, (self.get_moment(now_ns), shown)]

    def _save_state(self, shown: str | None, now_ns: int) -> list[Timed]:
        self._state = None
        if not shown or shown == self._last_shown:
            return []
        self._last_shown, self._state_ns = shown, now_ns
        return [(self.get_moment(now_ns), shown)]

    def _clear(self) -> None:
        self._partial.clear()
        self._length = 0

    def get_moment(self, now_ns: int) -> int:
        """Return the time of the next line."""
        self._last_ns = max(now_ns, self._last_ns + 1)
        return self._last_ns

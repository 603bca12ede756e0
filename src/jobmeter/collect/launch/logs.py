"""Output of the replicas as log lines for the server: collected, bounded, and put into the outbox."""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event, Lock, Thread

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.launch.plan import LaunchPlan
from jobmeter.collect.outbox import Outbox
from jobmeter.model.event import Level
from jobmeter.model.line_level import level_in
from jobmeter.model.log import MAX_TEXT_BYTES, LogLine, cut_bytes, cut_text
from jobmeter.wire.native.logs import logs_frame

STATE_NS = 1_000_000_000
"""Interval at which a rewritten line is stored; it is stored at its end too."""

_BREAKS = re.compile(rb"[\r\n]")
# Control sequences that move or erase; colours stay.
_MOVES = re.compile(r"\x1b\[[0-9;?]*[@-ln-~]")
_UP = re.compile(rb"\x1b\[\d*[AF]")

_SURE = MAX_TEXT_BYTES // 4
"""Characters that surely fit into the byte limit of a line."""

Timed = tuple[int, str]
"""A time in nanoseconds and a text."""


class LineSplitter:
    """Splits one stream into lines with strictly growing times. Belongs to one thread at a time.

    A carriage return restarts the line, as on a terminal: its text is stored when a second has passed since the line
    was last stored, and at its end. A line that ends by moving the cursor up, which is how several bars are drawn, is
    treated like that too. Memory is bounded: of a line that never ends only the beginning is buffered.
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
        """Return the lines that these bytes end."""
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
        """Return the current text of a rewritten line, when it is time to store it."""
        if not self._rewritten or now_ns - self._state_ns < STATE_NS:
            return []
        shown = self._decode_text() if self._length else self._state
        return self._save_state(shown, now_ns)

    def end(self, now_ns: int) -> list[Timed]:
        """Return the last line if it had no end."""
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
        return last if repeated or shown is None else [*last, (self.moment(now_ns), shown)]

    def _save_state(self, shown: str | None, now_ns: int) -> list[Timed]:
        self._state = None
        if not shown or shown == self._last_shown:
            return []
        self._last_shown, self._state_ns = shown, now_ns
        return [(self.moment(now_ns), shown)]

    def _clear(self) -> None:
        self._partial.clear()
        self._length = 0

    def moment(self, now_ns: int) -> int:
        """The time of the next line."""
        self._last_ns = max(now_ns, self._last_ns + 1)
        return self._last_ns


_log = logging.getLogger(__name__)

_INTERVAL = 0.5
_FRAME_LINES, _FRAME_BYTES = 5_000, 2**20
_WAITING_BYTES = 16 * 2**20
_ROUND_LINES = 50_000
"""Most lines made in one interval, to leave the processor to the command."""
_LAST_BYTES = 2**20
"""Newest bytes that are stored of waiting output at the end."""

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of a stream, and the number of dropped lines before them."""

    key: _Key
    time_ns: int
    data: bytes
    missing: int


class LogSender:
    """Takes bytes (``take``) from any thread without blocking; twice a second its own thread makes lines of them.

    Output above that rate is dropped, and so is output while logs fill their share of the outbox, which they share with
    the samples. A line reports the gap, and ``dropped`` counts it.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        place: NodeIdentity,
        outbox: Outbox,
        *,
        now_ns: Callable[[], int],
        watch: Callable[[str, int, str], None] = lambda _replica, _time_ns, _text: None,
    ) -> None:
        """``watch`` gets the replica, the time and the text of each line."""
        self.sent = 0
        self.dropped = 0
        self._plan = plan
        self._place = place
        self._outbox = outbox
        self._now_ns = now_ns
        self._watch = watch
        self._lock = Lock()
        self._pieces: deque[_Piece] = deque()
        self._waiting_bytes = 0
        self._left_out: dict[_Key, int] = {}
        self._splitters: dict[_Key, LineSplitter] = {}
        self._lines: list[LogLine] = []
        self._missing: dict[_Key, int] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="logs", daemon=True)

    def start(self) -> None:
        """Begin to pass lines on."""
        self._thread.start()

    def take(self, replica: str, stream: str, data: bytes) -> None:
        """Bytes that a replica wrote."""
        key = (replica, stream)
        with self._lock:
            if self._waiting_bytes > _WAITING_BYTES:
                self._left_out[key] = self._left_out.get(key, 0) + data.count(b"\n")
                return
            self._pieces.append(_Piece(key, self._now_ns(), data, self._left_out.pop(key, 0)))
            self._waiting_bytes += len(data)

    def stop(self) -> None:
        """Pass on the rest, including unfinished lines. Later output is not taken."""
        self._stopping.set()
        self._thread.join()
        self._request_flush()
        while self._pieces:
            self._make_lines()
        with self._lock:
            missing, self._left_out = self._left_out, {}
        for key, count in missing.items():
            self._miss(key, count)
        for key in {*self._splitters, *self._missing}:
            self._gather(key, self._get_splitter(key).end(self._now_ns()))
            self._write_gap(key, self._now_ns())
        self._pass_on()

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL):
            try:
                self.turn()
            except Exception:  # noqa: BLE001 - lines are lost, and the command runs on
                _log.exception("log lines could not be recorded")

    def turn(self) -> None:
        """Make lines of the waiting bytes, and pass them on."""
        self._make_lines()
        for key, splitter in self._splitters.items():
            self._gather(key, splitter.tick(self._now_ns()))
        self._pass_on()

    def _request_flush(self) -> None:
        """Drop the oldest bytes of more than can be read before the end."""
        with self._lock:
            while self._waiting_bytes > _LAST_BYTES:
                piece = self._pieces.popleft()
                self._waiting_bytes -= len(piece.data)
                self._miss(piece.key, piece.missing + piece.data.count(b"\n"))

    def _make_lines(self) -> None:
        """Make lines of waiting bytes, up to the limit of one round."""
        made = 0
        while made < _ROUND_LINES:
            with self._lock:
                if not self._pieces:
                    return
                piece = self._pieces.popleft()
                self._waiting_bytes -= len(piece.data)
            splitter = self._get_splitter(piece.key)
            if piece.missing:
                # The line before the gap lacks its end, and the first one after it its beginning.
                self._gather(piece.key, splitter.end(piece.time_ns))
                self._miss(piece.key, piece.missing)
            self._write_gap(piece.key, piece.time_ns)
            lines = splitter.feed(piece.data, piece.time_ns)
            self._gather(piece.key, lines)
            made += len(lines)

    def _get_splitter(self, key: _Key) -> LineSplitter:
        return self._splitters.setdefault(key, LineSplitter())

    def _miss(self, key: _Key, count: int) -> None:
        self.dropped += count
        self._missing[key] = self._missing.get(key, 0) + count

    def _gather(self, key: _Key, lines: list[Timed]) -> None:
        for time_ns, text in lines:
            self._add(key, time_ns, text, level_in(text))
            self._watch(key[0], time_ns, text)

    def _write_gap(self, key: _Key, time_ns: int) -> None:
        """Write a line in the place of missing ones."""
        missing = self._missing.pop(key, 0)
        if missing:
            text = f"[jobmeter: {missing} lines are missing here, they came faster than they could be recorded]"
            self._add(key, self._get_splitter(key).moment(time_ns), text, Level.WARNING)

    def _add(self, key: _Key, time_ns: int, text: str, level: Level | None) -> None:
        replica, stream = key
        self._lines.append(
            LogLine(
                time_ns=time_ns,
                text=text,
                job=self._plan.job,
                project=self._place.project,
                replica=replica,
                attempt=self._plan.attempt,
                node=self._place.node,
                stream=stream,
                level=level,
            )
        )

    def _pass_on(self) -> None:
        lines, self._lines = self._lines, []
        frame: list[LogLine] = []
        size = 0
        for line in lines:
            frame.append(line)
            size += len(line.text)
            if len(frame) >= _FRAME_LINES or size >= _FRAME_BYTES:
                self._put(frame)
                frame, size = [], 0
        if frame:
            self._put(frame)

    def _put(self, lines: list[LogLine]) -> None:
        if self._outbox.size > self._outbox.capacity // 2:
            for line in lines:
                self._miss((line.replica, line.stream), 1)
            return
        self._outbox.put(logs_frame(lines))
        self.sent += len(lines)

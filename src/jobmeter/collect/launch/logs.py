"""Output of the replicas as log lines: collected, limited, and put into the outbox."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from threading import Event, Lock, Thread

from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.launch.lines import LineSplitter, Timed
from jobmeter.collect.launch.plan import LaunchPlan
from jobmeter.collect.outbox import Outbox
from jobmeter.model.event import Level
from jobmeter.model.line_level import find_level
from jobmeter.model.log import LogLine
from jobmeter.wire.native.logs import make_logs_frame

_log = logging.getLogger(__name__)

_INTERVAL = 0.5
_FRAME_LINES, _FRAME_BYTES = 5_000, 2**20
_WAITING_BYTES = 16 * 2**20
_ROUND_LINES = 50_000
"""Most lines made in one interval, so that the command gets the processor."""
_LAST_BYTES = 2**20
"""Newest bytes of waiting output that are stored at the end."""

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of a stream, and the number of lines dropped before them."""

    key: _Key
    time_ns: int
    data: bytes
    missing: int


@dataclass(slots=True, eq=False)
class LogSender:
    """Takes bytes from any thread without blocking. Twice a second its own thread makes lines of them.

    Output above that rate is dropped, and so is output while half of the outbox is full, which samples share. A line
    reports the gap, and ``dropped`` counts the lines.
    """

    plan: LaunchPlan
    place: NodeIdentity
    outbox: Outbox
    _: KW_ONLY
    now_ns: Callable[[], int]
    watch: Callable[[str, int, str], None] = lambda _replica, _time_ns, _text: None
    """Function that gets the replica, the time and the text of each line."""
    sent: int = 0
    dropped: int = 0
    _lock: Lock = field(default_factory=Lock)
    _pieces: deque[_Piece] = field(default_factory=deque)
    _waiting_bytes: int = 0
    _left_out: dict[_Key, int] = field(default_factory=dict)
    _splitters: dict[_Key, LineSplitter] = field(default_factory=dict)
    _lines: list[LogLine] = field(default_factory=list)
    _missing: dict[_Key, int] = field(default_factory=dict)
    _stopping: Event = field(default_factory=Event)
    _thread: Thread = field(init=False)

    def __post_init__(self) -> None:
        """Create the thread."""
        self._thread = Thread(target=self._run, name="logs", daemon=True)

    def start(self) -> None:
        """Begin to make lines."""
        self._thread.start()

    def take(self, replica: str, stream: str, data: bytes) -> None:
        """Take bytes that a replica wrote."""
        key = (replica, stream)
        with self._lock:
            if self._waiting_bytes > _WAITING_BYTES:
                self._left_out[key] = self._left_out.get(key, 0) + data.count(b"\n")
                return
            self._pieces.append(_Piece(key, self.now_ns(), data, self._left_out.pop(key, 0)))
            self._waiting_bytes += len(data)

    def stop(self) -> None:
        """Send the rest, including unfinished lines. Later output is not taken."""
        self._stopping.set()
        self._thread.join()
        self._drop_oldest_bytes()
        while self._pieces:
            self._make_lines()
        with self._lock:
            missing, self._left_out = self._left_out, {}
        for key, count in missing.items():
            self._miss(key, count)
        for key in {*self._splitters, *self._missing}:
            self._gather(key, self._get_splitter(key).end(self.now_ns()))
            self._write_gap(key, self.now_ns())
        self._pass_on()

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL):
            try:
                self.turn()
            except Exception:  # noqa: BLE001 - lines are lost, and the command runs on
                _log.exception("log lines could not be recorded")

    def turn(self) -> None:
        """Make lines of the waiting bytes, and send them."""
        self._make_lines()
        for key, splitter in self._splitters.items():
            self._gather(key, splitter.tick(self.now_ns()))
        self._pass_on()

    def _drop_oldest_bytes(self) -> None:
        """Drop the oldest waiting bytes, so that the rest can be read before the end."""
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
            self._add(key, time_ns, text, find_level(text))
            self.watch(key[0], time_ns, text)

    def _write_gap(self, key: _Key, time_ns: int) -> None:
        """Write a line in place of dropped ones."""
        missing = self._missing.pop(key, 0)
        if missing:
            text = f"[jobmeter: {missing} lines are missing here, they came faster than they could be recorded]"
            self._add(key, self._get_splitter(key).get_moment(time_ns), text, Level.WARNING)

    def _add(self, key: _Key, time_ns: int, text: str, level: Level | None) -> None:
        replica, stream = key
        self._lines.append(
            LogLine(
                time_ns=time_ns,
                text=text,
                job=self.plan.job,
                project=self.place.project,
                replica=replica,
                attempt=self.plan.attempt,
                node=self.place.node,
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
        if self.outbox.size > self.outbox.capacity // 2:
            for line in lines:
                self._miss((line.replica, line.stream), 1)
            return
        self.outbox.put(make_logs_frame(lines))
        self.sent += len(lines)

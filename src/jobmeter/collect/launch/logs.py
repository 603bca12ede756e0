"""What the replicas wrote, as log lines for the server: gathered, bounded, and put into the outbox."""

import time
from collections.abc import Callable
from threading import Event, Lock, Thread

from jobmeter.collect.base import Place
from jobmeter.collect.launch.levels import guess_level
from jobmeter.collect.launch.lines import LineSplitter, Timed
from jobmeter.collect.launch.plan import Plan
from jobmeter.collect.outbox import Outbox
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.wire.native.logs import logs_frame

_INTERVAL = 0.5
_FRAME_LINES, _FRAME_BYTES = 5_000, 2**20
_WAITING_BYTES = 8 * 2**20
_LINE_BYTES = 100

_Key = tuple[str, str]


class LogSender:
    """Takes bytes (``take``) from any thread and waits for nothing; twice a second its own thread passes lines on.

    What comes faster than that takes is left out, and so is what comes while logs fill their share of the outbox, which
    they have in common with the samples. A line says so, and ``dropped`` counts.
    """

    def __init__(self, plan: Plan, place: Place, outbox: Outbox, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.sent = 0
        self.dropped = 0
        self._plan = plan
        self._place = place
        self._outbox = outbox
        self._now_ns = now_ns
        self._lock = Lock()
        self._splitters: dict[_Key, LineSplitter] = {}
        self._waiting: list[LogLine] = []
        self._waiting_bytes = 0
        self._missing: dict[_Key, int] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="logs", daemon=True)

    def start(self) -> None:
        """Begin to pass lines on."""
        self._thread.start()

    def take(self, replica: str, stream: str, data: bytes) -> None:
        """Bytes that a replica wrote."""
        with self._lock:
            splitter = self._splitters.setdefault((replica, stream), LineSplitter())
            self._gather((replica, stream), splitter.feed(data, self._now_ns()))

    def stop(self) -> None:
        """Pass on what is left, unfinished lines too. Nothing is taken any more."""
        self._stopping.set()
        self._thread.join()
        with self._lock:
            for key, splitter in self._splitters.items():
                self._gather(key, splitter.end(self._now_ns()))
            for key in list(self._missing):
                self._tell(key, self._now_ns())
        self._pass_on()

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL):
            with self._lock:
                for key, splitter in self._splitters.items():
                    self._gather(key, splitter.tick(self._now_ns()))
            self._pass_on()

    def _gather(self, key: _Key, lines: list[Timed]) -> None:
        for time_ns, text in lines:
            if self._waiting_bytes > _WAITING_BYTES:
                self._missing[key] = self._missing.get(key, 0) + 1
                self.dropped += 1
                continue
            # A nanosecond before the line there is room: the line before it was left out.
            self._tell(key, time_ns - 1)
            self._add(key, time_ns, text, guess_level(text))

    def _tell(self, key: _Key, time_ns: int) -> None:
        """A line in the place of those that are missing."""
        missing = self._missing.pop(key, 0)
        if missing:
            told = f"[jobmeter: {missing} lines are missing here, they came faster than they could be kept]"
            self._add(key, time_ns, told, Level.WARNING)

    def _add(self, key: _Key, time_ns: int, text: str, level: Level | None) -> None:
        replica, stream = key
        self._waiting.append(
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
        self._waiting_bytes += len(text) + _LINE_BYTES

    def _pass_on(self) -> None:
        with self._lock:
            lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
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
            with self._lock:
                self.dropped += len(lines)
                for line in lines:
                    key = (line.replica, line.stream)
                    self._missing[key] = self._missing.get(key, 0) + 1
            return
        self._outbox.put(logs_frame(lines))
        self.sent += len(lines)

"""Thread that sends a program's reports to sockets on this machine: bounded, and without blocking the program.

Standard library only. Modules that take milliseconds to import are imported at the first report, by the reporting
thread. A fork while another thread imports a module would leave that module locked in the child.
"""

import threading
from collections import deque
from time import monotonic, sleep

from jobmeter.program.sockets import Sockets
from jobmeter.wire.program import places

TYPE_CHECKING = False
"""Constant for type checkers; the module ``typing`` takes longer to import than this package."""
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 10_000
"""Most waiting calls of ``log``. Beyond that the oldest are dropped."""
MOST_NOTES = 1_000
"""Most waiting events."""
_MOST_META, _MOST_NAMES = 100, 1_000
_INTERVAL, _FAST = 0.2, 0.02
"""Seconds between two sends, and between two reads of a queue that fills faster."""
_LEAD_MS = 200
"""Longest lead of a value's time over its call, in ms, if many calls happen within a millisecond."""
_LAST_SECONDS = 0.5
"""Longest wait at the end of the program."""
_PAUSE = 0.002
"""Seconds between two attempts to send into a full socket while a caller of ``flush`` waits."""
_NS_PER_MS = 1_000_000
_LONGEST, _LONGEST_FACT, _LONGEST_MESSAGE = 200, 500, 4_000
_MOST_TEXT = places.MOST_BYTES - 100
"""Most characters of the points of a message, beside its head."""
_LEVELS = frozenset({"debug", "info", "warning", "error"})


class ReportThread:
    """Queue and thread of one process. ``queue`` takes (nanoseconds, step, values by name) from any thread."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, object, dict[str, object]]] = deque(maxlen=MOST)
        self.sockets = Sockets()
        self.reset()

    def reset(self) -> None:
        """Clear everything to send: used in the child of a fork."""
        self.queue.clear()
        self.thread: threading.Thread | None = None
        self.dropped = 0
        self._events: deque[tuple[int, str, str, str]] = deque(maxlen=MOST_NOTES)
        self._meta: dict[str, object] = {}
        self._meta_due: dict[str, None] = {}
        self._names: dict[object, str] = {}
        self.pending: deque[tuple[str, int]] = deque()
        self.sockets.close()
        self.sockets = Sockets()
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._stopping = False
        self._until = 0.0
        self._last_ms = -1

    def note_meta(self, facts: "dict[str, object]") -> None:
        """Add facts by name. The newest fact of a name counts."""
        for name, fact in facts.items():
            if name in self._meta or len(self._meta) < _MOST_META:
                self._meta[name] = fact
                self._meta_due[name] = None
        self.start()

    def note_event(self, event: tuple[int, str, str, str]) -> None:
        """Add an event; the oldest is dropped if too many wait."""
        if len(self._events) == MOST_NOTES:
            self.dropped += 1
        self._events.append(event)
        self.start()

    def start(self) -> None:
        """Start the thread, unless a start is in progress: a signal's handler may interrupt this very call."""
        if self.thread is not None or not self._starting.acquire(blocking=False):
            return
        try:
            if self._stopping:  # a handler at the program's end reports after the thread
                self.turn(due=True)
                self.sockets.close()
                return
            import atexit  # noqa: PLC0415 - see the module
            import json  # noqa: F401, PLC0415 - see the module
            import socket  # noqa: F401, PLC0415 - see the module
            import sys  # noqa: PLC0415 - see the module

            thread = threading.Thread(target=self._run, name="jobmeter-log", daemon=True)
            thread.start()
            self.thread = thread
            atexit.register(self._end)
            if util := sys.modules.get("multiprocessing.util"):  # its children end without atexit
                util.Finalize(None, self._end, exitpriority=100)
        finally:
            self._starting.release()

    def flush(self, seconds: float) -> bool:
        """Send the waiting reports within these seconds. Return True if none waits afterwards."""
        if self.thread is not None:
            self._until = monotonic() + seconds
            self._idle.clear()
            self._wake.set()
            self._idle.wait(seconds)
        return not self._waits

    @property
    def _waits(self) -> bool:
        return bool(self.queue or self.pending or self._events or self.dropped or self._meta_due)

    def _end(self) -> None:
        thread = self.thread
        if thread is not None and thread.is_alive():
            self._until = monotonic() + _LAST_SECONDS
            self._stopping = True
            self._wake.set()
            thread.join(_LAST_SECONDS)
            if not thread.is_alive():
                self.thread = None

    def _run(self) -> None:
        wait, sent = 0.0, float("-inf")
        while not self._stopping:
            self._wake.wait(wait)
            waked = self._wake.is_set()
            self._wake.clear()
            due = waked or monotonic() - sent >= _INTERVAL
            drained = self.turn(due)
            if due:
                sent = monotonic()
            if waked:
                self._insist()
                self._idle.set()
            wait = _FAST if drained > MOST * _FAST / _INTERVAL else _INTERVAL
        self.turn(due=True)
        self._insist()
        self.sockets.close()

    def _insist(self) -> None:
        """Retry a full socket until everything is sent, as long as the caller of ``flush`` waits."""
        while self._waits and self.sockets.full and monotonic() < self._until:
            sleep(_PAUSE)
            self.turn(due=True)

    def turn(self, due: bool) -> int:
        """Take the queue, and send if ``due``. Returns the number of calls taken."""
        try:
            drained = self.drain()
            if due:
                self._send()
        except Exception:  # noqa: BLE001 - a report must never stop the program
            self.dropped += 1
            return 0
        return drained

    def drain(self) -> int:
        """Encode all calls in the queue. Returns their number.

        Calls within one millisecond get consecutive milliseconds. If these run ahead of the clock too far, later values
        replace earlier ones.
        """
        queue = self.queue
        count = len(queue)
        last_step: object = None
        merged: dict[str, object] = {}
        for _ in range(count):
            at, step, values = queue.popleft()
            moment = at // _NS_PER_MS
            if not merged or moment > self._last_ms - _LEAD_MS:
                self._add(self._last_ms, last_step, merged)
                self._last_ms, merged = max(moment, self._last_ms + 1), values
            elif values.keys() == merged.keys():
                self.dropped += len(merged)
                merged = values
            else:
                self.dropped += len(values.keys() & merged.keys())
                merged = {**merged, **values}
            last_step = step
        self._add(self._last_ms, last_step, merged)
        return count

    def _add(self, moment: int, step: object, values: "dict[str, object]") -> None:
        if not values:
            return
        parts = []
        for name, value in values.items():
            try:
                parts.append((self._names.get(name) or self._encode_key(name)) + _number(value))
            except Exception:  # noqa: BLE001 - the name and the value are of any type
                self.dropped += 1
        text = f"[{moment},{_step(step)},{{{','.join(parts)}}}]"
        if not parts or len(text) >= _MOST_TEXT:
            self.dropped += len(parts)
            return
        self.pending.append((text, len(parts)))
        while len(self.pending) > MOST:
            self.dropped += self.pending.popleft()[1]

    def _encode_key(self, name: object) -> str:
        """Return the name as a key of a JSON object, cached because a program repeats its names."""
        key = f"{_json(_text(name, _LONGEST))}:"
        if len(self._names) < _MOST_NAMES:
            self._names[name] = key
        return key

    def _send(self) -> None:
        """Send the waiting reports, as far as the sockets have room."""
        if not self._waits or not self.sockets.open():
            return
        if self.sockets.renewed:
            self._meta_due.update(dict.fromkeys(list(self._meta)))
        self._send_meta()
        while self._events or self.pending:
            events, room = _take_fitting((_event(one) for one in list(self._events)), _MOST_TEXT)
            points, _ = _take_fitting((text for text, _ in self.pending), room)
            if not self._put(events=events, points=points):
                return
            for waiting, sent in ((self._events, events), (self.pending, points)):
                for _ in sent:
                    waiting.popleft()
        if self.dropped:
            self._put()

    def _send_meta(self) -> None:
        """Send the waiting facts, in several messages if necessary."""
        names = list(self._meta_due)
        self._meta_due.clear()  # first, because another thread may change a fact meanwhile
        texts = [f"{_json(_text(name, _LONGEST))}:{_json(_shorten(self._meta[name]))}" for name in names]
        while texts:
            meta, _ = _take_fitting(iter(texts), _MOST_TEXT)
            if not self._put(meta=meta):
                self._meta_due.update(dict.fromkeys(names))
                return
            del texts[: len(meta)], names[: len(meta)]

    def _put(self, **encoded: list[str]) -> bool:
        """Send one message of encoded parts. Return True if a socket has accepted it."""
        dropped = self.dropped
        parts = ['"jobmeter":1', *([f'"dropped":{dropped}'] if dropped else [])]
        for name, texts in encoded.items():
            begin, end = "{}" if name == "meta" else "[]"
            parts += [f'"{name}":{begin}{",".join(texts)}{end}'] if texts else []
        taken = self.sockets.send(f"{{{','.join(parts)}}}".encode())
        if taken:
            self.dropped -= dropped
        return taken


def _json(value: object) -> str:
    import json  # noqa: PLC0415 - see the module

    return json.dumps(value, separators=(",", ":"))


def _take_fitting(texts: "Iterator[str]", room: int) -> tuple[list[str], int]:
    """Return the first texts that fit into a message, and the remaining characters."""
    found: list[str] = []
    for text in texts:
        if len(text) >= room:
            break
        room -= len(text) + 1
        found.append(text)
    return found, room


def _number(value: object) -> str:
    """Return a number as JSON; NaN and infinities become texts. Raises the errors of the value's type."""
    number = float(value)  # type: ignore[arg-type]
    if number - number == 0:
        return repr(number)
    return '"nan"' if number != number else '"inf"' if number > 0 else '"-inf"'  # noqa: PLR0124 - that is NaN


def _step(step: object) -> str:
    try:
        number = "null" if step is None else _number(step)
    except Exception:  # noqa: BLE001 - the step is of any type
        return "null"
    return "null" if number.startswith('"') else number


def _event(event: tuple[int, str, str, str]) -> str:
    moment, level, reason, message = event
    given = level if level in _LEVELS else "info"
    return _json([moment // _NS_PER_MS, given, _text(reason, _LONGEST), _text(message, _LONGEST_MESSAGE)])


def _shorten(fact: object) -> object:
    return _text(fact, _LONGEST_FACT) if isinstance(fact, str) else fact


def _text(value: object, most: int) -> str:
    """Return a text that is valid in JSON: Python's may have halves of surrogate pairs."""
    return str(value)[:most].encode(errors="replace").decode()

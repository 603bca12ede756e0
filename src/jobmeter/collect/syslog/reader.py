"""Thread of the agent that puts the lines of system logs into the outbox: each line once, in order per source."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import msgspec

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.state_file import StateFile
from jobmeter.collect.syslog.base import LogReading, Position, SystemLogEntry, SystemLogSource
from jobmeter.collect.syslog.files import stream_of
from jobmeter.collect.syslog.watch import FileWatch, is_gone
from jobmeter.model.log import LogLine
from jobmeter.model.syslog import convert_severity
from jobmeter.model.time import NS_PER_MS, Clock
from jobmeter.model.token_bucket import TokenBucket
from jobmeter.wire.native.logs import make_logs_frame

_INTERVAL = 0.25
_SCAN_EVERY = 8
"""Rounds between two scans for new files."""
_BREATH = 0.01
"""Seconds between two readings of the kernel's events, so that a busy folder costs little."""
_BURST_SECONDS = 10
"""Seconds of the rate limit whose lines may come at once."""
_READINGS = 8
"""Readings of one source before the next source's turn."""
_log = logging.getLogger(__name__)


class Intent(msgspec.Struct, frozen=True):
    """Lines that are about to be put into the outbox, up to ``end``.

    ``taken`` of them have times from ``first_ns`` on. The intent is stored first: if the agent dies meanwhile, it sends
    the lines again with equal times, and each counts once.
    """

    end: Position
    first_ns: int
    taken: int


class SourcePosition(msgspec.Struct):
    """Read position of a source, and the intent of the next lines, which may have been sent."""

    position: Position
    intent: Intent | None = None


class LogCheckpoint(msgspec.Struct):
    """Positions of all sources. ``last_ns`` is the newest time given to a line of a source without times."""

    places: dict[str, SourcePosition] = {}
    patterns: list[str] = []
    last_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """System logs that an agent reads. ``lines_a_second`` limits each source; further lines are counted."""

    kernel: bool = True
    journal: bool = True
    files: tuple[str, ...] = ()
    lines_a_second: float = 10_000.0


@dataclass(eq=False)
class SystemLogReader:
    """Reads sources in turn. Positions are stored in the file ``state``, if given.

    A position is stored once the lines before it are in the spool; without a spool, once the server has them. While the
    outbox is half full, sources are not read. ``dropped`` counts lines above the rate limit; a line in the log marks
    each gap.
    """

    sources: Sequence[SystemLogSource]
    watch: FileWatch
    place: NodeIdentity
    outbox: Outbox
    clock: Clock
    rate: float
    """Most lines a second of each source."""
    owner_of: Callable[[int], Owner | None] = lambda _pid: None
    state: Path | None = None
    dropped: int = 0
    sent: int = 0
    _unsaved: bool = False
    _unsaveable: bool = False
    _waits: bool = False
    _rounds: int = 0
    _buckets: dict[str, TokenBucket] = field(default_factory=dict)
    _failing: set[str] = field(default_factory=set)
    _stopping: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        """Load the positions, and create the thread."""
        unreadable = "the positions in %s cannot be read (%s): sources are read from where they begin"
        self._file = StateFile(self.state, msgspec.json.Decoder(LogCheckpoint), unreadable)
        self._scanned_ns = self._file.read_written_ns()
        self._saved = self._file.load() or LogCheckpoint()
        self._thread = Thread(target=self._run, name="system logs", daemon=True)

    @property
    def counters(self) -> dict[str, int]:
        """Losses since the start, by metric."""
        return {"agent.log.dropped": self.dropped, "agent.log.files.lost": self.watch.lost}

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read once more, then close the sources."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.round()
        for source in self.sources:
            source.close()
        self.watch.close()

    def round(self) -> bool:
        """Read some lines of each source. True if there are more."""
        if self._rounds % _SCAN_EVERY == 0 or self.watch.is_due:
            self._scan_files()
        self._rounds += 1
        self.watch.notice()
        if self._waits:
            if self.outbox.size:
                return False
            self._waits = False
        self._report_losses()
        more = False
        for source in [*self.sources, *self.watch.sources]:
            for _ in range(_READINGS):
                if self._waits or self.outbox.size > self.outbox.capacity // 2 or not self._read_once(source):
                    break
            else:
                more = True
        if self._unsaved and not self._waits:
            self._save()
        return more

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self.round():
                    self._pause()
            except Exception:  # noqa: BLE001 - what goes wrong now may go right later, and nothing was passed over
                _log.exception("system logs cannot be read now")
                self._stopping.wait(_INTERVAL)

    def _pause(self) -> None:
        """Wait for the next round. Open new log files as soon as the kernel reports them."""
        ends = self.clock.monotonic() + _INTERVAL
        while (left := ends - self.clock.monotonic()) > 0 and not self.watch.is_due:
            if not self.watch.wait(left):
                break
            self.watch.notice()
            if self._stopping.wait(_BREATH):
                return
        if self.watch.wait(0) is None:
            self._stopping.wait(_INTERVAL)

    def _scan_files(self) -> None:
        if self._rounds == 0:
            self._forget([key for key in self._saved.places if is_gone(key)])
        if not self._waits:
            self._forget(self.watch.forget_finished())
        self.watch.scan(self._saved.patterns, self._saved.places, self._scanned_ns)
        # Stored once every file was found: a later file is read from its beginning.
        self._unsaved |= self._saved.patterns != self.watch.patterns

    def _report_losses(self) -> None:
        """Write a line in place of files that were removed before they could be opened."""
        losses = self.watch.count_losses() if self.outbox.size <= self.outbox.capacity // 2 else {}
        if not losses:
            return
        lines = []
        for path, count in losses.items():
            self._saved.last_ns = max(self.clock.now_ms() * NS_PER_MS, self._saved.last_ns + 1)
            what = "a file" if count == 1 else f"{count} files"
            text = f"[jobmeter: {what} of this name was removed before it could be read, lines may be missing here]"
            entry = SystemLogEntry(text, severity=4)
            lines.append(self._make_line(stream_of(path), entry, self._saved.last_ns))
        self.sent += len(lines)
        self._unsaved = True
        self._waits = not self.outbox.put(make_logs_frame(lines))

    def _forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._saved.places.pop(key, None)
            self._buckets.pop(key, None)
            self._failing.discard(key)
            self._unsaved = True

    def _read_once(self, source: SystemLogSource) -> bool:
        """Read a source once. True if another reading may follow now."""
        place = self._saved.places.get(source.key)
        intent = place.intent if place else None
        try:
            if place is not None and intent is not None:
                self._repeat(source, place, intent)
                return True
            reading = source.read(place.position if place else None)
        except OSError as error:
            if source.key not in self._failing:
                _log.warning("%s cannot be read: %s", source.key, error)
            self._failing.add(source.key)
            source.close()
            return False
        self._failing.discard(source.key)
        if reading is None:
            return False
        self._hand_on(source, reading)
        return reading.more

    def _hand_on(self, source: SystemLogSource, reading: LogReading) -> None:
        entries = reading.entries
        if entries:
            now = self.clock.monotonic()
            bucket = self._buckets.get(source.key)
            if bucket is None:
                bucket = self._buckets[source.key] = TokenBucket(self.rate, _BURST_SECONDS * self.rate, now)
            taken = bucket.take(len(entries), now)
            intent = Intent(reading.end, max(self.clock.now_ms() * NS_PER_MS, self._saved.last_ns + 1), taken)
            self._saved.last_ns = intent.first_ns + len(entries)
            if source.key in self._saved.places:
                self._saved.places[source.key].intent = intent
                self._save()
            self._put(source, entries, intent)
        self._saved.places[source.key] = SourcePosition(reading.end)
        self._unsaved = True

    def _repeat(self, source: SystemLogSource, place: SourcePosition, intent: Intent) -> None:
        """Send again the lines that may have been sent before the agent died."""
        reading = source.read(place.position, intent.end)
        if reading is not None and reading.entries:
            self._put(source, reading.entries, intent)
        self._saved.places[source.key] = SourcePosition(intent.end)
        self._unsaved = True

    def _put(self, source: SystemLogSource, entries: list[SystemLogEntry], intent: Intent) -> None:
        sent = enumerate(entries[: intent.taken])
        lines = [self._make_line(source.stream, entry, intent.first_ns + at) for at, entry in sent]
        missing = len(entries) - intent.taken
        if missing > 0:
            self.dropped += missing
            text = f"[jobmeter: {missing} lines are missing here, they came faster than {self.rate:g} a second]"
            note = SystemLogEntry(text, entries[-1].time_ns, severity=4, facility=entries[-1].facility)
            lines.append(self._make_line(source.stream, note, intent.first_ns + len(entries)))
        if lines and not self.outbox.put(make_logs_frame(lines)):
            self._waits = True
        self.sent += len(lines)

    def _make_line(self, stream: str, entry: SystemLogEntry, time_ns: int) -> LogLine:
        owner = self.owner_of(entry.pid) if entry.pid is not None else None
        return LogLine(
            time_ns=time_ns if entry.time_ns is None else entry.time_ns,
            text=entry.text,
            job=owner.job if owner else "",
            project=(owner.project if owner else "") or self.place.project,
            replica=owner.replica if owner else "",
            node=self.place.node,
            stream=stream,
            level=None if entry.severity is None else convert_severity(entry.severity),
            facility=entry.facility,
            severity=entry.severity,
            tag=entry.tag,
        )

    def _save(self) -> None:
        self._saved.patterns = self.watch.patterns
        self._unsaved = False
        try:
            self._file.write(self._saved)
        except OSError as error:
            if not self._unsaveable:
                _log.warning("positions in system logs cannot be stored: %s", error)
            self._unsaveable = True
        else:
            self._unsaveable = False

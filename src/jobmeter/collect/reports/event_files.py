"""Follow TensorBoard's event files that the processes of jobs have open: no change to the program is needed."""

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from jobmeter.collect.base import Samples
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.reports.receiver import ProgramReports, ReportSource
from jobmeter.collect.reports.reporter import ReportedPoint, Reporter
from jobmeter.model.time import SECOND
from jobmeter.wire.tfevents import EventFileReader

MOST_FILES = 256
MOST_BYTES = 256 * 1024
"""Most bytes of all files that one collection reads."""
_NAME = "tfevents"
_MOST_DESCRIPTORS = 1_024
_ENDED_MS = 60_000
"""Time after the last look at a file in a process's descriptors, after which it is closed."""


@dataclass(slots=True)
class _FollowedFile:
    descriptor: int
    reporter: Reporter
    last_ms: int
    reader: EventFileReader = field(default_factory=EventFileReader)


class EventFileCollector:
    """Finds the files every ``every_ms`` and reads what was appended at each collection.

    Their values go to ``reports``, which returns the samples.
    """

    name = "event_files"
    metrics = ()

    def __init__(
        self,
        reports: ProgramReports,
        processes: Callable[[], Iterable[int]],
        clock: SampleClock,
        every_ms: int,
        proc_root: str = "/proc",
    ) -> None:
        self._reports = reports
        self._processes = processes
        self._clock = clock
        self._every_ms = every_ms
        self._proc = proc_root
        self._due_ms = 0
        self._files: dict[tuple[int, int], _FollowedFile] = {}

    def collect(self, now_ms: int) -> Samples:
        """Read the files. Returns no samples of its own."""
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self._every_ms
            for process in self._processes():
                self._find(process, now_ms)
        left = MOST_BYTES
        offset_ms = self._clock.wall_offset_ms()
        for key, file in list(self._files.items()):
            left -= self._read(file, left, offset_ms)
            if file.reader.damaged or now_ms - file.last_ms > max(_ENDED_MS, 3 * self._every_ms):
                os.close(file.descriptor)
                del self._files[key]
        return []

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    def _find(self, process: int, now_ms: int) -> None:
        folder = f"{self._proc}/{process}/fd"
        try:
            names = os.listdir(folder)[:_MOST_DESCRIPTORS]  # noqa: PTH208 - faster
        except OSError:
            return
        for name in names:
            try:
                if _NAME not in os.readlink(f"{folder}/{name}").rpartition("/")[2]:  # noqa: PTH115 - faster
                    continue
                self._follow(process, f"{folder}/{name}", now_ms)
            except OSError:
                continue

    def _follow(self, process: int, path: str, now_ms: int) -> None:
        found = os.stat(path)  # noqa: PTH116 - the file behind the link
        key = found.st_dev, found.st_ino
        if key in self._files:
            self._files[key].last_ms = now_ms
            return
        if not stat.S_ISREG(found.st_mode) or len(self._files) >= MOST_FILES:
            return
        reporter = self._reports.reporter(process)
        if reporter is not None:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self._files[key] = _FollowedFile(descriptor, reporter, now_ms)

    def _read(self, file: _FollowedFile, most: int, offset_ms: int) -> int:
        """Read at most ``most`` bytes. Returns the number of bytes read."""
        try:
            data = os.read(file.descriptor, most) if most > 0 else b""
        except OSError:
            return 0
        points = [
            ReportedPoint(int(event.wall_time * SECOND) + offset_ms, float(event.step), event.values)
            for event in file.reader.feed(data)
            if 0 <= event.wall_time < 2**40
        ]
        if points:
            self._reports.add(file.reporter, ReportSource.FILES, points)
        return len(data)

"""Receivers of the numbers of programs at one place of measurement, with a reader of TensorBoard's files."""

import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.discover.member import Member
from jobmeter.collect.registry import JobCollectors, Planned
from jobmeter.collect.reports.datagrams import DatagramSocket, find_agent_socket, run_socket
from jobmeter.collect.reports.loss_lines import LineNumbers, parse_own_form, read_line
from jobmeter.collect.reports.network import OtlpPort, StatsdPort
from jobmeter.collect.reports.ports import PortOwners
from jobmeter.collect.reports.receiver import ProgramReports, ReportSource
from jobmeter.collect.reports.reporter import ReportedPoint, Reporter
from jobmeter.collect.reports.settings import ProgramSettings
from jobmeter.errors import ConflictError
from jobmeter.model.time import NS_PER_MS, SECOND
from jobmeter.wire.program.places import VARIABLE
from jobmeter.wire.tfevents import EventFileReader

MOST_FILES = 256
MOST_BYTES = 256 * 1024
"""Most bytes of all files that one collection reads."""
_NAME = "tfevents"
_log = logging.getLogger(__name__)
_MOST_DESCRIPTORS = 1_024
_ENDED_MS = 60_000
"""Time after which a file is closed that no process has open."""


@dataclass(slots=True)
class _FollowedFile:
    descriptor: int
    reporter: Reporter
    last_ms: int
    reader: EventFileReader = field(default_factory=EventFileReader)


@dataclass(slots=True, eq=False)
class EventFileCollector:
    """Searches for open files every ``every_ms``, and reads the appended values at each collection.

    The values go to ``reports``, which returns the samples.
    """

    name = "event_files"
    metrics = ()

    reports: ProgramReports
    processes: Callable[[], Iterable[int]]
    clock: SampleClock
    every_ms: int
    proc_root: str = "/proc"
    _due_ms: int = 0
    _files: dict[tuple[int, int], _FollowedFile] = field(default_factory=dict)

    def collect(self, now_ms: int) -> Samples:
        """Read the files. Returns no samples of its own."""
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self.every_ms
            for process in self.processes():
                self._find(process, now_ms)
        left = MOST_BYTES
        offset_ms = self.clock.measure_wall_offset_ms()
        for key, file in list(self._files.items()):
            left -= self._read(file, left, offset_ms)
            if file.reader.damaged or now_ms - file.last_ms > max(_ENDED_MS, 3 * self.every_ms):
                os.close(file.descriptor)
                del self._files[key]
        return []

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()

    def _find(self, process: int, now_ms: int) -> None:
        folder = f"{self.proc_root}/{process}/fd"
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
        reporter = self.reports.find_reporter(process)
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
            self.reports.add(file.reporter, ReportSource.FILES, points)
        return len(data)


class ProgramReceiver:
    """Collector, record source and sockets together. A place that cannot be opened is reported; the others work."""

    def __init__(self, place: NodeIdentity, collectors: JobCollectors, clock: SampleClock, every_ms: int) -> None:
        """``every_ms`` is the interval of searches for event files."""
        self._collectors = collectors
        self._clock = clock
        self._roots: Callable[[int], Member | None] = lambda _pid: None
        self._open: list[DatagramSocket | StatsdPort | OtlpPort] = []
        self._environment: dict[str, str] = {}
        self._form: Callable[[str], LineNumbers | None] | None = None
        self.reports = ProgramReports(place, clock, self._find_member, self._list_products)
        self._files = EventFileCollector(self.reports, self._processes, clock, every_ms)

    @property
    def planned(self) -> list[Planned]:
        """The collectors, at every tick."""
        return [Planned(self._files), Planned(self.reports)]

    def extend_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program, with the variables by which it finds the places.

        The socket of an outer run is replaced; other variables of the user stay.
        """
        own = {name: value for name, value in self._environment.items() if name == VARIABLE}
        return {**self._environment, **environment, **own}

    @property
    def dropped(self) -> dict[str, int]:
        """Messages that were dropped, by reason; reasons without any are absent."""
        counts = {
            "report.unattributed": self.reports.unattributed,
            "report.damaged": self.reports.damaged,
            "report.refused": self.reports.refused,
            "report.lost": sum(one.lost for one in self._open if isinstance(one, StatsdPort)),
        }
        return {reason: count for reason, count in counts.items() if count}

    def read_line(self, owner: Owner, time_ns: int, line: str) -> None:
        """Take the numbers of a line of a replica's output, if the line has a known form."""
        found = read_line(line, self._form)
        if found is not None:
            point = ReportedPoint(time_ns // NS_PER_MS, found.step, found.values)
            self.reports.add(Reporter(owner), ReportSource.LINES, [point])

    def open(
        self,
        settings: ProgramSettings,
        process: int | None = None,
        roots: Callable[[int], Member | None] | None = None,
        say: Callable[[str], None] = _log.warning,
    ) -> None:
        """Open the places; ``process`` is the number of the run that owns them, None for the agent.

        ``roots`` knows processes that may have ended before a scan. ``say`` gets a sentence for each failure.
        """
        self._roots = roots or self._roots
        self._form = parse_own_form(settings.form) if settings.form else None
        owners = PortOwners(self._processes)
        reports = self.reports
        if settings.socket != "":
            self._try("the socket of programs", lambda: self._open_datagrams(settings.socket, process), say)
        if (statsd := settings.statsd) is not None:
            self._try("the port of StatsD", lambda: StatsdPort(statsd, owners, reports.receive), say)
        if (otlp := settings.otlp) is not None:
            self._try("the port of OpenTelemetry", lambda: OtlpPort(otlp, owners, reports, self._clock), say)

    def close(self) -> None:
        """Take what has arrived, and close the places."""
        for one in self._open:
            one.stop()
        self._open.clear()
        self.reports.is_closed = True

    def _try(
        self, what: str, make: Callable[[], DatagramSocket | StatsdPort | OtlpPort], say: Callable[[str], None]
    ) -> None:
        try:
            made = make()
        except (OSError, ConflictError) as error:
            reason = error.message if isinstance(error, ConflictError) else error.strerror or error
            say(f"{what} cannot be opened: {reason}; numbers that programs report there are not received")
            return
        made.start()
        self._open.append(made)
        self._environment |= made.environment

    def _open_datagrams(self, place: str | None, process: int | None) -> DatagramSocket:
        place = place or (find_agent_socket() if process is None else run_socket(process))
        return DatagramSocket(place, self.reports.receive)

    def _find_member(self, pid: int) -> Member | None:
        return self._roots(pid) or self._collectors.table.find_member(pid)

    def _processes(self) -> list[int]:
        return [process.stat.key.pid for process in self._collectors.table.list_processes()]

    def _list_products(self) -> set[str]:
        return {device.name for device in self._collectors.find_devices().values()}

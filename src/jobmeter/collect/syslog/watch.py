"""Files that match the patterns of the settings: opened at the kernel's event, and listed at intervals."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from jobmeter.collect.syslog.base import find_identity, find_rotated, list_live_names
from jobmeter.collect.syslog.changes import Changes
from jobmeter.collect.syslog.files import FileSource
from jobmeter.collect.syslog.inotify import Inotify
from jobmeter.collect.syslog.opening import LogOpener
from jobmeter.collect.syslog.patterns import MOST_ENTRIES, LogPattern, MatchBudget, NamePattern
from jobmeter.collect.syslog.successors import Followed
from jobmeter.model.time import NS_PER_MS, SystemClock

MOST_FILES = 1_000
"""Most files that one agent reads."""
_MARGIN_NS = 10**8
"""Largest lag in nanoseconds of the times of files behind the clock."""
_BATCHES = 16
"""Consecutive readings of events: as many as the kernel stores."""
_FILE = "file:"
_CLOCK = SystemClock()
_log = logging.getLogger(__name__)


class FileWatch:
    """Finds the files that match patterns. Rotated files belong to their live file. For one thread.

    A file that exists at the first scan of its pattern is read from its end on, a later one from its beginning. A file
    is opened when the kernel reports it, because it may be renamed or removed before it is read. Network file systems
    report nothing: there files are found by listing the folders, and rotated files by usual names.
    """

    def __init__(self, patterns: Sequence[str], now_ms: Callable[[], int] = _CLOCK.now_ms) -> None:
        self.lost = 0
        """Files that were removed before they could be opened."""
        self._patterns = [LogPattern(pattern) for pattern in patterns]
        self._now_ms = now_ms
        self._opener = LogOpener()
        self._sources: dict[Path, FileSource] = {}
        self._names: dict[str, set[NamePattern]] = {}
        self._remembered: Collection[str] = ()
        self._scanned_ns: int | None = None
        self._listed = False
        self._changes = Changes(self)
        self._inotify: Inotify | None = None
        self._losses: Counter[Path] = Counter()
        self._warned: set[str] = set()

    @property
    def patterns(self) -> list[str]:
        """Absolute patterns."""
        return [pattern.text for pattern in self._patterns]

    @property
    def sources(self) -> list[FileSource]:
        """Source of each file."""
        return list(self._sources.values())

    @property
    def is_due(self) -> bool:
        """True if the folders have to be listed now: some are new, or events were lost."""
        return not self._listed

    def scan(self, met: Collection[str], remembered: Collection[str], since_ns: int | None = None) -> list[FileSource]:
        """Return a source for each existing file.

        ``met`` are patterns of an earlier call, ``remembered`` the keys of stored positions. ``since_ns`` is the time
        of an earlier process's last scan; later files are read even if they were rotated.
        """
        if self._scanned_ns is None:
            self._start()
        else:
            since_ns = self._scanned_ns
        self.notice()
        now_ns = self._now_ms() * NS_PER_MS
        self._scanned_ns = now_ns - _MARGIN_NS
        self._remembered = remembered
        self._listed = True
        names: dict[str, set[NamePattern]] = {}
        read = _group_by_folder(map(str, self._sources))
        stored = _group_by_folder(key.removeprefix(_FILE) for key in remembered)
        owners: dict[tuple[int, int], Path] = {}
        for pattern in self._patterns:
            budget = MatchBudget()
            for directory in pattern.list_directories(budget):
                names.setdefault(directory, set()).add(pattern.name)
                if self._inotify is not None:
                    self._inotify.watch(directory)
                found = set(pattern.list_names(directory, budget))
                for path in self._find_new_files(directory, found, read[directory], stored[directory]):
                    if path in self._sources:
                        continue  # another pattern matches it too
                    if f"{_FILE}{path}" in remembered:
                        self._add(FileSource(path, self._opener))
                    elif pattern.text not in met:
                        self._add_if_open(FileSource(path, self._opener, from_end=True))
                    else:
                        owners = owners or self._map_owners()
                        self._begin(path, path, owners.get(find_identity(path) or (0, 0)), since_ns or now_ns)
            if budget.left < 0:
                self._warn(f"more than {MOST_ENTRIES} names are in the folders of {pattern.text}: the rest is ignored")
        self._names = names
        self.notice()
        return self.sources

    def notice(self) -> None:
        """Open the files that the kernel reports."""
        for _ in range(_BATCHES):
            changes = self._inotify.read() if self._inotify is not None else []
            if not changes:
                break
            self._changes.apply(changes)
        for live, count in self._changes.open().items():
            self.lost += count
            named = live in self._losses or len(self._losses) < MOST_FILES
            self._losses[live if named else live.parent] += count

    def wait(self, seconds: float) -> bool | None:
        """Wait for the kernel's next report. True if there is one; None if reports are not available."""
        return self._inotify.wait(seconds) if self._inotify is not None else None

    def count_losses(self) -> dict[Path, int]:
        """Return the number of files of each path that were removed before they were opened, since the last call."""
        found, self._losses = dict(self._losses), Counter()
        return found

    def forget_finished(self) -> list[str]:
        """Drop the files that are gone and were read to their ends. Return their keys."""
        finished = [path for path, source in self._sources.items() if source.finished]
        for path in finished:
            self._sources.pop(path).close()
            self._changes.forget(path)
        return [f"{_FILE}{path}" for path in finished]

    def close(self) -> None:
        """Close all files."""
        for source in self._sources.values():
            source.close()
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def request_scan(self) -> None:
        """Request a listing of all folders."""
        self._listed = False

    def find_live_path(self, path: Path) -> Path | None:
        """Return the live path that a path is or was rotated from; None for any other path."""
        patterns = self._names.get(str(path.parent), set())
        lives = [
            path.parent / name for name in list_live_names(path.name) if any(pattern.fits(name) for pattern in patterns)
        ]
        for live in lives:
            if live in self._sources or f"{_FILE}{live}" in self._remembered:
                return live
            if self._changes.expects(live) or find_identity(live):
                return live
        if any(pattern.fits(path.name) for pattern in patterns):
            return path
        return lives[0] if lives else None

    def follow(self, live: Path, path: Path, reader: Path | None, *, is_new: bool) -> Followed:
        """Open the file at ``path`` for a live path.

        ``reader`` is the live path for which it is already open. ``is_new``: it appeared while its folder was watched.
        """
        return self._begin(live, path, reader, self._scanned_ns or 0, is_new=is_new)

    def count_opened(self, live: Path) -> int:
        """Return the number of opened files of a live path since ``balance``."""
        return self._sources[live].later.opened if live in self._sources else 0

    def balance(self, live: Path | None = None) -> None:
        """Reset the count of opened files of a live path, or of all."""
        for source in self._sources.values() if live is None else filter(None, [self._sources.get(live)]):
            source.later.opened = 0

    def _start(self) -> None:
        try:
            self._inotify = Inotify() if self._patterns else None
        except OSError as error:
            self._warn(f"the kernel does not report new log files ({error}): they are listed every two seconds")

    def _find_new_files(self, directory: str, names: set[str], read: set[str], remembered: set[str]) -> list[Path]:
        """Return the unread files with these names that are not rotated."""
        lives = names | read | remembered
        new = sorted(name for name in names - read if lives.isdisjoint(list_live_names(name)))
        return [path for path in (Path(directory, name) for name in new) if path.is_file()]

    def _map_owners(self) -> dict[tuple[int, int], Path]:
        """Return the path under which each file was read so far."""
        return {file: path for path, source in self._sources.items() for file in source.files}

    def _begin(self, live: Path, path: Path, reader: Path | None, since_ns: int, *, is_new: bool = True) -> Followed:
        """Open a file for a live path. A file that is open for another live path is continued."""
        source = self._sources.get(live)
        if source is not None and source.later.is_full:
            return Followed.FULL
        owner = self._sources.get(reader) if reader is not None and reader != live else None
        file = find_identity(path)
        at = owner.release(file) if owner and file and find_identity(owner.path) != file else None
        if source is not None:
            return source.follow(path, at, is_new=is_new)
        source = FileSource(live, self._opener, since_ns=since_ns)
        followed = source.follow(path, at, is_new=is_new)
        if followed is not Followed.OPENED:
            return followed
        source.later.gather()
        return followed if self._add(source) else Followed.REFUSED

    def _add_if_open(self, source: FileSource) -> None:
        if source.files:
            self._add(source)

    def _add(self, source: FileSource) -> bool:
        """Read a file from now on, unless there are too many."""
        if len(self._sources) < MOST_FILES:
            self._sources[source.path] = source
            return True
        source.close()
        self._warn(f"the patterns of log files name more than {MOST_FILES} files: further files are ignored")
        return False

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)


def _group_by_folder(paths: Iterable[str]) -> defaultdict[str, set[str]]:
    """Return the names in each folder."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        folder, _, name = path.rpartition("/")
        found[folder or "/"].add(name)
    return found


def is_gone(key: str) -> bool:
    """Return True if the file of a stored position no longer exists under any name."""
    path = Path(key.removeprefix(_FILE))
    return key.startswith(_FILE) and find_identity(path) is None and not find_rotated(path)

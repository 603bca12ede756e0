"""The files that match the patterns of an agent's settings, listed at intervals."""

import glob
import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from jobmeter.collect.syslog.files import FileSource
from jobmeter.collect.syslog.rotation import identity, is_rotated, rotated

MOST_FILES = 1_000
"""Most files that one agent reads."""
_log = logging.getLogger(__name__)


class FileWatch:
    """Finds the files that match patterns, without rotated ones, which belong to their live file.

    A file that exists at the first scan of its pattern is read from its end on, a later one from its beginning.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [str(Path(pattern).absolute()) for pattern in patterns]
        self._sources: dict[Path, FileSource] = {}
        self._full = False

    @property
    def patterns(self) -> list[str]:
        """The patterns, absolute."""
        return list(self._patterns)

    def scan(self, met: Collection[str], remembered: Collection[str]) -> list[FileSource]:
        """A source for each existing file.

        ``met`` are patterns of an earlier call, ``remembered`` the keys of stored positions.
        """
        for pattern in self._patterns:
            found = sorted(Path(name) for name in glob.glob(pattern, recursive=True))  # noqa: PTH207 - of an absolute pattern
            for path in found:
                if path in self._sources or not path.is_file():
                    continue
                others = {*found, *self._sources, *(Path(key.removeprefix("file:")) for key in remembered)} - {path}
                if any(is_rotated(path, other) for other in others):
                    continue
                self._add(path, from_end=pattern not in met and f"file:{path}" not in remembered)
        return list(self._sources.values())

    def forget_finished(self) -> list[str]:
        """Drop the files that are gone and were read to their ends; gives their keys.

        A later file of the same name is read from its beginning.
        """
        finished = [path for path, source in self._sources.items() if source.finished]
        for path in finished:
            del self._sources[path]
        self._full = self._full and not finished
        return [f"file:{path}" for path in finished]

    def close(self) -> None:
        """Close all files."""
        for source in self._sources.values():
            source.close()

    def _add(self, path: Path, *, from_end: bool) -> None:
        if len(self._sources) < MOST_FILES:
            self._sources[path] = FileSource(path, from_end=from_end)
        elif not self._full:
            self._full = True
            _log.warning("the patterns of log files name more than %d files: the others are left out", MOST_FILES)


def is_gone(key: str) -> bool:
    """Whether the file of a stored position no longer exists under any name."""
    path = Path(key.removeprefix("file:"))
    return key.startswith("file:") and identity(path) is None and not rotated(path)

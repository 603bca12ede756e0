"""Follow new log files by the kernel's events, whatever their names become: each is opened, or counted as lost."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobmeter.collect.syslog.inotify import CREATE, DELETE, MOVED_FROM, MOVED_TO, FileChange
from jobmeter.collect.syslog.successors import Followed

if TYPE_CHECKING:
    from jobmeter.collect.syslog.watch import FileWatch


_MOST_NAMES = 10_000
"""Most files that wait to be opened; further ones are lost. Also the most remembered names of open files."""
_TRIES = 2
"""Searches for a file that has gone. The event with its new name may still arrive."""


@dataclass(slots=True)
class _File:
    """File: the live path of its lines, and the live path for which it is open."""

    live: Path
    reader: Path | None = None
    tries: int = 0

    @property
    def is_new(self) -> bool:
        """True until it was opened."""
        return self.reader is None


@dataclass(slots=True)
class _Move:
    """File that was moved away and whose new name is unknown."""

    file: _File | None
    tries: int = 0


class Changes:
    """Applies the kernel's events: follows files from name to name, and opens new ones.

    A new file that was never opened is lost. The numbers of opened and new files are compared, because the name in an
    event may already lead to another file.
    """

    def __init__(self, files: "FileWatch") -> None:
        self._files = files
        self._due: dict[Path, _File] = {}
        self._aside: dict[Path, _File] = {}
        self._moves: dict[int, _Move] = {}
        self._born: Counter[Path] = Counter()
        self._quiet = True

    def expects(self, path: Path) -> bool:
        """Return True for a path at which a new file waits to be opened."""
        return path in self._due

    def apply(self, changes: Iterable[FileChange]) -> None:
        """Apply events, in order."""
        self._quiet = False
        for change in changes:
            if change.lost or change.is_directory:
                self._files.request_scan()
                continue
            path = Path(change.directory, change.name)
            if change.kind == CREATE:
                self._appear(path)
            elif change.kind == MOVED_FROM:
                self._moves[change.cookie] = _Move(self._leave(path))
            elif change.kind == MOVED_TO:
                move = self._moves.pop(change.cookie, None)
                self._arrive(path, move.file if move else None)
            elif change.kind == DELETE:
                self._drop(path)

    def open(self) -> dict[Path, int]:
        """Open the new files. Return the number of lost files of each live path."""
        # Files that are open for another path are handed over first: a search for rotated files would open them again.
        for path, file in sorted(self._due.items(), key=lambda item: item[1].reader in {None, item[1].live}):
            followed = self._files.follow(file.live, path, file.reader, is_new=file.is_new)
            if followed is Followed.FULL:
                continue
            if followed is Followed.ABSENT and file.tries < _TRIES:
                file.tries += 1
                continue
            if file.is_new and followed is Followed.REFUSED:
                self._born[file.live] -= 1
            del self._due[path]
            file.reader = file.live
            if self._files.find_live_path(path) != file.live:
                self._aside[path] = file
                if len(self._aside) > _MOST_NAMES:
                    del self._aside[next(iter(self._aside))]
        for cookie, move in list(self._moves.items()):
            move.tries += 1
            if move.tries > _TRIES:  # it was moved to where no event is seen
                del self._moves[cookie]
        return self._list_missing()

    def forget(self, live: Path) -> None:
        """Drop a live path whose files were read to their ends and are gone."""
        self._born.pop(live, None)

    def _appear(self, path: Path) -> None:
        """Handle a new file. It is opened if its path is live."""
        self._drop(path)
        if self._files.find_live_path(path) == path:
            self._born[path] += 1
            self._open_later(path, _File(path))

    def _leave(self, path: Path) -> _File | None:
        """Return the file that is moved away from a name."""
        file = self._drop(path)
        live = self._files.find_live_path(path)
        return file or (_File(live, live) if live is not None else None)

    def _arrive(self, path: Path, file: _File | None) -> None:
        """Handle a file that was moved to a path; None: from an unwatched folder."""
        if file is None:
            self._appear(path)
            return
        if self._files.find_live_path(path) == path != file.live:
            if file.is_new:  # its lines belong to another path now
                self._born[file.live] -= 1
                self._born[path] += 1
            file.live = path
        self._drop(path)  # a file that was moved over is gone
        self._open_later(path, file)

    def _open_later(self, path: Path, file: _File) -> None:
        file.tries = 0
        if len(self._due) < _MOST_NAMES:
            self._due[path] = file

    def _drop(self, path: Path) -> _File | None:
        """Drop and return the file of a name."""
        aside = self._aside.pop(path, None)
        return self._due.pop(path, aside)

    def _list_missing(self) -> dict[Path, int]:
        waiting = {file.live for file in self._due.values()}
        waiting |= {move.file.live for move in self._moves.values() if move.file is not None}
        found: dict[Path, int] = {}
        for live, born in list(self._born.items()):
            missing = born - self._files.count_opened(live)
            if missing > 0 and live not in waiting:
                found[live] = missing
                del self._born[live]
                self._files.balance(live)
        if self._quiet and not waiting:
            self._born.clear()
            self._files.balance()
        self._quiet = True
        return found

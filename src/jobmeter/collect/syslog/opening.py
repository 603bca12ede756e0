"""Open log files in folders in which other users can create files.

An agent may read more than a user whose log it reads: root's files, and files of other users. So a name in a folder
does not prove that its owner meant this file to be read. A file is opened only if the user who put it there could read
it anyway:

- It is a regular file: no pipe, no device, no socket.
- A symbolic link anywhere in the path was made by root or the agent's own user, or the opened file belongs to the user
  who made the link.
- A file in a folder of another user belongs to that user too, or everybody may read it. The same holds for folders that
  everybody may change, and may move files of others into.
- A file with several hard links lies in a folder that only its owner, root or the agent's own user can write to.

The path is walked folder by folder on open descriptors, so that nothing can be exchanged between check and use.
"""

import errno
import logging
import os
import resource
import stat
from collections import deque
from pathlib import Path
from typing import Self

from jobmeter.collect import files

_MOST_LINKS = 40
_MOST_WARNINGS = 100
_WITHOUT_A_WORD = {errno.ENOENT, errno.ENOTDIR}
_PASS = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_log = logging.getLogger(__name__)


class FileRefusedError(OSError):
    """Path that another user may have redirected to a file of somebody else, or that is no regular file."""


def open_trusted(path: Path) -> int:
    """Return a descriptor for reading the file at an absolute path.

    Raises FileRefusedError if the rules of this module forbid it, other OSErrors as ``os.open``.
    """
    with _Walk() as walk:
        end = walk.open_path(path)
        status = os.fstat(end)
        if not stat.S_ISREG(status.st_mode):
            raise FileRefusedError("it is not a regular file")
        if strangers := walk.strangers - {status.st_uid}:
            raise FileRefusedError(f"a symbolic link of user {min(strangers)} leads to a file of user {status.st_uid}")
        if walk.is_exposed(status.st_uid) and not status.st_mode & stat.S_IROTH:
            raise FileRefusedError("others can put files into its folder, and not everybody may read it")
        if status.st_nlink > 1 and walk.is_shared(status.st_uid):
            raise FileRefusedError("it has several hard links, in a folder that others can write to")
        # Opens the checked inode, although its name may lead to another file by now.
        return os.open(f"/proc/self/fd/{end}", _READ)


class _Walk:
    """Walk along a path, as a context manager. ``strangers`` are the untrusted users whose links were followed."""

    def __init__(self) -> None:
        self.strangers: set[int] = set()
        self._trusted = {0, os.geteuid()}
        self._links = 0
        self._folder = os.open("/", _PASS)
        self._found: int | None = None
        self._proc = _device_of_proc()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._folder)
        if self._found is not None:
            os.close(self._found)

    def open_path(self, path: Path) -> int:
        """Walk to a path and return the descriptor of its file, open until the walk ends."""
        names = deque(path.parts[1:])
        while names:
            if self._found is not None:
                os.close(self._folder)
                self._folder, self._found = self._found, None
            self._step(names.popleft(), names)
        return self._folder if self._found is None else self._found

    def is_shared(self, owner: int) -> bool:
        """Return True if others than the owner of the file can put files into its folder."""
        status = os.fstat(self._folder)
        return self._is_foreign(status, owner) or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))

    def is_exposed(self, owner: int) -> bool:
        """Return True if others can put files into the folder that are not theirs, by moving or linking them."""
        status = os.fstat(self._folder)
        open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        return self._is_foreign(status, owner) or bool(open_to_all) or (self.is_shared(owner) and not _protects_links())

    def _is_foreign(self, folder: os.stat_result, owner: int) -> bool:
        return folder.st_uid not in {*self._trusted, owner}

    def _step(self, name: str, names: "deque[str]") -> None:
        """Advance by one name. The target of a link goes before the other names."""
        found = os.open(name, _PASS | os.O_NOFOLLOW, dir_fd=self._folder)
        status = os.fstat(found)
        if not stat.S_ISLNK(status.st_mode):
            self._found = found
            return
        try:
            self._count_link(status)
            if status.st_dev == self._proc:  # the target of /proc/1/root is not a name that could be walked to
                self._found = os.open(name, _PASS, dir_fd=self._folder)
                return
            target = os.readlink("", dir_fd=found)
        finally:
            os.close(found)
        names.extendleft(reversed([part for part in target.split("/") if part not in {"", "."}]))
        if target.startswith("/"):
            os.close(self._folder)
            self._folder = os.open("/", _PASS)

    def _count_link(self, status: os.stat_result) -> None:
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if status.st_uid not in self._trusted:
            self.strangers.add(status.st_uid)
        elif status.st_nlink > 1 and self.is_shared(status.st_uid):
            raise FileRefusedError("a symbolic link has several names, one in a folder that others can write to")


def allow_open_files(most: int) -> None:
    """Raise this process's limit of open files to ``most``, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _protects_links() -> bool:
    """Return True if users may only hard-link files that they may read and write.

    https://docs.kernel.org/admin-guide/sysctl/fs.html#protected-hardlinks.
    """
    return files.read_text("/proc/sys/fs/protected_hardlinks") not in {"", "0"}


def _device_of_proc() -> int | None:
    try:
        return os.stat("/proc").st_dev  # noqa: PTH116 - each opening does it
    except OSError:
        return None


class LogOpener:
    """Opens log files, and logs once per path why it is not read. For one thread.

    ``waiting`` counts the open files of all paths that are not read yet.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._warned: set[Path] = set()

    def open(self, path: Path) -> int | None:
        """Return a descriptor for reading; None if the path does not exist or may not be read."""
        try:
            return open_trusted(path)
        except OSError as error:
            if error.errno not in _WITHOUT_A_WORD and path not in self._warned:
                self._warn(path, error)
            return None

    def _warn(self, path: Path, error: OSError) -> None:
        if len(self._warned) < _MOST_WARNINGS:
            self._warned.add(path)
            more = "" if len(self._warned) < _MOST_WARNINGS else "; further files are not logged"
            _log.warning("the log file %s is not read: %s%s", ascii(str(path)), error.strerror or error, more)

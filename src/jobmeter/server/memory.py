"""Returns memory that is not in use to the system."""

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FIRST_SECONDS, _INTERVAL_SECONDS = 1.0, 60.0
_MAPPINGS = Path("/proc/self/smaps")
_DONTNEED = 4
_LARGE_BYTES = 16 * 2**20
_HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+)")


class Tidying:
    """See ``Work``. Once a minute: after an import or a burst of samples the C library retains hundreds of MiB.

    The first round, soon after the start, lets go of the code that the start alone ran. A few milliseconds, without the
    interpreter's lock. Nothing where the C library is not glibc.
    """

    name = "tidy"

    def __init__(self) -> None:
        self.interval = _FIRST_SECONDS
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def round(self) -> None:
        """Give back what is free now."""
        if self._trim is not None:
            self._trim(0)
        if self.interval != _INTERVAL_SECONDS:
            self.interval = _INTERVAL_SECONDS
            unmap_files()


def unmap_files() -> int:
    """Take the pages of large files that this process only reads out of its memory; gives how many bytes those were.

    The engine's library is most of it: its start touches a large part of its code, and of that little is run again.
    Whatever is, comes back from the system's cache of files. Nothing where the system is not Linux.
    """
    try:
        mappings = _MAPPINGS.read_text(errors="replace")
    except OSError:
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    return sum(
        one.resident
        for one in _read(mappings)
        # A page that the process has changed would be lost: such a mapping stays as it is.
        if one.of_file
        and not one.writable
        and not one.changed
        and one.resident >= _LARGE_BYTES
        and advise(one.start, one.end - one.start, _DONTNEED) == 0
    )


class _Mapping(NamedTuple):
    start: int
    end: int
    writable: bool
    of_file: bool
    resident: int
    changed: int


def _read(text: str) -> Iterator[_Mapping]:
    """The mappings that a file of the form of ``/proc/PID/smaps`` lists; sizes in bytes."""
    head: re.Match[str] | None = None
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        if found := _HEAD.match(line):
            head, sizes = found, {}
            continue
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            sizes[name] = int(value[:-3]) * 1024
        elif name == "VmFlags" and head is not None:  # the last line of each
            start, end, modes, inode = head.groups()
            yield _Mapping(
                int(start, 16), int(end, 16), "w" in modes, inode != "0", sizes.get("Rss", 0), sizes.get("Anonymous", 1)
            )

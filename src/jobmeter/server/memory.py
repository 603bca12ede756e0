"""Return unused memory to the system, and collect garbage seldom."""

import ctypes
import gc
import re
from pathlib import Path

_FIRST_SECONDS, _INTERVAL_SECONDS = 1.0, 60.0
_MAPPINGS = Path("/proc/self/smaps")
_DONTNEED = 4
_LARGE_BYTES = 2**20
_BLOCKS = re.compile(r"^(?=[0-9a-f]+-[0-9a-f]+ )", re.MULTILINE)
"""Start of each mapping in ``/proc/PID/smaps``."""
_MAPPING = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+).*?^Rss: +(\d+) kB.*?^Anonymous: +(\d+) kB", re.MULTILINE | re.DOTALL
)

_COLLECTED = (20_000, 20, 20)
"""Garbage collector thresholds: new objects before a young collection, and collections of the older generations."""


def freeze_objects() -> None:
    """Exempt existing objects from garbage collection: they live as long as the process.

    The few garbage objects among them stay too: finding them takes longer than a first request should wait.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECTED)
    gc.enable()


class Tidying:
    """Background work that returns unused memory once a minute.

    After an import or a burst of samples the C library retains hundreds of MiB. The first round, soon after the start,
    also releases code that only the start ran. A round takes a few milliseconds without the interpreter's lock. Does
    nothing if the C library is not glibc.
    """

    name = "tidy"

    def __init__(self) -> None:
        self.interval = _FIRST_SECONDS
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def round(self) -> None:
        """Release the memory that is free now."""
        if self._trim is not None:
            self._trim(0)
        if self.interval != _INTERVAL_SECONDS:
            self.interval = _INTERVAL_SECONDS
            unmap_files()


def unmap_files() -> int:
    """Drop the resident pages of large files that this process only reads. Returns their bytes.

    Most of it is code of libraries, above all of the engine, that only a start runs. Pages in use come back from the
    page cache. Does nothing outside Linux.
    """
    try:
        mappings = _MAPPINGS.read_text(errors="replace")
    except OSError:
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    freed = 0
    for block in _BLOCKS.split(mappings):
        found = _MAPPING.match(block)
        if found is None:
            continue
        start, end, modes, inode, resident, changed = found.groups()
        size = int(resident) * 1024
        # A page that the process has changed would be lost, so such a mapping stays.
        unchanged = inode != "0" and "w" not in modes and changed == "0"
        if unchanged and size >= _LARGE_BYTES and advise(int(start, 16), int(end, 16) - int(start, 16), _DONTNEED) == 0:
            freed += size
    return freed

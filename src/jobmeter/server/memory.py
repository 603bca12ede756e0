"""Return unused memory to the system, and collect garbage seldom."""

import ctypes
import gc
import mmap
import re
from pathlib import Path
from tempfile import TemporaryFile

_FIRST_SECONDS, _INTERVAL_SECONDS = 1.0, 60.0
_MAPPINGS = Path("/proc/self/smaps")
_DONTNEED = 4
_MAP_FIXED = 16
_LARGE_BYTES, _MOVED_BYTES = 2**16, 2**20
"""Resident pages of a file that are worth a call, and changed pages that are worth a file."""
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

    def __init__(self, folder: Path) -> None:
        """``folder`` is on a disk; see ``unmap_files``."""
        self._folder = folder
        self.interval = _FIRST_SECONDS
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)

    def round(self) -> None:
        """Release the memory that is free now."""
        if self._trim is not None:
            self._trim(0)
        if self.interval != _INTERVAL_SECONDS:
            self.interval = _INTERVAL_SECONDS
            unmap_files(self._folder)


def unmap_files(folder: Path | None = None) -> int:
    """Drop the resident pages of files that this process only reads. Returns their bytes.

    Most of it is code of libraries, above all of the engine, that only a start runs. Pages in use come back from the
    page cache. A library's addresses that the start wrote are moved into a file in the folder first, if one is given;
    nobody else can open the file. Does nothing outside Linux.
    """
    try:
        mappings = _MAPPINGS.read_text(errors="replace")
    except OSError:
        return 0
    library = ctypes.CDLL(None)
    library.madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    freed = 0
    for block in _BLOCKS.split(mappings):
        found = _MAPPING.match(block)
        if found is None:
            continue
        begin, end, modes, inode, resident, changed = found.groups()
        start, length, size = int(begin, 16), int(end, 16) - int(begin, 16), int(resident) * 1024
        if inode == "0" or "w" in modes or size < _LARGE_BYTES:
            continue
        if changed != "0":
            # Pages that the process has changed would be lost.
            if folder is None or modes != "r--p" or int(changed) * 1024 < _MOVED_BYTES:
                continue
            try:
                _move_to_file(library, start, length, folder)
            except OSError:
                continue  # the disk is full, or has an error
        if library.madvise(start, length, _DONTNEED) == 0:
            freed += size
    return freed


def _move_to_file(library: ctypes.CDLL, start: int, length: int, folder: Path) -> None:
    """Map a new file with the content of a mapping that is only read in place of the mapping. Raises OSError."""
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    with TemporaryFile(dir=folder) as file:
        file.write((ctypes.c_char * length).from_address(start))
        file.flush()
        flags = mmap.MAP_PRIVATE | _MAP_FIXED
        if library.mmap(start, length, mmap.PROT_READ, flags, file.fileno(), 0) != start:
            raise OSError("a file cannot be mapped")

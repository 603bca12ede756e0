"""Load the driver's library, and load it again if it appeared or was replaced while the agent ran.

The dynamic linker alone is not enough. It remembers that a folder was missing, and returns a loaded library for its
name although the file has another version by now. A partly written file ends the process with SIGBUS. So the library is
unloaded before the next attempt, searched by path, and its file has to be complete.
"""

import _ctypes
import ctypes
import os
from importlib import import_module
from pathlib import Path
from struct import Struct
from types import ModuleType

from jobmeter.collect import files

LIBRARY = "libnvidia-ml.so.1"
_CONFIGURATION = Path("/etc/ld.so.conf")
FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib64-nvidia",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/run/opengl-driver/lib",
)
"""Folders of the dynamic linker, of driver containers, Google's nodes, NixOS and WSL."""
_ELF64 = b"\x7fELF\x02\x01"
"""A 64-bit file, little endian."""
_HEADER = Struct("<32sQQ6xHHHH2x")
"""ELF header: the positions of its tables of segments and sections, and the size and number of their entries.

https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html.
"""
_SEGMENT = Struct("<8xQ16xQ16x")
"""ELF segment: its position in the file, and its length there."""


class LibraryLoader:
    """Loads the module ``pynvml``, bound to the current library. For one thread.

    ``load`` and ``unload`` make all handles invalid. No call of the library may be running.
    """

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None

    def load(self) -> ModuleType | None:
        """Load the library and return the module; None without a loadable library."""
        former = _list_mapped_folders() if self._library is not None else []
        self.unload()
        named = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        folders = dict.fromkeys((*former, *filter(None, named), *_list_configured_folders(), *FOLDERS))
        paths = [path for folder in folders if (path := Path(folder, LIBRARY)).exists()]
        names = [str(path) for path in paths if is_whole(path)] if paths else [LIBRARY]
        for name in names:
            try:
                self._library = ctypes.CDLL(name)
            except OSError:
                continue
            return _bound(self._library)
        return None

    def unload(self) -> None:
        """Unload the library if it is loaded."""
        if self._library is not None:
            _ctypes.dlclose(self._library._handle)  # noqa: SLF001 - ctypes has no other way
            self._library = None


def _bound(library: ctypes.CDLL) -> ModuleType:
    """Bind the module permanently to a library."""
    module = import_module("pynvml")
    module.nvmlLib = library  # type: ignore[attr-defined]
    module._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
    return module


def _list_mapped_folders() -> list[str]:
    """Return the folders of the library's files that this process has mapped, including deleted ones."""
    maps = (files.read("/proc/self/maps") or b"").decode(errors="replace")
    paths = (line.split(maxsplit=5)[5] for line in maps.splitlines() if "/libnvidia-ml.so" in line)
    return list(dict.fromkeys(path.rpartition("/")[0] for path in paths))


def _list_configured_folders() -> list[str]:
    """Return the folders of the dynamic linker's configuration, as ldconfig(8) reads it."""
    found = []
    for path in (_CONFIGURATION, *sorted(_CONFIGURATION.with_name("ld.so.conf.d").glob("*.conf"))):
        lines = (files.read(str(path)) or b"").decode(errors="replace").splitlines()
        found += [folder for line in lines if (folder := line.partition("#")[0].strip()).startswith("/")]
    return found


def is_whole(path: Path) -> bool:
    """Return True for a library file that is completely written: it contains everything that its headers name."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size or not header.startswith(_ELF64):
                return False
            _, segments, sections, segment_size, count, section_size, section_count = _HEADER.unpack(header)
            file.seek(segments)
            table = file.read(segment_size * count)
    except OSError:
        return False
    if len(table) < segment_size * count or sections + section_size * section_count > size:
        return False
    return all(sum(_SEGMENT.unpack_from(table, segment_size * at)) <= size for at in range(count))

import ctypes
import mmap
import os
import sys
from pathlib import Path

import pytest

from jobmeter.server.memory import Tidying, unmap_files

_MEBIBYTE = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux'")


def _resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_what_is_free_between_what_is_used_goes_back(tmp_path):
    blocks = [bytes(8_000) for _ in range(20_000)]
    for first in range(0, len(blocks), 100):
        blocks[first : first + 99] = [b""] * 99
    before = _resident()
    Tidying(tmp_path).round()
    assert _resident() < before - 80_000_000
    assert {len(one) for one in blocks} == {0, 8_000}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "library"
    path.write_bytes(b"".join(bytes([one]) * _MEBIBYTE for one in range(40)))
    return path


def _mapped(path):
    """Return the resident bytes of the file, and the part that this process has changed."""
    sizes = {"Rss": 0, "Anonymous": 0}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and not line.split()[0].endswith(":"):
            inside = line.endswith(str(path))
        elif inside and line.split(":")[0] in sizes:
            sizes[line.split(":")[0]] += int(line.split()[1]) * 1024
    return sizes["Rss"], sizes["Anonymous"]


@linux
def test_files_that_are_only_read_leave_memory_and_come_back_as_they_were(file):
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapping:
        content = mapping[:]
        assert _mapped(file) == (40 * _MEBIBYTE, 0)
        assert unmap_files() >= 40 * _MEBIBYTE
        assert _mapped(file) == (0, 0)
        assert mapping[:] == content


def _protect(mapping):
    """Protect the mapping as a library's relocated addresses are: written once, then only read."""
    place = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    libc = ctypes.CDLL(None, use_errno=True)
    protected = libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(len(mapping)), mmap.PROT_READ)
    assert protected == 0, os.strerror(ctypes.get_errno())


def _resident_file(name):
    """Return the resident and the changed bytes of a mapping by its first address."""
    block = Path("/proc/self/smaps").read_text().partition(f"{name:x}-")[2]
    fields = dict(line.split(":", 1) for line in block.splitlines()[1:20] if ":" in line)
    return tuple(int(fields[key].split()[0]) * 1024 for key in ("Rss", "Anonymous"))


@linux
def test_what_the_process_changed_of_a_file_stays(file, tmp_path):
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE) as mapping:
        mapping[5:10] = b"fixed"
        _protect(mapping)
        content = mapping[:]
        for folder in (None, tmp_path):  # a few changed pages are not worth a file
            unmap_files(folder)
            assert _mapped(file)[1] > 0
        assert mapping[:] == content
        assert mapping[5:10] == b"fixed"


@linux
def test_large_changes_of_a_file_that_is_only_read_are_moved_to_a_file_of_its_own(file, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE) as mapping:
        mapping[: 2 * _MEBIBYTE] = os.urandom(2 * _MEBIBYTE)
        place = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        _protect(mapping)
        content = mapping[:]
        unmap_files(folder / "missing")
        assert _resident_file(place) == (40 * _MEBIBYTE, 2 * _MEBIBYTE)
        unmap_files(folder)
        assert _resident_file(place) == (0, 0)
        file.write_bytes(b"")
        assert mapping[:] == content
    assert list(folder.iterdir()) == []


@linux
def test_only_the_first_round_takes_files_out_of_memory(file, tmp_path):
    tidying = Tidying(tmp_path)
    assert tidying.interval < 10
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapping:
        content = mapping[:]
        tidying.round()
        assert _mapped(file) == (0, 0)
        assert mapping[:] == content
        tidying.round()
        assert _mapped(file)[0] == 40 * _MEBIBYTE
    assert tidying.interval == 60


def test_without_a_list_of_mappings_nothing_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr("jobmeter.server.memory._MAPPINGS", tmp_path / "none")
    assert unmap_files() == 0

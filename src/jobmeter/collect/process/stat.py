"""Process as described by /proc."""

import os
import pwd
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.collect.text import escape_invalid

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Key(NamedTuple):
    """Identity of a process: its number, which is reused, and its start."""

    pid: int
    start: int


class ProcessIo(NamedTuple):
    """Bytes read from and written to storage, then bytes of all calls that read or write: cached ones, and pipes."""

    read: float
    write: float
    called_read: float
    called_write: float


_IO = (b"read_bytes", b"write_bytes", b"rchar", b"wchar")


class ProcessStat(NamedTuple):
    """Content of /proc/PID/stat.

    ``cpu_ticks`` covers the process and the children that it has waited for; ``waited_ticks`` is the children's part.
    """

    key: Key
    parent: int
    state: str
    cpu_ticks: int
    threads: int
    memory: int
    waited_ticks: int = 0

    @property
    def ended(self) -> bool:
        """True for a zombie: it has ended and was not reaped yet."""
        return self.state in "ZX"


def read_stat(proc_root: str, pid: int) -> ProcessStat | None:
    """Read the process of that number; None if it does not exist. ``memory`` is resident, in bytes."""
    text = files.read(f"{proc_root}/{pid}/stat")
    return parse_stat(pid, text) if text else None


def parse_stat(pid: int, text: bytes) -> ProcessStat | None:
    """Parse a /proc/PID/stat file; None if it lacks fields. See ``read_stat``."""
    # The command is in brackets and may contain brackets and spaces itself: the fields follow the last bracket.
    words = text[text.rfind(b")") + 2 :].split()
    if len(words) < 22:
        return None
    return ProcessStat(
        key=Key(pid, int(words[19])),
        parent=int(words[1]),
        state=words[0].decode(),
        cpu_ticks=sum(map(int, words[11:15])),
        threads=int(words[17]),
        memory=int(words[21]) * _PAGE,
        waited_ticks=int(words[13]) + int(words[14]),
    )


def read_high_water(proc_root: str, pid: int) -> float | None:
    """Return the peak resident memory of a process, in bytes; None if the kernel does not tell.

    Unlike ``ru_maxrss`` it excludes the program that started this one.
    """
    kib = (files.read_pairs(f"{proc_root}/{pid}/status") or {}).get(b"VmHWM")
    return None if kib is None else kib * 1024.0


def read_io(proc_root: str, pid: int) -> ProcessIo | None:
    """Return the bytes that the process and its waited-for children moved; None if it is not readable."""
    text = files.read(f"{proc_root}/{pid}/io")
    return parse_io(pid, text) if text else None


def parse_io(_pid: int, text: bytes) -> ProcessIo | None:
    """Parse a /proc/PID/io file; None if it lacks a count."""
    values = files.parse_pairs(text)
    if not all(name in values for name in _IO):
        return None
    return ProcessIo(*(float(values[name]) for name in _IO))


def read_real_user(proc_root: str, pid: int) -> int | None:
    """Return the number of the user who started a process, whatever rights it has taken on; None if it is gone."""
    for line in (files.read(f"{proc_root}/{pid}/status") or b"").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    try:
        return os.stat(f"{proc_root}/{pid}").st_uid  # noqa: PTH116 - beside the other readings
    except OSError:
        return None


def find_user_name(uid: int) -> str:
    """Return the name of a user, or the number without a name."""
    try:
        return escape_invalid(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def list_pids(proc_root: str) -> list[int]:
    """List the numbers of all processes, ascending."""
    return sorted(int(name) for name in os.listdir(proc_root) if name.isdigit())  # noqa: PTH208

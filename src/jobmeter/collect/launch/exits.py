"""Exit status of a process that is not a child of this one.

A process that has ended but was not waited for has its status in the last field of /proc/PID/stat, for users who may
trace it (proc_pid_stat(5)). After that, Linux 6.15 gives it to holders of an earlier pidfd (``PIDFD_GET_INFO`` in
include/uapi/linux/pidfd.h). On other systems it stays unknown.
"""

import fcntl
import os
import select
import struct
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.process.stat import ProcessStat, read_stat

_INFO = struct.Struct("=QQ11Ii")
"""First version of ``struct pidfd_info``: mask, group, numbers and users, the status."""
_FIRST_SIZE = _INFO.size
_GET_INFO = (3 << 30) | (_FIRST_SIZE << 16) | (0xFF << 8) | 11
"""``_IOWR(0xFF, 11, struct pidfd_info)`` for the size of the first version."""
_WITH_EXIT = 1 << 3
_REAPED_MS = 1_000
"""Longest time in milliseconds until the process's parent waits for it."""
_LAST_FIELD = 52


class ProcessEnd:
    """Process by its pidfd. For one thread."""

    def __init__(self, pid: int, proc_root: str = "/proc") -> None:
        """Raise ProcessLookupError if the process does not exist or has ended."""
        self._proc = proc_root
        self.descriptor = os.pidfd_open(pid)
        stat = read_stat(proc_root, pid)
        """State when the pidfd was opened."""
        if stat is None or stat.ended:
            os.close(self.descriptor)
            raise ProcessLookupError(f"process {pid} has ended")
        self.stat: ProcessStat = stat
        """State at the beginning."""

    def read_final_stat(self) -> ProcessStat | None:
        """Return its entry in /proc after its end; None if its parent has reaped it."""
        found = read_stat(self._proc, self.stat.key.pid)
        return found if found is not None and found.key == self.stat.key else None

    def read_status(self) -> int | None:
        """Return the exit status of the ended process as a shell shows it; None if unknown."""
        raw = self._read_zombie_status()
        if raw is None:
            poll = select.poll()
            poll.register(self.descriptor, 0)  # POLLHUP alone, sent when it was reaped
            poll.poll(_REAPED_MS)
            raw = self._read_reaped_status()
        if raw is None:
            return None
        code = os.waitstatus_to_exitcode(raw)
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self.descriptor)

    def _read_zombie_status(self) -> int | None:
        stat = self.read_final_stat()
        if stat is None or not stat.ended or not self._may_trace():
            return None
        text = files.read(f"{self._proc}/{self.stat.key.pid}/stat") or b""
        words = text[text.rfind(b")") + 2 :].split()
        return int(words[_LAST_FIELD - 3]) if len(words) >= _LAST_FIELD - 2 else None

    def _may_trace(self) -> bool:
        """Return True if /proc shows this user the real status, not 0."""
        try:
            Path(f"{self._proc}/{self.stat.key.pid}/ns/pid").readlink()
        except FileNotFoundError:
            # Only a permitted user sees that an ended process has no namespaces left.
            return True
        except OSError:
            return False
        return True

    def _read_reaped_status(self) -> int | None:
        buffer = bytearray(_FIRST_SIZE)
        struct.pack_into("=Q", buffer, 0, _WITH_EXIT)
        try:
            fcntl.ioctl(self.descriptor, _GET_INFO, buffer)
        except OSError:
            return None
        mask, *_, status = _INFO.unpack(buffer)
        return int(status) if mask & _WITH_EXIT else None

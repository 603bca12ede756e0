"""Dumps of PyTorch's flight recorder: requested through its pipe, read by a separate program with limits.

https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from jobmeter.collect import files
from jobmeter.collect.process.stat import read_real_user, read_stat
from jobmeter.collect.stacks.child import run_aside
from jobmeter.collect.stacks.python import clip
from jobmeter.model.stacks import GroupProgress

PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
VARIABLES = (PIPE, *FILES)
_DEFAULT_FILE = "/tmp/nccl_trace_rank_"  # noqa: S108 - where PyTorch writes by default
MOST_FILE_BYTES = 64 * 1024 * 1024
_MOST_OUTPUT = 256 * 1024
_SECONDS = 10.0
_WAIT, _POLL = 4.0, 0.1
_READ, _PIPE = os.O_RDONLY | os.O_NONBLOCK, os.O_WRONLY | os.O_NONBLOCK


class RecorderError(Exception):
    """Reason why the flight recorder's dump cannot be read."""


def request_dump(pid: int, rank: int, variables: Mapping[str, str], proc_root: str = "/proc") -> None:
    """Request a dump from a rank's flight recorder, through its pipe if it has one."""
    stem = variables.get(PIPE)
    if not stem:
        return
    with suppress(OSError, RecorderError):
        pipe = _open(proc_root, pid, f"{stem}{rank}.pipe", _PIPE, stat.S_ISFIFO)
        try:
            os.write(pipe, b"1\n")
        finally:
            os.close(pipe)


def read_dump(
    pid: int, rank: int, variables: Mapping[str, str], requested: float, proc_root: str = "/proc"
) -> tuple[list[GroupProgress], str]:
    """Return the progress in each process group, and the reason if it is missing; both empty without a recorder.

    Waits for a dump that was requested at ``requested``, in seconds since the epoch. Without a pipe, an earlier dump of
    the process counts.
    """
    if not any(variables.get(name) for name in VARIABLES):
        return [], ""
    stem = next((variables[name] for name in FILES if variables.get(name)), _DEFAULT_FILE)
    try:
        if variables.get(PIPE):
            descriptor = _await_dump(proc_root, pid, f"{stem}{rank}", requested, requested + _WAIT)
        else:
            descriptor = _await_dump(proc_root, pid, f"{stem}{rank}", _read_start_time(proc_root, pid), 0.0)
        try:
            return _parse_dump(descriptor), ""
        finally:
            os.close(descriptor)
    except (OSError, RecorderError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else error
        return [], clip(f"no dump of PyTorch's flight recorder in {stem}{rank}: {text}")


def _read_start_time(proc_root: str, pid: int) -> float:
    """Return the start of a process, in seconds since the epoch; 0 if it is unknown."""
    found = read_stat(proc_root, pid)
    booted = (files.read_pairs(f"{proc_root}/stat") or {}).get(b"btime")
    return 0.0 if found is None or booted is None else booted + found.key.start / os.sysconf("SC_CLK_TCK")


def _await_dump(proc_root: str, pid: int, path: str, since: float, until: float) -> int:
    """Return a descriptor of the dump that was written after ``since``. Waits for it until ``until``."""
    while True:
        try:
            descriptor = _open(proc_root, pid, path, _READ, stat.S_ISREG)
        except FileNotFoundError:
            descriptor = -1
        if descriptor >= 0:
            found = os.fstat(descriptor)
            if found.st_size > MOST_FILE_BYTES:
                os.close(descriptor)
                raise RecorderError(f"it has more than {MOST_FILE_BYTES} bytes")
            if found.st_mtime >= since and found.st_size:
                time.sleep(_POLL)
                if os.fstat(descriptor).st_size == found.st_size:  # it is not being written any more
                    return descriptor
            os.close(descriptor)
        if time.time() >= until:  # noqa: TID251 - compared with the times of files
            why = "the process wrote none when its pipe requested one" if until else "the process wrote none"
            raise RecorderError(why)
        time.sleep(_POLL)


def _open(proc_root: str, pid: int, path: str, flags: int, is_kind: Callable[[int], bool]) -> int:
    """Open a file that a process names. Raises RecorderError for a file of another user, or of another kind.

    The name comes from the environment of the job, so files of other users must not be opened.
    """
    if not path.startswith("/"):
        raise RecorderError("its name is not absolute")
    # Only a handle at first: to open a device may already do something, such as start a watchdog.
    handle = os.open(f"{proc_root}/{pid}/root{path}", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not is_kind(found.st_mode) or found.st_uid != read_real_user(proc_root, pid):
            raise RecorderError("it is not a file of the job's user")
        return os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC | os.O_NOCTTY)
    finally:
        os.close(handle)


def _parse_dump(descriptor: int) -> list[GroupProgress]:
    command = [sys.executable, "-P", "-m", "jobmeter.collect.stacks.unpickle"]
    output = run_aside(command, _SECONDS, _MOST_OUTPUT, descriptor)
    if output.problem:
        raise RecorderError(f"it could not be read: {output.problem}")
    try:
        return msgspec.json.decode(output.out, type=list[GroupProgress])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        last = output.error.decode(errors="replace").strip().rpartition("\n")[2]
        raise RecorderError(f"it could not be read: {last or 'it is damaged'}") from error

"""State of a process by the kernel: its letter, and the system call and kernel function in which it waits."""

import platform
import re
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.collect.process.stat import read_stat
from jobmeter.collect.stacks.python import clip
from jobmeter.model.stacks import SELECT_OF_NOTHING

_MOST_CALLS = 16
_ENTRY = re.compile(r"^\[<[0-9a-fx]+>\] ([^+\s]+)", re.MULTILINE)
NO_CALL = "no system calls: the kernel shows them to the same user alone; run the agent as root"
NO_KERNEL_STACK = "no kernel stacks: the kernel shows them to root alone (CAP_SYS_ADMIN); run the agent as root"
_DESCRIPTOR_CALLS = frozenset(
    {"read", "write", "readv", "writev", "pread64", "pwrite64", "recvfrom", "recvmsg", "sendto", "sendmsg", "accept"}
    | {"accept4", "connect", "fsync", "fdatasync", "flock", "fcntl", "ioctl", "epoll_wait", "epoll_pwait"}
)
# https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/arch/x86/entry/syscalls/syscall_64.tbl
_X86_64 = {
    0: "read", 1: "write", 2: "open", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev",
    23: "select", 24: "sched_yield", 34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto",
    45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync",
    128: "rt_sigtimedwait", 130: "rt_sigsuspend", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait",
    247: "waitid", 257: "openat", 262: "newfstatat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 288: "accept4",
    332: "statx", 441: "epoll_pwait2", 449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
# https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/asm-generic/unistd.h
_GENERIC = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write", 65: "readv",
    66: "writev", 67: "pread64", 68: "pwrite64", 72: "pselect6", 73: "ppoll", 79: "newfstatat", 82: "fsync",
    83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield",
    133: "rt_sigsuspend", 137: "rt_sigtimedwait", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
    211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4", 291: "statx", 441: "epoll_pwait2",
    449: "futex_waitv", 455: "futex_wait",
}  # fmt: skip
_CALLS = _X86_64 if platform.machine() == "x86_64" else _GENERIC


class KernelState(NamedTuple):
    """Fields of ``RankEvidence`` with these names."""

    state: str
    wait: str
    call: str
    target: str
    kernel: list[str]
    missing: list[str]


def read_kernel_state(pid: int, proc_root: str = "/proc") -> KernelState | None:
    """Return the state of the first thread of a process; None if the process is gone."""
    stat = read_stat(proc_root, pid)
    if stat is None:
        return None
    folder = f"{proc_root}/{pid}"
    missing = []
    call, target = _system_call(folder)
    if not call and files.read(f"{folder}/syscall") is None:
        missing.append(NO_CALL)
    stack = files.read(f"{folder}/stack")
    if stack is None:
        missing.append(NO_KERNEL_STACK)
    kernel = [clip(name) for name in _ENTRY.findall((stack or b"").decode(errors="replace"))[:_MOST_CALLS]]
    wait = files.read_text(f"{folder}/wchan")
    if wait in {"0", ""}:
        wait = kernel[0] if kernel else ""
    return KernelState(stat.state, clip(wait), call, target, kernel, missing)


def _system_call(folder: str) -> tuple[str, str]:
    """Return the name of the system call in which the first thread is, and the file of the call."""
    words = files.read_text(f"{folder}/syscall").split()
    if not words or not words[0].isdigit():
        return "", ""
    number = int(words[0])
    name = _CALLS.get(number, f"system call {number}")
    target = ""
    counted = {"select": 1, "pselect6": 1, "poll": 2, "ppoll": 2}.get(name)
    if counted and len(words) > counted and int(words[counted], 16) == 0:
        return SELECT_OF_NOTHING, ""
    if name in _DESCRIPTOR_CALLS and len(words) > 1:
        target = files.read_link_target(f"{folder}/fd/{int(words[1], 16)}")
    return name, clip(target)


def count_context_switches(pid: int, proc_root: str = "/proc") -> int | None:
    """Return the waits of the first thread of a process so far; None if unknown.

    A blocked thread has no further waits.
    """
    pairs = files.read_pairs(f"{proc_root}/{pid}/task/{pid}/status")
    return None if pairs is None else pairs.get(b"voluntary_ctxt_switches")

"""Describes the place of a rank and how it waits, from its stack, its system call and its state in the kernel."""

import re
import signal
from collections.abc import Sequence
from enum import Enum
from pathlib import PurePosixPath

from jobmeter.model.stacks import SELECT_OF_NOTHING, RankEvidence, StackFrame

_COLLECTIVE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|(?:^|_)(?:gloo|nccl|hccl|rccl)|"
    r"init_process_group|rendezvous|wait_tensor",
    re.IGNORECASE,
)
_LIBRARIES = ("/torch/distributed/", "/mpi4py/", "/horovod/", "/deepspeed/comm/", "/oneccl")
_LOADERS = ("/torch/utils/data/", "/webdataset/", "/tensorflow/python/data/", "/streaming/base/")
_NETWORK_CALLS = frozenset(
    {"recvfrom", "recvmsg", "sendto", "sendmsg", "accept", "accept4", "connect", "poll", "ppoll", "select", "pselect6"}
    | {"epoll_wait", "epoll_pwait", "epoll_pwait2"}
)
_TRANSFERS = frozenset({"read", "readv", "write", "writev"})
_BY_CALL = {
    SELECT_OF_NOTHING: "sleeps",
    "nanosleep": "sleeps",
    "clock_nanosleep": "sleeps",
    "futex": "waits for a lock",
    "futex_wait": "waits for a lock",
    "futex_waitv": "waits for a lock",
    "open": "waits to open a file",
    "openat": "waits to open a file",
    "flock": "waits for the lock of a file",
    "fcntl": "waits for the lock of a file",
    "fsync": "waits for storage to write",
    "fdatasync": "waits for storage to write",
    "wait4": "waits for a child process",
    "waitid": "waits for a child process",
    "pause": "waits for a signal",
    "rt_sigsuspend": "waits for a signal",
    "rt_sigtimedwait": "waits for a signal",
    "newfstatat": "waits for a filesystem",
    "statx": "waits for a filesystem",
}
_STORAGE_CALLS = frozenset({"fsync", "fdatasync", "newfstatat", "statx"})
_STORAGE_WAIT = re.compile(r"nfs|rpc_wait|fuse|lustre|^ll_")
_PIPE_WAIT = re.compile(r"fifo|wait_for_partner|pipe")
_BY_WAIT = (
    (re.compile(r"nanosleep"), "sleeps"),
    (re.compile(r"futex"), "waits for a lock"),
    (_PIPE_WAIT, "waits for the other end of a pipe"),
    (_STORAGE_WAIT, "waits for a network filesystem"),
    (re.compile(r"locks|flock"), "waits for the lock of a file"),
    (re.compile(r"^do_wait|kernel_wait"), "waits for a child process"),
)
_NETWORK_WAIT = re.compile(
    r"sk_wait|wait_woken|tcp_|inet_|unix_stream|unix_accept|do_poll|poll_schedule|ep_poll|do_select|skb_wait"
)


class PlaceKind(Enum):
    """A way in which a rank waits."""

    PEER = "peer"
    """For another process, over the network."""
    OTHER = "other"
    UNKNOWN = "unknown"


def is_collective(frame: StackFrame) -> bool:
    """True if a call is a collective, by its name or by the library of its file."""
    return _COLLECTIVE.search(frame.function) is not None or any(part in frame.file for part in _LIBRARIES)


def classify_place(evidence: RankEvidence) -> PlaceKind:
    """Return how a rank waits by its system call, else by the kernel function in which it sleeps."""
    call = evidence.call
    if evidence.state == "R":
        return PlaceKind.UNKNOWN  # it may spin in a collective
    if call in _NETWORK_CALLS or (call in _TRANSFERS and evidence.target.startswith("socket:")):
        return PlaceKind.PEER
    if call in _BY_CALL or call in _TRANSFERS:
        return PlaceKind.OTHER
    if _NETWORK_WAIT.search(evidence.wait):
        return PlaceKind.PEER
    return PlaceKind.OTHER if any(pattern.search(evidence.wait) for pattern, _ in _BY_WAIT) else PlaceKind.UNKNOWN


def may_work(evidence: RankEvidence) -> bool:
    """True for a rank that may be slow, not stuck: it moved, or waits for storage or for its data loader."""
    if evidence.moved or evidence.state == "D" or evidence.call in _STORAGE_CALLS:
        return True
    reads_file = (
        evidence.call in _TRANSFERS and evidence.target.startswith("/") and not evidence.target.startswith("/dev/")
    )
    if (reads_file and not _PIPE_WAIT.search(evidence.wait)) or _STORAGE_WAIT.search(evidence.wait):
        return True
    return any(part in frame.file for frame in evidence.main for part in _LOADERS)


def describe_place(evidence: RankEvidence) -> str:
    """Return a clause about a rank's state and place: ``sleeps in `load` (data.py:41)``."""
    if evidence.state in {"X", "Z"}:
        return _end(evidence)
    frame = find_own_frame(evidence.main)
    inside = f" in `{frame.function}` ({PurePosixPath(frame.file).name}:{frame.line})" if frame else ""
    if evidence.state in {"T", "t"}:
        return f"is stopped by a signal or a debugger{inside}"
    waits = _waits(evidence)
    if not inside and evidence.wait and evidence.state != "R":
        inside = f" (in the kernel's {evidence.wait})"
    return f"{waits}{inside}"


def find_own_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    """Return the innermost call of the program's own code, else the innermost call; None without any."""
    return next((frame for frame in frames if frame.is_own), frames[0] if frames else None)


def join_first(items: Sequence[str], most: int, separator: str = ", ") -> str:
    """Join the first items in one text, followed by the number of the others."""
    shown = separator.join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def _end(evidence: RankEvidence) -> str:
    code = evidence.exit_code
    if code is None:
        return "is gone: it has no process"
    if 128 < code < 128 + 65:
        try:
            name = signal.Signals(code - 128).name
        except ValueError:
            name = f"signal {code - 128}"
        return f"is gone: {name} ended it"
    return f"is gone: it exited with status {code}"


def _waits(evidence: RankEvidence) -> str:
    if evidence.state == "R":
        return "runs"
    words = next((text for pattern, text in _BY_WAIT if pattern.search(evidence.wait)), "")
    if evidence.state == "D":
        return f"{words or 'waits for a device or filesystem'} (uninterruptible)"
    call, target = evidence.call, evidence.target
    if call in _TRANSFERS and target and not target.startswith("socket:"):
        verb = "read" if call.startswith("read") else "write"
        return f"waits to {verb} {'a pipe' if target.startswith('pipe:') else target}"
    if classify_place(evidence) is PlaceKind.PEER:
        return "waits for data from another process"
    if call in {"open", "openat"} and words:
        return words
    return _BY_CALL.get(call) or words or "waits"

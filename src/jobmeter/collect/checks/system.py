"""Checks of disks, links, memory, processes, waiting tasks and the kernel's log, from /proc and /sys."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from jobmeter.collect import files
from jobmeter.collect.host.filesystem import parse_mount_points
from jobmeter.model.task import CheckStatus, TaskCheck

FULL, NEARLY_FULL = 0.98, 0.90
_SAMPLES, _SAMPLE_SECONDS = 3, 0.5
_MOST_NAMED = 10
_USUAL_ERRORS, _USUAL_ERROR_RATIO = 32, 0.001
"""Failed commands of a healthy SCSI disk, tried when the machine starts, and their share later."""
_DOWN = frozenset({"down", "lowerlayerdown"})


def check_disks(proc: str = "/proc", sys: str = "/sys") -> list[TaskCheck]:
    """Check the use of each filesystem, read-only mounts, and the state of block devices."""
    text = files.read(f"{proc}/self/mountinfo") or b""
    checks = [found for point in parse_mount_points(text) for found in _filesystem(point)]
    checks += [found for device in sorted(Path(sys, "block").glob("*")) for found in _block_device(device)]
    for controller in sorted(Path(sys, "class/nvme").glob("nvme*")):
        state = files.read_text(str(controller / "state"))
        if state:
            bad = state != "live"
            text_of = f"controller {controller.name} is {state}"
            checks.append(TaskCheck("disks", CheckStatus.CRITICAL if bad else CheckStatus.OK, text_of))
    return checks or [TaskCheck("disks", CheckStatus.UNAVAILABLE, "no filesystem found")]


def _filesystem(point: str) -> Iterator[TaskCheck]:
    try:
        found = os.statvfs(point)
    except OSError as error:
        yield TaskCheck("disks", CheckStatus.WARNING, f"{point} does not answer: {error.strerror}")
        return
    if not found.f_blocks:
        return
    used = 1 - found.f_bavail / found.f_blocks
    inodes = 1 - found.f_favail / found.f_files if found.f_files else 0.0
    most = max(used, inodes)
    status = CheckStatus.CRITICAL if most >= FULL else CheckStatus.WARNING if most >= NEARLY_FULL else CheckStatus.OK
    text = f"{point} is {used:.0%} full, {inodes:.0%} of its inodes are used"
    if found.f_flag & os.ST_RDONLY:
        status, text = max(status, CheckStatus.WARNING, key=list(CheckStatus).index), f"{text}, it is read-only"
    yield TaskCheck("disks", status, text, {"used_ratio": round(used, 4), "inodes_used_ratio": round(inodes, 4)})


def _block_device(device: Path) -> Iterator[TaskCheck]:
    # SCSI counts in hexadecimal numbers. The commands that a healthy disk does not know count as errors too.
    errors, done = (files.read_number(f"{device}/device/{name}", 16) for name in ("ioerr_cnt", "iodone_cnt"))
    if errors is not None:
        often = errors > _USUAL_ERRORS and errors > _USUAL_ERROR_RATIO * (done or 0)
        status = CheckStatus.WARNING if often else CheckStatus.OK
        text = f"{errors} commands to {device.name} have failed" + (f", of {done}" if done is not None else "")
        yield TaskCheck("disks", status, text, {"errors": float(errors)})
    degraded = files.read_number(f"{device}/md/degraded")
    if degraded is not None:
        status = CheckStatus.CRITICAL if degraded else CheckStatus.OK
        yield TaskCheck("disks", status, f"{device.name} lacks {degraded} of its disks", {"missing": float(degraded)})


def check_links(sys: str = "/sys") -> list[TaskCheck]:
    """Check links of hardware network interfaces, their errors, and InfiniBand ports."""
    interfaces = sorted(Path(sys, "class/net").glob("*"))
    checks = [_interface(interface) for interface in interfaces if (interface / "device").exists()]
    for state in sorted(Path(sys, "class/infiniband").glob("*/ports/*/state")):
        port, text = f"{state.parts[-4]} port {state.parts[-2]}", files.read_text(str(state))
        up = text.endswith("ACTIVE")
        checks.append(TaskCheck("links", CheckStatus.OK if up else CheckStatus.CRITICAL, f"{port} is {text}"))
    return checks or [TaskCheck("links", CheckStatus.UNAVAILABLE, "no network device found")]


def _interface(interface: Path) -> TaskCheck:
    state = files.read_text(str(interface / "operstate"))
    names = ("rx_errors", "tx_errors", "rx_packets", "tx_packets")
    counts = {name: files.read_number(f"{interface}/statistics/{name}") or 0 for name in names}
    changes = files.read_number(f"{interface}/carrier_changes") or 0
    errors = counts["rx_errors"] + counts["tx_errors"]
    share = errors / max(counts["rx_packets"] + counts["tx_packets"], 1)
    administered = (files.read_number(f"{interface}/flags", 16) or 0) & 1
    status = CheckStatus.OK
    if share > 0.01:
        status = CheckStatus.WARNING
    if state in _DOWN and administered:
        status = CheckStatus.CRITICAL
    text = f"{interface.name} is {state}, {changes} changes of its carrier, {errors} errors"
    return TaskCheck("links", status, text, {"carrier_changes": float(changes), "errors": float(errors)})


def check_memory(proc: str = "/proc") -> list[TaskCheck]:
    """Check the available memory."""
    found = files.read_pairs(f"{proc}/meminfo") or {}
    total, available = found.get(b"MemTotal"), found.get(b"MemAvailable")
    if not total or available is None:
        return [TaskCheck("memory", CheckStatus.UNAVAILABLE, "the kernel does not say how much memory is available")]
    share = available / total
    status = CheckStatus.CRITICAL if share < 0.02 else CheckStatus.WARNING if share < 0.05 else CheckStatus.OK
    return [
        TaskCheck("memory", status, f"{share:.0%} of the memory is available", {"available_ratio": round(share, 4)})
    ]


def check_tasks(proc: str = "/proc", pause: Event | None = None) -> list[TaskCheck]:
    """Find processes in uninterruptible sleep, by three samples within a second."""
    pause = pause or Event()
    waiting = _count_waiting_tasks(proc)
    if waiting is None:
        return [TaskCheck("tasks", CheckStatus.UNAVAILABLE, f"{proc} cannot be read")]
    for _ in range(_SAMPLES - 1):
        if not waiting:
            break
        pause.wait(_SAMPLE_SECONDS)
        again = _count_waiting_tasks(proc) or {}
        waiting = {pid: name for pid, name in waiting.items() if pid in again}
    if not waiting:
        return [TaskCheck("tasks", CheckStatus.OK, "no process is blocked on a device", {"waiting": 0.0})]
    named = ", ".join(f"{name} ({pid})" for pid, name in sorted(waiting.items())[:_MOST_NAMED])
    text = f"{len(waiting)} processes are blocked on a device: {named}"
    return [TaskCheck("tasks", CheckStatus.WARNING, text, {"waiting": float(len(waiting))})]


def _count_waiting_tasks(proc: str) -> dict[int, str] | None:
    try:
        numbers = [int(entry.name) for entry in os.scandir(proc) if entry.name.isdigit()]
    except OSError:
        return None
    found = {}
    for number in numbers:
        before, _, after = (files.read(f"{proc}/{number}/stat") or b"").rpartition(b")")
        if after.split(None, 1)[:1] == [b"D"]:
            found[number] = before.partition(b"(")[2].decode(errors="replace")
    return found


def check_kernel_log(path: str = "/dev/kmsg") -> list[TaskCheck]:
    """Check that the kernel's log can be read. Without it, device errors show only in counters."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return [TaskCheck("kernel_log", CheckStatus.UNAVAILABLE, f"{path} cannot be read: {error.strerror}")]
    return [TaskCheck("kernel_log", CheckStatus.OK, f"{path} can be read")]

"""Checks of disks, links, memory, processes, waiting tasks and the kernel's log, from /proc and /sys."""

import os
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from threading import Event
from typing import NamedTuple

from msgspec.structs import replace

from jobmeter.collect import files
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.member import Process
from jobmeter.collect.host.filesystem import mount_points
from jobmeter.collect.process.stat import Key, list_pids, read_io, read_stat
from jobmeter.collect.text import valid_text
from jobmeter.model.series import MAX_NAME
from jobmeter.model.task import MOST_PROCESSES, CheckStatus, ProcessUse, TaskCheck
from jobmeter.model.time import Clock, SystemClock

FULL, NEARLY_FULL = 0.98, 0.90
_LOOKS, _LOOK_SECONDS = 3, 0.5
_MOST_NAMED = 10
_DOWN = frozenset({"down", "lowerlayerdown"})


def check_disks(proc: str = "/proc", sys: str = "/sys") -> list[TaskCheck]:
    """Check the use of each filesystem, read-only mounts, and the state of block devices."""
    text = files.read(f"{proc}/self/mountinfo") or b""
    checks = [found for point in mount_points(text) for found in _filesystem(point)]
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
    errors = _number(device / "device/ioerr_cnt")
    if errors is not None:
        status = CheckStatus.WARNING if errors else CheckStatus.OK
        yield TaskCheck("disks", status, f"{device.name} counts {errors} errors", {"errors": float(errors)})
    degraded = _number(device / "md/degraded")
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
    counts = {name: _number(interface / "statistics" / name) or 0 for name in names}
    changes = _number(interface / "carrier_changes") or 0
    errors = counts["rx_errors"] + counts["tx_errors"]
    share = errors / max(counts["rx_packets"] + counts["tx_packets"], 1)
    administered = (_number(interface / "flags", 16) or 0) & 1
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
    """Find processes in uninterruptible sleep, in three samples within a second."""
    pause = pause or Event()
    waiting = _count_waiting_tasks(proc)
    if waiting is None:
        return [TaskCheck("tasks", CheckStatus.UNAVAILABLE, f"{proc} cannot be read")]
    for _ in range(_LOOKS - 1):
        if not waiting:
            break
        pause.wait(_LOOK_SECONDS)
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
    """Check that the kernel's log can be read: without it, device errors show only in counters."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return [TaskCheck("kernel_log", CheckStatus.UNAVAILABLE, f"{path} cannot be read: {error.strerror}")]
    return [TaskCheck("kernel_log", CheckStatus.OK, f"{path} can be read")]


def _number(path: Path, base: int = 10) -> int | None:
    try:
        return int(files.read_text(str(path)), 0 if base == 16 else base)
    except ValueError:
        return None


_NAMED = 5
"""Processes that the text of a check names."""
_MOST = 20_000
"""Largest number of processes that are read."""
_SECONDS = 1.0
"""Seconds between two readings."""
_LONGEST_NAME, _LONGEST_OWNER = 16, 120
_HERTZ = os.sysconf("SC_CLK_TCK")
_MIB = 2**20

_Place = tuple[Owner | None, int | None]
"""Replica and rank of a process; each absent where it is unknown."""


class _Reading(NamedTuple):
    """Reading of a process: processor seconds, bytes of resident memory, bytes of storage traffic; None if unknown."""

    seconds: float
    memory: int
    moved: float | None


def check_processes(
    owner_of: Callable[[int], Owner | None], proc: str = "/proc", pause: Event | None = None, clock: Clock | None = None
) -> list[TaskCheck]:
    """Rank the processes by processor time and storage traffic within a second, and by resident memory.

    A process counts without its children. At most 20,000 processes are read. ``owner_of`` returns the replica of a
    process.
    """
    return _check(lambda: _read(proc), lambda key: (owner_of(key.pid), None), proc, pause, clock)


def check_processes_of(
    members: Iterable[tuple[Process, Owner]],
    proc: str = "/proc",
    pause: Event | None = None,
    clock: Clock | None = None,
) -> list[TaskCheck]:
    """Rank the processes of a job as ``check_processes`` ranks all processes of a node."""
    found: dict[Key, _Place] = {}
    for process, owner in members:
        member = process.member
        rank = member.rank if member.process_rank is None else member.process_rank
        found[process.stat.key] = owner, rank

    def read() -> dict[Key, _Reading]:
        return {key: one for key, one in _read(proc, {key.pid for key in found}).items() if key in found}

    return _check(read, found.__getitem__, proc, pause, clock)


def _check(
    read: Callable[[], dict[Key, _Reading]],
    place_of: Callable[[Key], _Place],
    proc: str,
    pause: Event | None,
    clock: Clock | None,
) -> list[TaskCheck]:
    clock = clock or SystemClock()
    began, before = clock.monotonic(), read()
    (pause or Event()).wait(_SECONDS)
    passed, after = clock.monotonic() - began, read()
    if not after or passed <= 0:
        return [TaskCheck("processes", CheckStatus.UNAVAILABLE, f"no process in {proc} can be read")]
    uses = {key: _use(key.pid, before.get(key), now, passed) for key, now in after.items()}
    note = f", of {sum(one.traffic is not None for one in uses.values())} processes that may be read"
    kinds = (
        ("processor time", attrgetter("cores"), "{:.2f} cores", 1.0, ""),
        ("memory", attrgetter("memory"), "{:,.0f} MiB", _MIB, ""),
        ("storage traffic", attrgetter("traffic"), "{:,.1f} MiB/s", _MIB, note),
    )
    checks = []
    for what, figure, form, unit, extent in kinds:
        top = sorted((key for key, one in uses.items() if figure(one)), key=lambda key: (-figure(uses[key]), key))
        named = [_named(proc, uses[key], *place_of(key)) for key in top[:MOST_PROCESSES]]
        first = [(one, figure(one) / unit) for one in named[:_NAMED]]
        parts = (f"{_title(one)} {form.format(value)}" for one, value in first)
        text = f"most {what}{extent}: {'; '.join(parts) or 'no process uses any'}"
        values = {f"process_{one.pid}": round(value, 3) for one, value in first}
        checks.append(TaskCheck("processes", CheckStatus.OK, text, values, named))
    return checks


def _use(pid: int, then: _Reading | None, now: _Reading, seconds: float) -> ProcessUse:
    """Return the use of a process between two readings; a process with one reading has its memory alone."""
    if then is None:
        return ProcessUse(pid=pid, name="", memory=now.memory)
    moved = None if now.moved is None or then.moved is None else now.moved - then.moved
    return ProcessUse(
        pid=pid,
        name="",
        cores=(now.seconds - then.seconds) / seconds,
        memory=now.memory,
        traffic=None if moved is None else moved / seconds,
    )


def _named(proc: str, use: ProcessUse, owner: Owner | None, rank: int | None) -> ProcessUse:
    """Add the name of a process, and its replica if it has one."""
    name = valid_text((files.read(f"{proc}/{use.pid}/comm") or b"?").decode(errors="replace").strip())[:_LONGEST_NAME]
    if owner is None:
        return replace(use, name=name)
    job, replica = owner.job[:MAX_NAME], owner.replica[:MAX_NAME]
    return replace(use, name=name, job=job, replica=replica, attempt=owner.attempt, rank=rank)


def _title(use: ProcessUse) -> str:
    whose = f" of {use.job}/{use.replica}"[:_LONGEST_OWNER] if use.job else ""
    return f"{use.name} ({use.pid}){whose}"


def _read(proc: str, only: Iterable[int] | None = None) -> dict[Key, _Reading]:
    """Read these processes, or all of them."""
    try:
        pids = list_pids(proc) if only is None else sorted(only)
    except OSError:
        return {}
    found = {}
    for pid in pids[:_MOST]:
        stat = read_stat(proc, pid)
        if stat is not None and not stat.ended:
            moved = read_io(proc, pid)
            seconds = (stat.cpu_ticks - stat.waited_ticks) / _HERTZ
            found[stat.key] = _Reading(seconds, stat.memory, moved and moved.read + moved.write)
    return found

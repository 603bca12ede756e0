"""Check of the processes with most processor time, memory and storage traffic, each with its replica."""

import os
from collections.abc import Callable, Iterable
from operator import attrgetter
from threading import Event
from typing import NamedTuple

from msgspec.structs import replace

from jobmeter.collect import files
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.member import Process
from jobmeter.collect.process.stat import Key, list_pids, read_io, read_stat
from jobmeter.collect.text import escape_invalid
from jobmeter.model.series import MAX_NAME
from jobmeter.model.task import MOST_PROCESSES, CheckStatus, ProcessUse, TaskCheck
from jobmeter.model.time import Clock, SystemClock

_NAMED = 5
"""Processes that the text of a check names."""
_MOST = 20_000
"""Most processes that are read."""
_SECONDS = 1.0
"""Seconds between two readings."""
_LONGEST_NAME, _LONGEST_OWNER = 16, 120
_HERTZ = os.sysconf("SC_CLK_TCK")
_MIB = 2**20
_Place = tuple[Owner | None, int | None]
"""Replica and rank of a process; absent if unknown."""


class _Reading(NamedTuple):
    """Processor seconds of a process, bytes of resident memory, and bytes of storage traffic, absent if unknown."""

    seconds: float
    memory: int
    moved: float | None


def check_processes(
    owner_of: Callable[[int], Owner | None], proc: str = "/proc", pause: Event | None = None, clock: Clock | None = None
) -> list[TaskCheck]:
    """Rank the processes of a node by processor time and storage traffic within a second, and by resident memory.

    A process counts without its children. ``owner_of`` returns the replica of a process.
    """
    return _check(lambda: _read(proc), lambda key: (owner_of(key.pid), None), proc, pause, clock)


def check_processes_of(
    members: Iterable[tuple[Process, Owner]],
    proc: str = "/proc",
    pause: Event | None = None,
    clock: Clock | None = None,
) -> list[TaskCheck]:
    """Rank the processes of a job as ``check_processes`` ranks the processes of a node."""
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
    """Return the use of a process between two readings. A process with one reading has its memory alone."""
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
    name = escape_invalid((files.read(f"{proc}/{use.pid}/comm") or b"?").decode(errors="replace").strip())[
        :_LONGEST_NAME
    ]
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

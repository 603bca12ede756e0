"""Check of the processes that use most processor time, memory and storage traffic, each with its replica."""

import os
from collections.abc import Callable, Mapping
from threading import Event
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.collect.base import Owner
from jobmeter.collect.process.stat import Key, all_pids, read_io, read_stat
from jobmeter.collect.text import valid_text
from jobmeter.model.task import CheckStatus, TaskCheck
from jobmeter.model.time import Clock, SystemClock

_TOP = 5
_MOST = 20_000
"""Largest number of processes that are read."""
_SECONDS = 1.0
"""Seconds between two readings."""
_LONGEST_NAME, _LONGEST_OWNER = 16, 120
_HERTZ = os.sysconf("SC_CLK_TCK")
_MIB = 2**20


class _Reading(NamedTuple):
    """Reading of a process: processor seconds, bytes of resident memory, bytes of storage traffic; None if unknown."""

    seconds: float
    memory: int
    moved: float | None


def check_processes(
    owner_of: Callable[[int], Owner | None],
    proc: str = "/proc",
    pause: Event | None = None,
    clock: Clock | None = None,
) -> list[TaskCheck]:
    """Rank the processes by processor time and storage traffic within a second, and by resident memory.

    A process counts without its children. At most 20,000 processes are read. ``owner_of`` returns the replica of a
    process.
    """
    clock = clock or SystemClock()
    began, before = clock.monotonic(), _read(proc)
    (pause or Event()).wait(_SECONDS)
    passed, after = clock.monotonic() - began, _read(proc)
    if not after or passed <= 0:
        return [TaskCheck("processes", CheckStatus.UNAVAILABLE, f"{proc} cannot be read")]
    both = {key: (before[key], now) for key, now in after.items() if key in before}
    cores = {key: (now.seconds - then.seconds) / passed for key, (then, now) in both.items()}
    traffic = {
        key: (now.moved - then.moved) / passed
        for key, (then, now) in both.items()
        if now.moved is not None and then.moved is not None
    }
    memory = {key: float(one.memory) for key, one in after.items()}
    ranked = (
        ("processor time", cores, "{:.2f} cores", 1.0, ""),
        ("memory", memory, "{:,.0f} MiB", _MIB, ""),
        ("storage traffic", traffic, "{:,.1f} MiB/s", _MIB, f", of {len(traffic)} processes that may be read"),
    )
    return [
        _ranked(proc, owner_of, what, {key: value / unit for key, value in values.items()}, form, note)
        for what, values, form, unit, note in ranked
    ]


def _ranked(
    proc: str, owner_of: Callable[[int], Owner | None], what: str, values: Mapping[Key, float], form: str, note: str
) -> TaskCheck:
    top = sorted((key for key, value in values.items() if value > 0), key=lambda key: (-values[key], key))[:_TOP]
    named = "; ".join(f"{_name(proc, key.pid, owner_of(key.pid))} {form.format(values[key])}" for key in top)
    text = f"most {what}{note}: {named or 'no process uses any'}"
    return TaskCheck("processes", CheckStatus.OK, text, {f"process_{key.pid}": round(values[key], 3) for key in top})


def _name(proc: str, pid: int, owner: Owner | None) -> str:
    """Return the name and the number of a process, and its replica if it has one."""
    name = valid_text((files.read(f"{proc}/{pid}/comm") or b"?").decode(errors="replace").strip())[:_LONGEST_NAME]
    whose = f" of {owner.job}/{owner.replica}"[:_LONGEST_OWNER] if owner else ""
    return f"{name} ({pid}){whose}"


def _read(proc: str) -> dict[Key, _Reading]:
    try:
        pids = all_pids(proc)[:_MOST]
    except OSError:
        return {}
    found = {}
    for pid in pids:
        stat = read_stat(proc, pid)
        if stat is not None and not stat.ended:
            moved = read_io(proc, pid)
            seconds = (stat.cpu_ticks - stat.waited_ticks) / _HERTZ
            found[stat.key] = _Reading(seconds, stat.memory, moved and moved.read + moved.write)
    return found

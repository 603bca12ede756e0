"""Limits of a process and traffic of its network namespace, from its /proc folder."""

import os

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import Hierarchies, groups_of
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import count_cpus, lowest
from jobmeter.collect.host.network import interfaces

Allowance = tuple[float | None, float | None]
"""Cores and bytes of memory, None if unknown."""


def machine_limits(proc_root: str) -> Allowance:
    """CPUs and bytes of memory of the machine."""
    lines = (files.read(f"{proc_root}/stat") or b"").splitlines()
    cpus = sum(line.startswith(b"cpu") and line[3:4].isdigit() for line in lines)
    total = (files.read_pairs(f"{proc_root}/meminfo") or {}).get(b"MemTotal")
    return float(cpus) or None, None if total is None else total * 1024.0


def allowance(proc_root: str, pid: int, reader: GroupReader, machine: Allowance) -> Allowance:
    """Return the cores and bytes that a process may use by its groups, its CPU set and the machine.

    None for a process that is gone.
    """
    groups = groups_of(proc_root, pid)
    if groups is None:
        return None, None
    cpu, memory = reader.read_limits(groups)
    return lowest(cpu, affinity(proc_root, pid), machine[0]), lowest(memory, machine[1])


def read_limits(proc_root: str, pid: int, hierarchies: Hierarchies) -> dict[str, float]:
    """Return the allowance of a process by metric; unknown limits are left out."""
    cpu, memory = allowance(proc_root, pid, GroupReader(hierarchies), machine_limits(proc_root))
    limits = {"cpu.limit": cpu, "memory.limit": memory}
    return {name: limit for name, limit in limits.items() if limit is not None}


def affinity(proc_root: str, pid: int) -> float | None:
    """Count the CPUs that the process may run on."""
    for line in (files.read(f"{proc_root}/{pid}/status") or b"").splitlines():
        if line.startswith(b"Cpus_allowed_list:"):
            return count_cpus(line.partition(b":")[2])
    return None


def network_namespace(proc_root: str, pid: int | str) -> str | None:
    """Return the identity of the process's network namespace; None if not readable."""
    try:
        return os.readlink(f"{proc_root}/{pid}/ns/net")  # noqa: PTH115
    except OSError:
        return None


def network_bytes(proc_root: str, pid: int) -> tuple[float, float] | None:
    """Return the bytes received and sent in the process's network namespace, without the loopback."""
    text = files.read(f"{proc_root}/{pid}/net/dev")
    if text is None:
        return None
    found = interfaces(text).values()
    return float(sum(numbers[0] for numbers in found)), float(sum(numbers[8] for numbers in found))

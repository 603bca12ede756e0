"""Limits of a process, and the traffic of its network namespace, from its folder in /proc."""

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import Hierarchies, read_groups
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import count_cpus, find_lowest
from jobmeter.collect.host.network import parse_interfaces

Allowance = tuple[float | None, float | None]
"""Cores and bytes of memory, None if unknown."""


def read_machine_limits(proc_root: str) -> Allowance:
    """Return the CPUs and the bytes of memory of the machine."""
    lines = (files.read(f"{proc_root}/stat") or b"").splitlines()
    cpus = sum(line.startswith(b"cpu") and line[3:4].isdigit() for line in lines)
    total = (files.read_pairs(f"{proc_root}/meminfo") or {}).get(b"MemTotal")
    return float(cpus) or None, None if total is None else total * 1024.0


def read_allowance(proc_root: str, pid: int, reader: GroupReader, machine: Allowance) -> Allowance:
    """Return the cores and bytes that a process may use by its groups, its CPU set and the machine.

    Both are None for a process that is gone.
    """
    groups = read_groups(proc_root, pid)
    if groups is None:
        return None, None
    cpu, memory = reader.read_limits(groups)
    return find_lowest(cpu, count_affinity(proc_root, pid), machine[0]), find_lowest(memory, machine[1])


def read_limits(proc_root: str, pid: int, hierarchies: Hierarchies) -> dict[str, float]:
    """Return the allowance of a process by metric; unknown limits are left out."""
    cpu, memory = read_allowance(proc_root, pid, GroupReader(hierarchies), read_machine_limits(proc_root))
    limits = {"cpu.limit": cpu, "memory.limit": memory}
    return {name: limit for name, limit in limits.items() if limit is not None}


def count_affinity(proc_root: str, pid: int) -> float | None:
    """Count the CPUs that the process may run on."""
    for line in (files.read(f"{proc_root}/{pid}/status") or b"").splitlines():
        if line.startswith(b"Cpus_allowed_list:"):
            return count_cpus(line.partition(b":")[2])
    return None


def read_network_bytes(proc_root: str, pid: int) -> tuple[float, float] | None:
    """Return the bytes received and sent in the process's network namespace, without the loopback."""
    text = files.read(f"{proc_root}/{pid}/net/dev")
    if text is None:
        return None
    found = parse_interfaces(text).values()
    return float(sum(numbers[0] for numbers in found)), float(sum(numbers[8] for numbers in found))

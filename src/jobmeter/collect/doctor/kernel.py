"""Checks of the kernel: control groups, pressure, its log, performance counters and energy counters."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import UNIFIED, Hierarchies
from jobmeter.collect.doctor.base import Check, SourceStatus
from jobmeter.collect.energy.polled import IpmiPower
from jobmeter.collect.energy.sources import iterate_rapl_zones
from jobmeter.collect.machine import Machine

_AREA = "kernel"
_NEEDED = ("cpu", "memory", "io", "pids")
_NEEDED_V1 = ("cpu", "cpuacct", "memory", "blkio", "pids")


def check_kernel(machine: Machine) -> Iterator[Check]:
    """Check each source of the kernel."""
    yield check_groups(machine)
    yield _check_pressure(machine)
    yield _check_log(machine)
    yield _check_journal(machine)
    yield _check_performance(machine)
    yield _check_energy(machine)
    yield _check_controller(machine)


def check_groups(machine: Machine) -> Check:
    """Check the version of control groups and their controllers, which measure the usage of jobs."""
    hierarchies = Hierarchies(machine.proc)
    first = [name for name in _NEEDED_V1 if hierarchies.find_top(name)]
    unified = hierarchies.find_top(UNIFIED)
    if first:
        missing = [name for name in _NEEDED_V1 if name not in first]
        text = f"version 1: {', '.join(first)}" + (" (hybrid, with version 2 beside it)" if unified else "")
    elif unified:
        offered = files.read_text(f"{unified}/cgroup.controllers").split()
        missing = [name for name in _NEEDED if name not in offered]
        text = f"version 2: {', '.join(offered) or 'no controller'}"
    else:
        text = "no control groups are mounted: jobs are measured by adding up their processes"
        return Check(_AREA, "cgroups", SourceStatus.LIMITED, text, "mount cgroup2 at /sys/fs/cgroup")
    if missing:
        advice = "add them to cgroup.subtree_control (systemd: CPUAccounting=, MemoryAccounting=, IOAccounting=)"
        return Check(_AREA, "cgroups", SourceStatus.LIMITED, f"{text}; missing: {', '.join(missing)}", advice)
    return Check(_AREA, "cgroups", SourceStatus.OK, text)


def _check_pressure(machine: Machine) -> Check:
    if files.read_text(f"{machine.proc}/pressure/cpu"):
        return Check(
            _AREA, "pressure", SourceStatus.OK, "the kernel counts how long tasks wait for CPU, memory and disks"
        )
    text = "the kernel does not count how long tasks wait for CPU, memory and disks"
    return Check(_AREA, "pressure", SourceStatus.ABSENT, text, "boot with psi=1, where the kernel has CONFIG_PSI")


def _check_log(machine: Machine) -> Check:
    device = f"{machine.dev}/kmsg"
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except FileNotFoundError:
        text = f"there is no {device}: errors of GPUs (XID) and out-of-memory kills show in counters alone"
        return Check(_AREA, "log", SourceStatus.ABSENT, text, "in a container: give it the device /dev/kmsg")
    except OSError as error:
        text = f"{device} cannot be read ({error.strerror}): errors of GPUs (XID) are not recorded"
        return Check(_AREA, "log", SourceStatus.LIMITED, text, "give it CAP_SYSLOG, or set kernel.dmesg_restrict=0")
    return Check(_AREA, "log", SourceStatus.OK, f"{device} can be read")


def _check_journal(machine: Machine) -> Check:
    places = [Path(machine.run, "log/journal"), Path(machine.var, "log/journal")]
    found = [place for place in places if place.is_dir() and (not os.access(place, os.R_OK) or any(place.iterdir()))]
    if not found:
        return Check(_AREA, "journal", SourceStatus.ABSENT, "this machine has no journal of systemd")
    if shutil.which("journalctl") is None:
        text = f"there is a journal in {found[0]} and no journalctl to read it"
        return Check(_AREA, "journal", SourceStatus.LIMITED, text, "install systemd's journalctl where the agent runs")
    if not any(os.access(folder, os.R_OK | os.X_OK) for place in found for folder in _list_readable(place)):
        text = f"the journal in {found[0]} may not be read by this user"
        return Check(_AREA, "journal", SourceStatus.LIMITED, text, "put the user into the group systemd-journal")
    return Check(_AREA, "journal", SourceStatus.OK, f"the journal in {found[0]} can be read")


def _list_readable(place: Path) -> list[Path]:
    return list(place.iterdir()) if os.access(place, os.R_OK) else []


def _check_performance(machine: Machine) -> Check:
    level = files.read_text(f"{machine.proc}/sys/kernel/perf_event_paranoid")
    text = "this version does not read performance counters (instructions, caches)"
    return Check(_AREA, "perf", SourceStatus.ABSENT, f"{text}; perf_event_paranoid is {level}" if level else text)


def _check_energy(machine: Machine) -> Check:
    zones = [folder for _, _, folder in iterate_rapl_zones(machine.sys)]
    if not zones:
        return Check(_AREA, "rapl", SourceStatus.ABSENT, "the kernel offers no energy counters of processors (RAPL)")
    closed = sum(files.read_number(f"{folder}/energy_uj") is None for folder in zones)
    if closed:
        text = f"{closed} of {len(zones)} energy counters of processors (RAPL) cannot be read"
        return Check(_AREA, "rapl", SourceStatus.LIMITED, text, "run the agent as root, or give it CAP_DAC_READ_SEARCH")
    return Check(_AREA, "rapl", SourceStatus.OK, f"{len(zones)} energy counters of processors (RAPL) can be read")


def _check_controller(machine: Machine) -> Check:
    power = IpmiPower(machine.dev)
    if power.find_command():
        return Check(_AREA, "ipmi", SourceStatus.OK, "the power of the node is read from its management controller")
    if power.present:
        text = "the power of the node is not read: neither ipmitool nor ipmi-dcmi is installed"
        return Check(_AREA, "ipmi", SourceStatus.ABSENT, text, "install ipmitool, or use --redfish")
    return Check(_AREA, "ipmi", SourceStatus.ABSENT, "the kernel offers no management controller (IPMI)")

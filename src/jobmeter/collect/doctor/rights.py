"""Checks of access to other users' processes, by the user and the capabilities of this process (capabilities(7))."""

import os
from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.doctor.base import Check, SourceStatus
from jobmeter.collect.machine import Machine

_SYS_PTRACE = 19
CAPABILITIES = {
    2: ("CAP_DAC_READ_SEARCH", "log files of other users, and with CAP_SYS_PTRACE their processes"),
    _SYS_PTRACE: ("CAP_SYS_PTRACE", "environment, storage traffic and devices of other users' processes"),
    23: ("CAP_SYS_NICE", "the last use of a task that ends on a busy machine, before its control group is removed"),
    34: ("CAP_SYSLOG", "the kernel's log"),
}
"""Capabilities that the agent uses, by number, and the data that each gives access to.

The environment and the storage traffic of a process are readable for its user, and with the right to trace it.
"""
_AREA = "rights"
_MOST = 4_096
"""Most processes that are tried."""


def check_rights(machine: Machine, uid: int | None = None) -> Iterator[Check]:
    """Check the user, the capabilities, and the number of processes whose environment can be read."""
    uid = os.geteuid() if uid is None else uid
    effective = read_capabilities(machine)
    missing = [name for number, (name, _) in CAPABILITIES.items() if not effective >> number & 1]
    who = "root" if uid == 0 else f"user {uid}"
    if missing:
        reads = "; ".join(f"{name}: {what}" for name, what in CAPABILITIES.values() if name in missing)
        advice = f"give the service AmbientCapabilities={' '.join(missing)}, or accept unprivileged mode"
        yield Check(_AREA, "capabilities", SourceStatus.LIMITED, f"{who}, without {reads}", advice)
    else:
        yield Check(_AREA, "capabilities", SourceStatus.OK, f"{who}, with all rights that the agent uses")
    yield _check_environments(machine)


def read_capabilities(machine: Machine) -> int:
    """Return the mask of this process's effective capabilities; 0 if unknown."""
    for line in files.read_text(f"{machine.proc}/self/status").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return int(value, 16)
    return 0


def _check_environments(machine: Machine) -> Check:
    pids = [name for name in os.listdir(machine.proc) if name.isdigit()][:_MOST]  # noqa: PTH208 - one call
    # Kernel threads have neither a command line nor an environment.
    users = [pid for pid in pids if files.read(f"{machine.proc}/{pid}/cmdline")]
    read = sum(files.read(f"{machine.proc}/{pid}/environ") is not None for pid in users)
    hidden = _find_proc_restriction(machine)
    text = f"the environment of {read} of {len(users)} processes can be read"
    if hidden:
        advice = "mount /proc with gid=GROUP and put the agent's user into that group, or run it as root"
        return Check(_AREA, "processes", SourceStatus.LIMITED, f"{text}; /proc is mounted with {hidden}", advice)
    if read < len(users) * 0.9:
        text = f"{text}: jobs of other users are found only by their control groups, without ranks"
        return Check(_AREA, "processes", SourceStatus.LIMITED, text, "give it CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")
    return Check(_AREA, "processes", SourceStatus.OK, text)


def _find_proc_restriction(machine: Machine) -> str:
    """Return the mount option by which /proc hides other users' processes; empty without one."""
    if read_capabilities(machine) >> _SYS_PTRACE & 1:
        return ""
    for line in files.read_text(f"{machine.proc}/self/mounts").splitlines():
        words = line.split()
        if len(words) > 3 and words[1] == "/proc":
            options = [option for option in words[3].split(",") if option.startswith("hidepid=")]
            return next((option for option in options if option not in {"hidepid=0", "hidepid=off"}), "")
    return ""

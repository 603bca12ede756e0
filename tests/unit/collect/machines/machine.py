"""Recorded machine: the files of /proc, /sys and the kubelet that the agent reads about jobs.

``read`` records the jobs running here, ``plant`` writes a machine below a folder, and ``observed`` returns the output
of the agent's own classes for it. A recording contains only the environment variables that the agent reads, and no
processes outside of the jobs.
"""

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.cgroup.paths import Hierarchies, read_groups
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.cgroup.usage import climb
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.containers import FOLDER, ContainerRuns
from jobmeter.collect.discover.environ import read_environment
from jobmeter.collect.discover.report import JobReporter
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.process.stat import list_pids

NOW_MS = 1_795_000_000_000
_TICKS = 100
_OF_PROCESSES = ("stat", "cgroup", "io", "comm", "net/dev")
_OF_GROUPS = (
    *("cpu.stat", "cpu.max", "cpuset.cpus.effective", "memory.current", "memory.max", "memory.peak", "memory.events"),
    *("memory.stat", "io.stat", "cpu.pressure", "memory.pressure", "io.pressure", "cpuacct.usage"),
    *("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"),
    *("cpuset.cpus", "cpuset.effective_cpus", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    *("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes", "devices.list"),
)
_DEVICE = re.compile(r"^(\d+:\d+) ", re.MULTILINE)


class Machine(msgspec.Struct):
    """Recorded machine; ``about`` is its origin, ``truth`` is the scheduler's view of the jobs at that moment."""

    about: str
    truth: dict[str, Any] = {}
    files: dict[str, str] = {}
    links: dict[str, str] = {}


def load(path: Path) -> Machine:
    """Load a recorded machine."""
    return msgspec.json.decode(path.read_bytes(), type=Machine)


def save(machine: Machine, path: Path) -> None:
    """Write a machine, one line for each of its files."""
    path.write_text(json.dumps(msgspec.to_builtins(machine), indent=1, sort_keys=True) + "\n")


def plant(machine: Machine, root: Path) -> None:
    """Write the files and links below ``root``."""
    for name, text in machine.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, target in machine.links.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


def observed(root: Path, node: str) -> dict[str, Any]:
    """Return the records and samples that an agent produces in its first collection on a planted machine."""
    proc, place = f"{root}/proc", NodeIdentity(node)
    classifier = NodeClassifier(node, proc, ContainerRuns(f"{root}{FOLDER}"))
    table = ProcessTable(classifier, proc)
    groups = GroupReader(Hierarchies(proc, str(root)), f"{root}/sys")
    samples = JobsCollector(place, table, groups, proc, _TICKS).collect(NOW_MS)
    reporter = JobReporter(place, table.list_processes, lambda milliseconds: milliseconds)
    records = reporter.take_records(NOW_MS)
    series: dict[str, dict[str, float]] = {}
    for one in samples:
        of = one.series
        series.setdefault(f"{of.job} {of.replica} {of.attempt}", {})[of.metric] = one.value
    return {
        "jobs": sorted(msgspec.to_builtins(records.jobs), key=lambda job: (job["job_id"], job["replicas"][0]["name"])),
        "samples": {name: dict(sorted(own.items())) for name, own in sorted(series.items())},
    }


def read(pattern: str, about: str, truth: dict[str, Any] | None = None) -> Machine:
    """Record this machine, with the processes whose control group paths match the pattern."""
    machine = Machine(about, truth or {})
    for name in ("proc/stat", "proc/meminfo", "proc/self/mountinfo"):
        machine.files[name] = _only(name, _text(f"/{name}"))
    machine.links["proc/self/ns/net"] = str(Path("/proc/self/ns/net").readlink())
    hierarchies = Hierarchies()
    for pid in list_pids("/proc"):
        groups = read_groups("/proc", pid)
        if groups and any(re.search(pattern, path) for path in groups.values()):
            _process(machine, pid)
            for controller, path in groups.items():
                _group(machine, hierarchies, controller, path)
    groups_there = "".join(text for name, text in machine.files.items() if name.endswith("/cgroup"))
    folder = Path(FOLDER)
    for link in folder.iterdir() if folder.is_dir() else ():
        if link.is_symlink() and link.stem.rpartition("-")[2] in groups_there:
            machine.links[str(link).removeprefix("/")] = str(link.readlink())
    return machine


def _process(machine: Machine, pid: int) -> None:
    own = f"proc/{pid}"
    for name in _OF_PROCESSES:
        if text := _text(f"/{own}/{name}"):
            machine.files[f"{own}/{name}"] = text
    variables = read_environment("/proc", pid)
    machine.files[f"{own}/environ"] = "".join(f"{name}={value}\0" for name, value in sorted(variables.items()))
    allowed = [line for line in _text(f"/{own}/status").splitlines() if line.startswith("Cpus_allowed_list")]
    machine.files[f"{own}/status"] = "\n".join([*allowed, ""])
    try:
        machine.links[f"{own}/ns/net"] = str(Path(f"/{own}/ns/net").readlink())
    except OSError:  # it has ended in the meantime
        return


def _group(machine: Machine, hierarchies: Hierarchies, controller: str, path: str) -> None:
    """Add the files of a group and of its parents."""
    directory, top = hierarchies.find_directory(controller, path), hierarchies.find_top(controller)
    for folder in climb(directory, top) if directory and top else ():
        for name in _OF_GROUPS:
            place = f"{folder}/{name}".removeprefix("/")
            if place not in machine.files and (text := files.read(f"/{place}")) is not None:
                machine.files[place] = text.decode()
                for device in _DEVICE.findall(text.decode()) if name.startswith(("io.", "blkio.")) else ():
                    if Path(f"/sys/dev/block/{device}/device").exists():
                        machine.files[f"sys/dev/block/{device}/device/model"] = ""


def _only(name: str, text: str) -> str:
    """Return the lines that the agent reads of a file of the machine."""
    wanted = {"proc/stat": r"cpu|btime", "proc/meminfo": r"MemTotal", "proc/self/mountinfo": r".* - cgroup"}[name]
    return "".join(line for line in text.splitlines(keepends=True) if re.match(wanted, line))


def _text(path: str) -> str:
    return (files.read(path) or b"").decode(errors="replace")

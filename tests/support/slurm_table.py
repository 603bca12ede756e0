"""Compares many Slurm jobs on the server with ``sacct``, and prints a table of how many agree in each property."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.slurm import Slurm

STATES = {
    "COMPLETED": "Succeeded",
    "FAILED": "Failed",
    "OUT_OF_MEMORY": "Failed",
    "TIMEOUT": "Failed",
    "NODE_FAIL": "Failed",
    "CANCELLED": "Stopped",
    "PENDING": "Queued",
    "RUNNING": "Running",
}
CLOSE_MS = 2_000
LEAST_CPU = 1.0
"""Seconds of CPU time below which a relative difference is meaningless."""


@dataclass(frozen=True)
class Kind:
    """Kind of job: its script, its options, and its number of replicas (tasks)."""

    name: str
    script: str
    options: tuple[str, ...] = ()
    replicas: int = 1


@dataclass
class Rows:
    """Number of jobs that agree in each property, and the ones that do not."""

    agree: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def add(self, row: str, who: str, ours: object, theirs: object, same: bool | None = None) -> None:
        """Compare one property of one job."""
        equal = ours == theirs if same is None else same
        self.asked[row] = self.asked.get(row, 0) + 1
        self.agree[row] = self.agree.get(row, 0) + equal
        if not equal:
            self.wrong.setdefault(row, []).append(f"{who}: {ours!r}, Slurm has {theirs!r}")

    def text(self) -> str:
        """Format the table: a line for each property, followed by its differences."""
        lines = []
        for row, asked in self.asked.items():
            lines.append(f"{row:<22} {self.agree[row]:>3} of {asked}")
            lines += [f"    {one}" for one in self.wrong.get(row, ())]
        return "\n".join(lines)


def compare(
    slurm: Slurm,
    jobs: Mapping[int, Kind],
    job_of: Callable[[int], dict[str, Any]],
    cpu_of: Callable[[int], float],
) -> Rows:
    """Compare every job on the server with ``sacct``."""
    rows = Rows()
    for number, kind in jobs.items():
        says, found = slurm.accounts(number), job_of(number)
        rows.add("found by its number", kind.name, bool(found), True)
        if found:
            _one(rows, slurm, kind, says, found)
            seconds = cpu_seconds(slurm, number)
            if seconds >= LEAST_CPU:
                ours = cpu_of(number)
                rows.add("CPU within 5 %", kind.name, round(ours, 2), seconds, abs(ours / seconds - 1) <= 0.05)
    return rows


def _one(rows: Rows, slurm: Slurm, kind: Kind, says: Mapping[str, str], found: dict[str, Any]) -> None:
    job, who = found["job"], kind.name
    state = says["State"].partition(" by ")[0]
    started = says["Start"].isdigit() and says["NodeList"] != "None assigned"
    rows.add("owner", who, job["user"], says["User"])
    rows.add("name", who, job["name"], says["JobName"])
    for row, key in (("start within 2 s", "start"), ("end within 2 s", "end")):
        theirs = int(says[key.title()]) * 1000 if says[key.title()].isdigit() and (key == "end" or started) else None
        ours = job[key]
        same = ours == theirs if None in (ours, theirs) else abs(ours - theirs) <= CLOSE_MS
        rows.add(row, who, ours, theirs, same)
    if started:
        names = {one["name"] for one in found["replicas"]}
        rows.add("replicas", who, sorted(names), kind.replicas, len(names) == kind.replicas)
    rows.add("state", who, job["state"], STATES[state])
    if job["state"] not in {"Queued", "Running"} and started:
        code, _, signal = says["ExitCode"].partition(":")
        rows.add("exit code", who, job["exit_code"], int(code) or (128 + int(signal) if int(signal) else 0))
    charged = (job["workspace"], job["resource_group"])
    rows.add("account and partition", who, charged, (says["Account"], says["Partition"]))
    nodes = slurm.command("scontrol", "show", "hostnames", says["NodeList"]).split() if started else []
    rows.add("nodes", who, job["labels"].get("nodes", ""), ",".join(nodes))
    rows.add("asked for", who, _asked(job["labels"]), (says["ReqCPUS"], _mebibytes(says["ReqMem"])))


def _asked(labels: Mapping[str, str]) -> tuple[str, int]:
    return labels.get("requested.cpus", ""), round(float(labels.get("requested.memory", 0)) / 2**20)


def _mebibytes(text: str) -> int:
    units: Sequence[str] = ("K", "M", "G", "T")
    return round(float(text[:-1]) * 1024 ** (units.index(text[-1]) - 1)) if text[-1:] in units else 0


BURN = (
    "import os, time; end = time.process_time() + {}\n"
    "while time.process_time() < end: pass\n"
    'group = next(l.split(chr(58))[2].strip() for l in open("/proc/self/cgroup") if chr(58) + "cpuacct" in l)\n'
    'used = open("/sys/fs/cgroup/cpuacct" + group + "/cpuacct.usage").read().strip()\n'
    'print(group, used, file=open("cpu-" + os.environ["SLURM_JOB_ID"], "a"))'
)
"""Program that burns some seconds of CPU, and then records the CPU time of its cgroup (version 1)."""


RECORD = (
    "; group=$(sed -n 's/.*:[^:]*cpuacct[^:]*://p' /proc/self/cgroup)"
    '; echo "$group $(cat "/sys/fs/cgroup/cpuacct$group/cpuacct.usage")" >> "cpu-$SLURM_JOB_ID"'
)
"""End of a script with steps. It records their CPU time with that of `srun`, a large share for short steps."""


def cpu_seconds(slurm: Slurm, number: int) -> float:
    """Return the CPU seconds of a job with all of its steps, which its own row in the accounting lacks.

    Slurm's figure of a task can be up to a second too high, separately for user and system time. It combines the larger
    seconds of two readings with the microseconds of the last reading (``JOBACCT_DATA_RUSAGE`` in
    slurm_jobacct_gather.c). If it is far above the recorded CPU time of the tasks' cgroups, the function returns the
    latter.
    """
    text = slurm.command("sacct", "-nP", "-j", str(number), "--format=JobIDRaw,TotalCPU")
    rows = dict(line.split("|") for line in text.splitlines())
    seconds = _seconds(rows[str(number)])
    groups = _of_groups(slurm, number)
    return groups if groups and seconds - groups > _TOO_HIGH else seconds


_TOO_HIGH = 0.8


def _of_groups(slurm: Slurm, number: int) -> float:
    found = slurm.jobs / f"cpu-{number}"
    lines = [line.split() for line in found.read_text().splitlines()] if found.exists() else []
    return sum({group: int(used) for group, used in lines}.values()) / 1e9


def _seconds(text: str) -> float:
    """Parse ``1-02:03:04``, ``02:03:04`` or ``03:04.567``."""
    days, _, rest = text.rpartition("-")
    total = 0.0
    for part in rest.split(":"):
        total = total * 60 + float(part)
    return total + 86_400 * int(days or 0)

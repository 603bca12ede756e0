"""Tests of the agent on real cgroup version 2 controllers, in a virtual machine, against the kernel's counters."""

import json
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.machine import HOST, Machine, needs_machine
from tests.support.processes import ServerProcess, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("machine"), pytest.mark.timeout(600)]
MIB = 2**20
BOOT_SECONDS = 240.0
POD = "0a1b2c3d-0001-0002-0003-00000000abcd"
_POD_SLICE = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"
_STEP = "system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"
_SPIN = "import time; t = time.process_time\nwhile t() < 1.0: pass"
_SPIKE = "import time\nx = bytearray(b'x') * (120 << 20)\ndel x\n"
_TOO_MUCH = "x = bytearray(b'x') * (200 << 20)"
_WRITTEN, _READ = 16, 8


@dataclass(frozen=True)
class Task:
    """Process in its own cgroup. ``job`` is the job that the agent derives from it."""

    name: str
    job: str
    group: str
    script: str
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def payload(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "group": self.group,
            "settings": self.settings,
            "environment": self.environment,
            "command": f"until [ -e /vmout/go-{self.name} ]; do sleep 0.5; done; {self.script}",
        }


def python(text: str) -> str:
    return f"/usr/bin/python3 -c {shlex.quote(text)}"


def slurm(number: int, name: str, script: str, **settings: str) -> Task:
    variables = {"SLURM_JOB_ID": str(number), "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    fixed = {key.replace("_", ".", 1): value for key, value in settings.items()}
    return Task(name, str(number), _STEP.format(number), script, fixed, variables)


TASKS = (
    Task(
        "container",
        f"pod-{POD}",
        f"{_POD_SLICE}/cri-containerd-{'0123456789abcdef' * 4}.scope",
        f"{python(_SPIN)}; dd if=/dev/zero of=/dev/vda bs=1M count={_WRITTEN} oflag=direct 2>/dev/null; "
        f"dd if=/dev/vda of=/dev/null bs=1M count={_READ} iflag=direct 2>/dev/null",
        {"cpu.max": "50000 100000", "memory.max": str(200 * MIB)},
    ),
    slurm(77, "spike", python(_SPIKE)),
    slurm(78, "killed", f"{python(_TOO_MUCH)}; exit 9", memory_max=str(48 * MIB)),
)


@dataclass
class Ran:
    """Finished machine, and the server that received its agent's data."""

    server: ServerProcess
    truth: dict[str, dict[str, Any]]
    status: str
    log: str

    def counted(self, task: Task, name: str) -> dict[str, float]:
        """Return the values of a kernel file of a task's cgroup."""
        return {key: float(value) for key, value in (line.split() for line in self.truth[task.name][name].splitlines())}

    def points(self, task: Task, metric: str, **parameters: object) -> list[float]:
        """Return the server's values of a metric of a job, replica by replica."""
        query = {"metric": metric, "by": "replica", "end": time.time_ns() // 10**6, **parameters}
        reply = self.server.call("GET", f"/api/jobmeter/v1/jobs/{task.job}/metrics?{urlencode(query)}")
        assert reply.status == 200, reply.body
        return [value for line in reply.json()["lines"] for _, value in line["points"] if value is not None]

    def increase(self, task: Task, metric: str) -> float:
        return sum(self.points(task, metric, statistic="increase", step="1h"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    needs_machine()
    folder = tmp_path_factory.mktemp("machine")
    machine = Machine(folder / "vm", disk=64 * MIB)
    with running(folder / "data") as server:
        agent = [sys.executable, "-m", "jobmeter", "agent", "--server", f"http://{HOST}:{server.port}"]
        agent += ["--key", server.token, "--interval", "1s", "--node", "v2", "--spool", "/run/spool", "--no-journal"]
        tasks = json.dumps([task.payload() for task in TASKS])
        guest = str(Path(__file__).with_name("cgroup2_guest.py"))
        machine.start(*map(shlex.quote, ["/usr/bin/python3", guest, tasks, *agent]))
        try:
            _drive(machine, server)
        finally:
            machine.stop()
        truth = {task.name: json.loads(machine.said(f"truth-{task.name}")) for task in TASKS}
        yield Ran(server, truth, machine.said("status").strip(), machine.said("log") + machine.said("agent.log"))


def _drive(machine: Machine, server: ServerProcess) -> None:
    """Release each task after the server has its job, and wait until the machine is off."""

    def is_there(path: str, text: bytes = b"") -> bool:
        assert machine.runs, machine.said("log") + machine.said("agent.log")
        reply = server.call("GET", f"/api/jobmeter/v1/{path}")
        return reply.status == 200 and text in reply.body

    def looks() -> int:
        assert machine.runs, machine.said("log") + machine.said("agent.log")
        query = {"metric": "node.load1", "step": "1s", "end": time.time_ns() // 10**6}
        reply = server.call("GET", f"/api/jobmeter/v1/nodes/v2/metrics?{urlencode(query)}")
        assert reply.status == 200, reply.body
        return sum(value is not None for line in reply.json()["lines"] for _, value in line["points"])

    def let_go(task: Task) -> None:
        """Release a task's empty cgroup after two more scans of the agent, which has then read its final counters."""
        wait_until((machine.share / f"empty-{task.name}").exists, f"the end of {task.name}", BOOT_SECONDS)
        before = looks()
        wait_until(lambda: looks() > before + 2, "two more looks", BOOT_SECONDS)
        machine.let(f"remove-{task.name}")

    wait_until(lambda: is_there("nodes", b'"v2"'), "the agent's first frame", BOOT_SECONDS)
    machine.let("begin")
    for task in TASKS:
        wait_until(lambda job=task.job: is_there(f"jobs/{job}"), task.job, BOOT_SECONDS)  # type: ignore[misc]
        machine.let(f"go-{task.name}")
    for task in TASKS:
        let_go(task)
    wait_until(lambda: not machine.runs, "the end of the machine", BOOT_SECONDS)


def test_the_agent_ends_well_and_says_nothing_is_wrong(ran: Ran) -> None:
    assert ran.status == "0", ran.log
    assert "Traceback" not in ran.log
    assert ran.truth["killed"]["status"] == 9


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_cpu_time_is_the_kernels(ran: Ran, task: Task) -> None:
    seconds = ran.counted(task, "cpu.stat")["usage_usec"] / 1e6
    assert ran.increase(task, "cpu.time") == pytest.approx(seconds, rel=0.05, abs=0.05)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_peak_of_memory_is_at_most_the_kernels_which_counts_file_cache(ran: Ran, task: Task) -> None:
    peak = max(ran.points(task, "memory.peak", statistic="max", step="1s"))
    highest = max(ran.points(task, "memory.usage", statistic="max", step="1s"))
    assert highest <= peak <= float(ran.truth[task.name]["memory.peak"])


def test_kills_for_lack_of_memory_are_counted(ran: Ran) -> None:
    container, _, killed = TASKS
    assert ran.counted(killed, "memory.events")["oom_kill"] == 1
    assert ran.increase(killed, "memory.oom.kills") == 1
    assert ran.increase(container, "memory.oom.kills") == 0


def test_a_quota_holds_back_as_long_as_the_kernel_says(ran: Ran) -> None:
    container, spike, _ = TASKS
    seconds = ran.counted(container, "cpu.stat")["throttled_usec"] / 1e6
    assert seconds > 0.2
    assert ran.increase(container, "cpu.throttled.time") == pytest.approx(seconds, rel=0.05, abs=0.02)
    assert ran.increase(spike, "cpu.throttled.time") == 0


def test_bytes_of_the_disk_are_the_kernels(ran: Ran) -> None:
    container = TASKS[0]
    (line,) = (line for line in ran.truth["container"]["io.stat"].splitlines() if "wbytes" in line)
    says = dict(word.split("=") for word in line.split()[1:])
    assert (int(says["wbytes"]), int(says["rbytes"])) == (_WRITTEN * MIB, _READ * MIB)
    assert ran.increase(container, "disk.write") == _WRITTEN * MIB
    assert ran.increase(container, "disk.read") == _READ * MIB


def test_limits_are_those_of_the_group(ran: Ran) -> None:
    container, _, killed = TASKS
    assert set(ran.points(container, "cpu.limit", statistic="max", step="1s")) == {0.5}
    assert set(ran.points(container, "memory.limit", statistic="max", step="1s")) == {200.0 * MIB}
    assert set(ran.points(killed, "memory.limit", statistic="max", step="1s")) == {48.0 * MIB}


@pytest.mark.parametrize("kind", ["cpu", "memory", "io"])
def test_pressure_is_there_and_no_more_than_the_kernel_counted(ran: Ran, kind: str) -> None:
    container = TASKS[0]
    (some,) = (line for line in ran.truth["container"][f"{kind}.pressure"].splitlines() if line.startswith("some"))
    total = int(some.rpartition("total=")[2]) / 1e6
    assert ran.points(container, f"pressure.{kind}", statistic="max", step="1s") != []
    assert ran.increase(container, f"pressure.{kind}") <= total + 1e-6

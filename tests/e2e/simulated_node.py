"""A simulated node of a large job: the real agent over a /proc of files and GPUs of a fake driver.

``python -m tests.e2e.simulated_node PLAN NUMBER LIFE``: the agent measures until SIGTERM. What it
measured is counted in the node's file ``measured``, a line for each look. Where the plan says so the machine loses its
power in its first life: everything ends right after something was put into the outbox.
"""

import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

import jobmeter.collect.agent as agent_module
import jobmeter.collect.loop as loop_module
import jobmeter.collect.state_file as counter_module
from jobmeter.client.transport import Transport
from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.cgroup.reader import GroupReader
from jobmeter.collect.clock import SampleClock, read_elapsed_ns
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.member import Process
from jobmeter.collect.discover.report import NodeReporter
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.host.cpu import CpuCollector
from jobmeter.collect.host.memory import MemoryCollector
from jobmeter.collect.jobs import JobsCollector
from jobmeter.collect.machine import Machine as MachineFiles
from jobmeter.collect.outbox import Outbox
from jobmeter.collect.registry import JobCollectors, Planned
from jobmeter.collect.reports.settings import ProgramSettings
from jobmeter.collect.spool import Spool
from jobmeter.model.sample import Sample
from jobmeter.model.time import SystemClock
from jobmeter.wire.native.encode import make_samples_frame
from tests.support.nvml import FakeDevice, FakeNvml
from tests.unit.collect.trees import HOST, plant, plant_process

RANKS = 8
"""Ranks, and GPUs, of a node."""
_TICKS = os.sysconf("SC_CLK_TCK")
_FIRST_PID = 100
_UPTIME = 60.0
"""Seconds for which the machine had been running when its first agent started."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes are to do. A rank of the job is worker-N, N being RANKS x node + GPU.

    ``slow`` and ``idle`` are ranks; ``misplaced`` is a rank that computes on the GPU of the rank after it.
    """

    job: str
    folder: str
    key: str
    servers: list[str]
    slow: int
    idle: int
    misplaced: int
    power_cut: int
    """The node that loses its power."""
    frames: int
    """After how many frames in the outbox it does."""


def node_name(number: int) -> str:
    """The name of a node."""
    return f"node-{number:02}"


def node_folder(plan: Plan, number: int) -> Path:
    """Everything of a node."""
    return Path(plan.folder) / node_name(number)


class Machine:
    """One life of a node: its processes, its GPUs and its clock since the start."""

    def __init__(self, plan: Plan, number: int, life: int) -> None:
        self._plan = plan
        self._first = number * RANKS
        self._random = random.Random(number * 10 + life)
        self.root = node_folder(plan, number) / f"life-{life}"
        self.boot = f"{number:08}-{life:04}"
        self._booted_ns = read_elapsed_ns() - int(_UPTIME * 1e9 if life == 1 else 2e9)
        self._start = self.elapsed() // 10_000_000
        self.root.mkdir(parents=True)
        self.driver = FakeNvml(self.root, RANKS)
        self.driver.install()
        for index, device in enumerate(self.driver.devices):
            device.set(uuid=f"GPU-{self._first + index:04}-{'ab' * 12}")
        plant(self.root, {name: text for name, text in HOST.items() if name.startswith("proc/")})
        quiet = {"proc/stat": HOST["proc/stat"].replace("procs_blocked 1", "procs_blocked 0")}
        plant(self.root, quiet, {"proc/sys/kernel/random/boot_id": self.boot + "\n"})
        self.advance()

    def elapsed(self) -> int:
        """Nanoseconds since the machine started."""
        return read_elapsed_ns() - self._booted_ns

    def advance(self) -> None:
        """Let everything have gone on until now."""
        ticks = (self.elapsed() // 10_000_000 - self._start) * _TICKS // 100
        for index, device in enumerate(self.driver.devices):
            rank = self._first + index
            plant_process(
                self.root,
                _FIRST_PID + index,
                start=self._start * _TICKS // 100,
                ticks=ticks,
                resident=50_000,
                SLURM_JOB_ID=self._plan.job,
                SLURM_JOB_NAME="pretrain",
                SLURM_JOB_USER="ada",
                SLURM_PROCID=str(rank),
                SLURM_LOCALID=str(index),
                NVIDIA_VISIBLE_DEVICES=device.uuid,
            )
            self._work(device, rank)

    def _work(self, device: FakeDevice, rank: int) -> None:
        plan, noise = self._plan, self._random.gauss
        users = [one for one in (rank - 1, rank) if one + (one == plan.misplaced) == rank]
        busy = bool(users) and rank != plan.idle
        slow = rank == plan.slow
        active = (45 if slow else 72) + noise(0, 1) if busy else 0.0
        device.set(
            utilization=(95, 40) if busy else (0, 0),
            power=round((380 if slow else 600) * 1000 + noise(0, 3000)) if busy else 90_000,
            clock=(1300, 3201) if slow else (1980, 3201),
        )
        device.set_profile({1: 90.0 if busy else 0.0, 2: active, 3: active / 3, 5: active / 2, 10: active / 2})
        device.run(*((_FIRST_PID + one - self._first, 30 * 2**30) for one in users))
        device.work(**{f"p{_FIRST_PID + one - self._first}": round(active) for one in users if busy})


class Processes(ProcessTable):
    """The processes of a machine, which advances before each scan."""

    def __init__(self, machine: Machine, node: str) -> None:
        proc = str(machine.root / "proc")
        super().__init__(NodeClassifier(node, proc), proc)
        self._machine = machine

    def refresh(self) -> list[Process]:
        self._machine.advance()
        return super().refresh()


def install(plan: Plan, number: int, life: int, machine: Machine) -> None:
    """Let the modules of the agent find that machine where they look for the one that they run on."""
    os.environ.update(machine.driver.environment)
    proc = str(machine.root / "proc")
    frames = 0
    measured = (node_folder(plan, number) / "measured").open("a")

    def host_collectors(place: NodeIdentity) -> list[Planned]:
        return [Planned(CpuCollector(place, proc)), Planned(MemoryCollector(place, proc))]

    def job_collectors(
        place: NodeIdentity, _classifier: Any, _clock: Any, *, state: Path | None, **_: Any
    ) -> JobCollectors:
        table = Processes(machine, place.node)
        jobs = JobsCollector(place, table, GroupReader(Hierarchies(proc)), proc, state=state)
        names = DeviceNames((VENDOR,), MachineFiles(proc=proc)).get_vendor_names(VENDOR)
        nvidia = AcceleratorCollector(place, names, PynvmlLibrary(proc_root=proc), table)
        return JobCollectors(table, jobs, [nvidia])

    def reporter(place: NodeIdentity, devices: Any, *, interval_ms: int, state: Path | None) -> NodeReporter:
        return NodeReporter(place, devices, proc, interval_ms, state)

    def counted(samples: Sequence[Sample]) -> bytes:
        if samples:
            own = sum(sample.series.job == plan.job for sample in samples)
            taken = sum(not sample.series.metric.startswith("agent.") for sample in samples)
            measured.write(f"{own} {taken} {len(samples)}\n")
            measured.flush()
        return make_samples_frame(samples)

    class Power(Outbox):
        def put(self, frame: bytes, *, urgent: bool = True) -> bool:
            nonlocal frames
            done = super().put(frame, urgent=urgent)
            frames += 1
            if life == 1 and number == plan.power_cut and frames == plan.frames:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

    replaced: dict[Any, dict[str, Any]] = {
        agent_module: {
            "create_host_collectors": host_collectors,
            "create_job_collectors": job_collectors,
            "NodeReporter": reporter,
            "Outbox": Power,
        },
        loop_module: {"make_samples_frame": counted},
        counter_module: {"read_boot_id": lambda: machine.boot, "read_elapsed_ns": machine.elapsed},
    }
    for module, names in replaced.items():
        for name, value in names.items():
            setattr(module, name, value)


def main(path: str, number: int, life: int) -> int:
    """Run the agent of a node until SIGTERM; 0 when everything was delivered."""
    plan = msgspec.json.decode(Path(path).read_bytes(), type=Plan)
    machine = Machine(plan, number, life)
    install(plan, number, life, machine)
    transport = Transport(plan.servers[number], plan.key, timeout=10.0)
    spool = Spool(node_folder(plan, number) / "spool")
    clock = SampleClock(SystemClock(), machine.elapsed)
    # Programs of other tests send their numbers to every open socket.
    closed = ProgramSettings(socket="")
    place = NodeIdentity(node_name(number), "sim")
    agent = agent_module.Agent(place, lambda: transport, clock, spool, 1000, programs=closed)
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return 0 if agent.run(stop) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

"""Simulated node of a large job: the real agent on files in place of /proc, and on GPUs of a fake driver.

``python -m tests.e2e.simulated_node PLAN NUMBER LIFE``: the agent measures until SIGTERM. It counts its measurements in
the node's file ``measured``, a line for each scan. If the plan says so, the machine loses its power in its first life:
the process ends right after a write to the outbox.
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
"""Number of ranks, and of GPUs, of a node."""
_TICKS = os.sysconf("SC_CLK_TCK")
_FIRST_PID = 100
_UPTIME = 60.0
"""Uptime of a machine in seconds when its first agent starts."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of the nodes. Rank RANKS x node + GPU of the job is the replica worker-RANK.

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
    """Node that loses its power."""
    frames: int
    """Number of frames in the outbox before the power loss."""


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:02}"


def node_folder(plan: Plan, number: int) -> Path:
    """Return the folder with all data of a node."""
    return Path(plan.folder) / node_name(number)


class Machine:
    """Life of a node between power losses: its processes, its GPUs and its clock since the boot."""

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
        """Return the nanoseconds since the boot."""
        return read_elapsed_ns() - self._booted_ns

    def advance(self) -> None:
        """Advance all processes and GPUs to the present."""
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
    """Processes of a machine, which advances before each scan."""

    def __init__(self, machine: Machine, node: str) -> None:
        proc = str(machine.root / "proc")
        super().__init__(NodeClassifier(node, proc), proc)
        self._machine = machine

    def refresh(self) -> list[Process]:
        self._machine.advance()
        return super().refresh()


def install(plan: Plan, number: int, life: int, machine: Machine) -> None:
    """Make the agent's modules read that machine instead of the one they run on."""
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
    """Run the agent of a node until SIGTERM. Return 0 if everything was delivered."""
    plan = msgspec.json.decode(Path(path).read_bytes(), type=Plan)
    machine = Machine(plan, number, life)
    install(plan, number, life, machine)
    transport = Transport(plan.servers[number], plan.key, timeout=10.0)
    spool = Spool(node_folder(plan, number) / "spool")
    clock = SampleClock(SystemClock(), machine.elapsed)
    # Programs of other tests send their metrics to every open socket.
    closed = ProgramSettings(socket="")
    place = NodeIdentity(node_name(number), "sim")
    agent = agent_module.Agent(place, lambda: transport, clock, spool, 1000, programs=closed)
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return 0 if agent.run(stop) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

"""Simulation of a node with NVIDIA and AMD GPUs, 500 processes and six jobs: tests of every owner and every sum.

``python -m tests.unit.collect.accelerators.test_simulated_node ROOT STATE`` measures the files of this node. Each line
on standard input is a collection after that many milliseconds. Each collection prints its values as a line.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.nvml import FakeNvml
from tests.unit.collect.accelerators.amd.test_amd import card, process
from tests.unit.collect.gpus import ManualClock
from tests.unit.collect.trees import plant, plant_process

from jobmeter.collect.accelerators import registry
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.machine import Machine
from jobmeter.collect.registry import create_accelerator_collectors
from jobmeter.model.device import DeviceState
from jobmeter.testing.collector import NOW_MS

JOBS = [f"{4000 + number}" for number in range(6)]
PROCESSES = 500
MIB = 2**20
LOST, HUNG = 5, 6
WHOLE = {"gpu0": [0], "gpu1": [0, 0], "gpu2": [1, 2], "gpu5": [0], "gpu6": [3], "gpu7": []}
"""Jobs of the processes on each whole GPU of NVIDIA."""
INSTANCES = {"gpu3:1": [3], "gpu3:2": [4], "gpu4:1": [4, 4], "gpu4:2": []}
CARDS = {"amd0": [5], "amd1": [5, 5], "amd2": [1, 5], "amd3": []}


class Measuring:
    """Table of processes and collectors of an agent over the files of a node."""

    def __init__(self, root, state):
        self.clock, self.now_ms = ManualClock(), NOW_MS
        folders = ("proc", "sys", "dev", "run", "var")
        machine = Machine(**{name: str(root / name) for name in folders})
        self.table = ProcessTable(NodeClassifier("n1", machine.proc), machine.proc)
        names = DeviceNames(registry.VENDORS, machine, state)
        hierarchies = Hierarchies(machine.proc, str(root))
        place = NodeIdentity("n1", "c1")
        self.accelerators = create_accelerator_collectors(
            place, self.table, self.clock, hierarchies, names, patience=9.0
        )

    def look(self, passed_ms=10_000):
        self.table.refresh()
        self.now_ms += passed_ms
        self.clock.seconds += passed_ms / 1000
        samples = [sample for one in self.accelerators for sample in one.collect(self.now_ms)]
        return [(one.series.metric, one.series.device, one.series.job, one.value) for one in samples]


class AgentProcess:
    """Process that measures a node until it is killed."""

    def __init__(self, node, state):
        command = [sys.executable, "-m", "tests.unit.collect.accelerators.test_simulated_node"]
        environment = {**os.environ, **node.driver.environment}
        self._process = subprocess.Popen(
            [*command, str(node.root), str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[4],
        )

    def begin(self, passed_ms=10_000):
        """Start a collection in the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{passed_ms}\n")
        self._process.stdin.flush()

    def look(self, passed_ms=10_000):
        """Return the values of a collection by metric, device and job."""
        self.begin(passed_ms)
        assert self._process.stdout is not None
        values = [(tuple(key), value) for *key, value in json.loads(self._process.stdout.readline())]
        assert len(dict(values)) == len(values)
        return dict(values)

    def kill(self):
        """End the process as ``kill -9`` does."""
        self._process.kill()
        with self._process:
            self._process.wait()


class SimulatedNode:
    """Files and drivers of the node."""

    def __init__(self, root, driver, seed=7):
        self.root, self.driver, self.random = root, driver, random.Random(seed)
        self.memory: dict[str, dict[str, int]] = {}
        self.users: dict[str, list[int]] = {}
        self.shares: dict[tuple[str, str], float] = {}
        self.free = list(range(1_000, 1_000 + PROCESSES))
        self.random.shuffle(self.free)
        self.pids: dict[int, list[int]] = {number: [] for number in range(len(JOBS))}
        for pid in self.free:  # two of three belong to jobs
            number = self.random.randrange(9)
            job: dict[str, Any] = {"SLURM_JOB_ID": JOBS[number], "SLURM_PROCID": "0"} if number < len(JOBS) else {}
            plant_process(root, pid, **job)
            if job:
                self.pids[number].append(pid)
        plant(root, {"proc/driver/nvidia/version": "x", "proc/uptime": "1 1"})
        for number in range(8):
            plant(root, {f"sys/bus/pci/drivers/nvidia/0000:{number + 0x1B:02x}:00.0/vendor": "0x10de"})
        for number in range(4):
            plant(root, card(number, 0x80 + number, kfd=[70 + number])[0])
            plant(root, {f"sys/bus/pci/drivers/amdgpu/0000:{0x80 + number:02x}:00.0/vendor": "0x1002"})
        for number in (3, 4):
            driver.devices[number].split((1, 0, 3), (2, 0, 4))
        self._use()

    def _use(self):
        for device, jobs in WHOLE.items():
            self.driver.devices[int(device[3:])].run(*self._users(device, jobs))
        for number in (3, 4):
            own = [(device, INSTANCES[device]) for device in sorted(INSTANCES) if device.startswith(f"gpu{number}:")]
            users = [(at, user) for at, (device, jobs) in enumerate(own) for user in self._users(device, jobs)]
            self.driver.devices[number].run(*(user for _, user in users))
            self.driver.devices[number].run_in(*(at for at, _ in users))
        for number, (device, jobs) in enumerate(CARDS.items()):
            for pid, memory in self._users(device, jobs):
                plant(self.root, process(pid, **{f"g{70 + number}": memory}))

    def work(self):
        """Make each process on a whole NVIDIA GPU compute for a random share of the time since the last collection."""
        self.shares = {}
        for device, jobs in WHOLE.items():
            gpu = self.driver.devices[int(device[3:])]
            pids = self.users[device]
            shares = {f"p{pid}": self.random.randrange(1, 40) for pid in pids}
            gpu.work(**shares)
            for number, pid in zip(jobs, pids, strict=True):
                key = device, JOBS[number]
                self.shares[key] = self.shares.get(key, 0.0) + shares[f"p{pid}"] / 100

    def _users(self, device, jobs):
        found = [(self.pids[number].pop(), self.random.randrange(1, 4_000) * MIB) for number in jobs]
        self.users[device] = [pid for pid, _ in found]
        sums = self.memory[device] = {}
        for number, (_, memory) in zip(jobs, found, strict=True):
            sums[JOBS[number]] = sums.get(JOBS[number], 0) + memory
        return found


def owners(found, metric):
    return {device: job for name, device, job in found if name == metric}


def single(jobs):
    """Return the job of a device; empty if several jobs share it."""
    names = {JOBS[number] for number in jobs}
    return names.pop() if len(names) == 1 else ""


def check(node, found, missing=()):
    """Compare every owner and every sum. ``missing`` are devices that do not answer."""
    users = {**WHOLE, **INSTANCES, **CARDS}
    expected = {device: single(jobs) for device, jobs in users.items() if device not in missing}
    whole = {device: job for device, job in expected.items() if device not in INSTANCES} | {"gpu3": "", "gpu4": ""}
    assert owners(found, "gpu.power") == whole
    assert owners(found, "gpu.memory.usage") == expected
    used = {(device, job): value for (name, device, job), value in found.items() if name == "gpu.process.memory.usage"}
    planted = {
        (device, job): memory
        for device, sums in node.memory.items()
        for job, memory in sums.items()
        if device not in missing
    }
    assert used == planted
    for job in JOBS:
        assert sum(value for (_, of), value in used.items() if of == job) == sum(
            memory for (_, of), memory in planted.items() if of == job
        )
    busy = {
        (device, job): value
        for (name, device, job), value in found.items()
        if name == "gpu.process.utilization" and device.startswith("gpu") and value
    }
    assert busy == pytest.approx(node.shares)
    node.shares = {}
    counted = {device: value for (name, device, _), value in found.items() if name == "gpu.processes"}
    assert counted == {device: len(jobs) for device, jobs in users.items() if device not in missing}
    assert {value for (name, *_), value in found.items() if name == "gpu.processes.foreign"} == {0}


@pytest.fixture
def node(tmp_path):
    driver = FakeNvml(tmp_path, 8)
    driver.install()
    yield SimulatedNode(tmp_path, driver)
    driver.unblock()


@pytest.fixture
def agent(node, tmp_path):
    """Return a function that starts an agent process for the node; kill all of them at the end."""
    state = tmp_path / "state"
    state.mkdir()
    started = []

    def start():
        started.append(AgentProcess(node, state))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def test_every_owner_and_every_sum_also_after_a_kill(node, agent):
    first = agent()
    check(node, first.look())
    node.work()
    check(node, first.look())
    node.driver.devices[LOST].fail(15)
    node.driver.devices[HUNG].block(1)
    for _ in range(2):
        check(node, first.look(), (f"gpu{LOST}", f"gpu{HUNG}"))
    found = first.look()
    check(node, found, (f"gpu{LOST}", f"gpu{HUNG}"))
    states = {(device, job): value for (name, device, job), value in found.items() if name == "gpu.state" and value}
    # A device that does not answer stays with its job while the job's processes live.
    assert states == {
        (f"gpu{LOST}", JOBS[0]): DeviceState.LOST.code,
        (f"gpu{HUNG}", JOBS[3]): DeviceState.HANGS.code,
    }
    first.begin()  # the process is killed during a collection, while a driver call is in progress
    first.kill()
    node.driver.unblock()
    node.driver.devices[LOST].fail(0)
    for path in ("sys/class/drm/card1", "sys/bus/pci/drivers/amdgpu/0000:81:00.0"):
        shutil.rmtree(node.root / path)
    second = agent()
    check(node, second.look(), ("amd1",))
    node.work()
    check(node, second.look(), ("amd1",))


def main(root, state):
    """Measure the node in a folder, as the module's docstring describes."""
    measuring = Measuring(Path(root), Path(state))
    for line in sys.stdin:
        print(json.dumps(measuring.look(int(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""GPUs for tests: records of devices, and devices measured by the real collector over the fake library."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.nvml import Call, FakeNvml
from tests.support.waiting import wait_until

from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.accelerators.vendor import Driver, Vendor
from jobmeter.collect.accelerators.visible import Partition, make_scheduler_variables
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.devices import DeviceSet
from jobmeter.collect.discover.member import Member, MembershipSource, MemberTable, Process
from jobmeter.collect.machine import Machine
from jobmeter.collect.process.stat import Key, ProcessStat
from jobmeter.model.device import DeviceState
from jobmeter.model.record import check_record
from jobmeter.testing.collector import NOW_MS

PLACE = NodeIdentity("n1", "c1")
TICK_MS = 10_000
HEALTHY = [0, 1, 2, 4, 5, 6, 7]
"""Devices other than the one that a test makes fail."""
ALL = sorted([*HEALTHY, 3])
OPENING = {Call.HANDLE, Call.UUID, Call.MINOR, Call.NAME, Call.PCI, Call.SERIAL}
"""Calls that open a device."""


class Gpu(Accelerator):
    """Device without readings."""

    def __init__(
        self,
        index: int = 0,
        uuid: str = "GPU-00000000",
        name: str = "NVIDIA H200",
        minor: int | None = None,
        pci: str = "",
        state: DeviceState = DeviceState.MEASURED,
        part: Partition | None = None,
        details: dict[str, str | int] | None = None,
    ) -> None:
        super().__init__(index, ManualClock(), "gpu")
        self.uuid, self.name, self.minor, self.pci, self.part = uuid, name, minor, pci, part
        self.details = details or {}
        self._state = state

    @property
    def attached(self) -> bool:
        return False


class ManualClock:
    """Clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def member(job: str, replica: str = "worker-0", **more: Any) -> Member:
    return Member(owner=Owner(job, replica), source=MembershipSource.SLURM, **more)


class Members:
    """Members of jobs by process, as a test sets them."""

    def __init__(self) -> None:
        self.by_pid: dict[int, Member] = {}
        self.others: list[Member] = []
        self.gone: list[Process] = []

    def find_member(self, pid: int) -> Member | None:
        return self.by_pid.get(pid)

    def list_members(self) -> list[Member]:
        return [*self.by_pid.values(), *self.others]

    def list_ended(self) -> list[Process]:
        return self.gone

    def end(self, pid: int, of: Member, start: int = 0) -> None:
        """Record that a process of a job has ended since the last and only scan."""
        self.gone = [Process(ProcessStat(Key(pid, start), 1, "X", 0, 1, 0), of)]


class DeviceNode:
    """Node under a folder, whose processes and time a test sets. A subclass calls ``measure_with``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machine = Machine(proc=str(root / "proc"), sys=str(root / "sys"), dev=str(root / "dev"))
        self.clock, self.members = ManualClock(), Members()
        self.now_ms = NOW_MS

    def measure_with(self, vendor: Vendor[Any], driver: Driver[Any], patience: float = 30.0) -> None:
        """Create the collector of the vendor's devices."""
        names = DeviceNames((vendor,), self.machine).get_vendor_names(vendor)
        self.vendor = vendor
        self.collector = AcceleratorCollector(PLACE, names, driver, self.members, patience=patience)

    def look(self, passed_ms: int = 10_000) -> dict[tuple[str, str, str], float]:
        """Advance the time and collect. Return the values by metric, device and job."""
        self.now_ms += passed_ms
        self.clock.seconds += passed_ms / 1000
        return {
            (one.series.metric, one.series.device, one.series.job): one.value
            for one in self.collector.collect(self.now_ms)
        }

    def visible(self, **variables: str) -> list[int]:
        """Collect. Return the numbers of the devices that the environment of a process names."""
        self.look()
        devices = DeviceSet(self.collector.devices, self.vendor.variables)
        return devices.list_visible(member("j", devices=tuple(variables.items())))


def device_set(devices: Sequence[Accelerator]) -> DeviceSet:
    """Return the GPUs of a node, with the variables that name them."""
    return DeviceSet(devices, (*make_scheduler_variables(VENDOR.uuid_prefix), *VENDOR.variables))


def nvidia_collector(driver: PynvmlLibrary, members: MemberTable, **more: Any) -> AcceleratorCollector[Any]:
    """Return the collector of NVIDIA's GPUs on a node without another vendor."""
    names = DeviceNames((VENDOR,), Machine()).get_vendor_names(VENDOR)
    return AcceleratorCollector(PLACE, names, driver, members, **more)


class Bench:
    """Collector and binding over a fake library, with a table of processes that the test fills."""

    def __init__(self, driver: FakeNvml, *, proc: Path | None = None, patience: float = 30.0, **more: Any) -> None:
        self.driver = driver
        self.devices = driver.devices
        self.members = Members()
        self.by_pid = self.members.by_pid
        self.clock = ManualClock()
        self.nvml = PynvmlLibrary(proc_root=str(proc or driver.folder), clock=self.clock, patience=patience)
        self.collector = nvidia_collector(self.nvml, self.members, patience=patience, **more)
        self.now_ms = NOW_MS
        driver.readers.append(self.close)

    def close(self) -> None:
        """Close the library after its calls have returned."""
        wait_until(lambda: not any(device.busy for device in self.collector.devices), "the calls return")
        self.nvml.close()

    def look(self, now_ms: int | None = None) -> dict[tuple[str, str, str, str], float]:
        """Collect at a time, one tick after the last one by default.

        Return values by metric, device, job and replica.
        """
        self.now_ms = self.now_ms + TICK_MS if now_ms is None else now_ms
        return {
            (one.series.metric, one.series.device, one.series.job, one.series.replica): one.value
            for one in self.collector.collect(self.now_ms)
        }

    def measured_within(self, numbers: Sequence[int], minutes: int = 1) -> dict[tuple[str, str, str, str], float]:
        """Collect every ten seconds until exactly these devices are measured. Return the last values."""
        for _ in range(minutes * 6 + 1):
            look = self.look()
            if sorted(int(key[1][3:]) for key in look if key[0] == "gpu.power") == numbers:
                return look
        raise AssertionError(f"not measured within {minutes} min: {self.states()}, {self.nvml.problem}")

    def wait_at_most(self, seconds: float) -> None:
        """Set the patience: short for a call that blocks, else long enough that no device is late on a busy machine."""
        self.nvml.patience = self.collector.patience = seconds

    def devices_of(self, metric: str) -> list[int]:
        """Collect. Return the numbers of the devices that have the metric."""
        return sorted(int(device[3:]) for name, device, *_ in self.look() if name == metric)

    def states(self) -> list[DeviceState]:
        return [device.state for device in self.collector.devices]

    @property
    def problem(self) -> DeviceState | None:
        """Device state that a fault of the library causes; None without a fault."""
        return None if self.nvml.problem is None else self.nvml.problem.state

    def owners(self, device: str = "gpu0") -> set[tuple[str, str]]:
        return {(job, replica) for name, on, job, replica in self.look() if name == "gpu.power" and on == device}

    def allocations(self) -> list[tuple[object, ...]]:
        return [
            (job.job_id, a.replica, a.device, a.start, a.end, a.rank, a.source)
            for job in self.collector.allocations.take_records(0).jobs
            for a in check_record(job).allocations
        ]

    def events(self) -> list[tuple[str, str, str]]:
        """Return the events since the last call: reason, job, subject."""
        return [(one.reason, one.job, one.subject) for one in self.collector.states.take_records(0).events]


def plant_kernel_list(proc: Path, count: int = 8, uuid: str = "GPU-{at:08x}-1d1c-d9ed-fe37-18b8466a78ad") -> None:
    """Write the GPUs that the kernel's driver lists."""
    for at in range(count):
        folder = proc / "driver/nvidia/gpus" / f"0000:{0x18 + at:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t {500 + at}\nGPU UUID: \t {uuid.format(at=at)}\n"
            f"Bus Location: \t 0000:{0x18 + at:02x}:00.0\nDevice Minor: \t {at}\nGPU Excluded:\t No\n"
        )

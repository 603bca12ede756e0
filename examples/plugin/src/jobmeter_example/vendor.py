"""Example of a vendor of accelerators. Its driver has a folder of files for each device in /sys/class/example."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.accelerators.device import (
    Accelerator,
    DeviceLostError,
    DeviceProcess,
    NotSupportedError,
    close_all,
    open_due,
)
from jobmeter.collect.accelerators.vendor import DeviceHealth, DriverProblem, Measure, Vendor
from jobmeter.collect.accelerators.visible import VisibleVariable, parse_listed_devices
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState
from jobmeter.model.time import Clock

_PREFIX = "EXAMPLE-"


class ExampleDevice(Accelerator):
    """Device with files in a folder: ``power`` in milliwatts, ``errors`` as a count."""

    def __init__(self, index: int, clock: Clock, folder: Path) -> None:
        super().__init__(index, clock, "example ")
        self._folder = folder
        self._open = False

    @property
    def attached(self) -> bool:
        """True while the device is attached."""
        return self._open

    def attach(self) -> None:
        """Read the identity of the device."""
        self.uuid = files.read_text(str(self._folder / "uuid"))
        self.name, self.details = "Example One", {"vendor": "example"}
        self._open = True
        self.note_answer()

    def detach(self) -> None:
        """Mark the device as absent."""
        self._open = False

    def number(self, name: str) -> int:
        """Read the number in a file. Raises NotSupportedError without a number, DeviceLostError without the device."""
        found = files.read_number(str(self._folder / name))
        if found is None and not self._folder.is_dir():
            self.note_failure(DeviceState.LOST, "its folder is gone")
            self.retry.note_failure()
            raise DeviceLostError(self.reason)
        if found is None:
            raise NotSupportedError(f"no {name}", lasting=True)
        self.note_answer()
        return found

    def list_processes(self) -> Sequence[DeviceProcess]:
        """Raise NotSupportedError. Environments and the kubelet name the job of the device."""
        raise NotSupportedError("no processes", lasting=True)

    def process_utilization(self) -> Mapping[int, float] | None:
        """Raise NotSupportedError."""
        raise NotSupportedError("no processes", lasting=True)


class ExampleDriver:
    """Driver of the devices. A device that disappears is reported as lost."""

    problem: DriverProblem | None = None

    def __init__(self, clock: Clock, machine: Machine, patience: float) -> None:
        self._clock, self._patience = clock, patience
        self._folder = Path(machine.sys, "class/example")
        self._devices: dict[int, ExampleDevice] = {}

    def list_devices(self, now_ms: int | None = None) -> Sequence[ExampleDevice]:
        """Return the devices by number."""
        for folder in self._folder.glob("[0-9]*"):
            number = int(folder.name)
            self._devices.setdefault(number, ExampleDevice(number, self._clock, folder))
        for device in self._devices.values():
            device.begin_round(now_ms)
        deadline = self._clock.monotonic() + self._patience
        open_due(self._devices.values(), lambda device: device.attach, deadline, self._clock)
        return [self._devices[number] for number in sorted(self._devices)]

    def close(self) -> bool:
        """Detach every device."""
        return close_all(self._devices.values())


def _power(device: ExampleDevice) -> Mapping[str, float]:
    return {"npu.power": device.number("power") / 1_000}


def _check(device: ExampleDevice) -> DeviceHealth:
    count = device.number("errors")
    return DeviceHealth({"errors": float(count)}, [f"{count} errors"] if count else [], [])


VENDOR = Vendor(
    name="example",
    title="Example",
    noun="NPU",
    source="the driver of Example",
    prefix="npu",
    open=ExampleDriver,
    measures=(Measure(("npu.power",), _power),),
    slow_measures=(),
    check=_check,
    device_numbers={},
    device_files="/dev/example",
    unit_devices=(),
    domain="example.org",
    variables=(VisibleVariable("EXAMPLE_VISIBLE_DEVICES", partial(parse_listed_devices, uuid_prefix=_PREFIX)),),
    uuid_prefix=_PREFIX,
    advice={},
    help="see the kernel's log",
    recovery="See the kernel's log, and reset or replace it.",
)

"""Fake vendor of accelerators, Acme: its driver keeps the facts about device N in files of ``/sys/class/acme/N``."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

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

CLASS = "class/acme"


class AcmeDevice(Accelerator):
    """Acme device; ``power`` is in watts, ``errors`` a count, a line of ``processes`` a process and its bytes."""

    def __init__(self, index: int, clock: Clock, folder: Path) -> None:
        super().__init__(index, clock, "acme ")
        self._folder = folder
        self._open = False

    @property
    def attached(self) -> bool:
        return self._open

    def attach(self) -> None:
        """Read the identity of the device."""
        try:
            self.uuid, self.minor, self.name = self.text("uuid"), int(self.text("minor")), "Acme One"
        except DeviceLostError:
            self.retry.note_failure()
            return
        self._open = True

    def detach(self) -> None:
        self._open = False

    def text(self, name: str) -> str:
        """Call the driver and return the content of a file."""
        try:
            found = (self._folder / name).read_text().strip()
        except FileNotFoundError as error:
            if self._folder.is_dir():
                raise NotSupportedError(f"no {name}", lasting=True) from error
            self.note_failure(DeviceState.LOST, "it is gone")
            self.retry.note_failure()
            raise DeviceLostError("it is gone") from error
        self.note_answer()
        return found

    def list_processes(self) -> Sequence[DeviceProcess]:
        rows = [line.split() for line in self.text("processes").splitlines()]
        return [DeviceProcess(int(pid), int(memory)) for pid, memory in rows]

    def process_utilization(self) -> Mapping[int, float] | None:
        raise NotSupportedError("no shares", lasting=True)


class AcmeDriver:
    """Driver of Acme; the file ``count`` holds the number of devices."""

    def __init__(self, clock: Clock, machine: Machine, patience: float) -> None:
        self.problem: DriverProblem | None = None
        self._clock, self._machine, self._patience = clock, machine, patience
        self._devices: list[AcmeDevice] = []

    def list_devices(self, now_ms: int | None = None) -> Sequence[AcmeDevice]:
        folder = Path(self._machine.sys, CLASS)
        if not folder.is_dir():
            self.problem = DriverProblem("there is no driver", DeviceState.DRIVER_NOT_LOADED)
            return []
        self.problem = None
        count = int((folder / "count").read_text())
        self._devices += [AcmeDevice(at, self._clock, folder / str(at)) for at in range(len(self._devices), count)]
        for device in self._devices:
            device.begin_round(now_ms)
        deadline = self._clock.monotonic() + self._patience
        open_due(self._devices, lambda device: device.attach, deadline, self._clock)
        return self._devices

    def close(self) -> bool:
        return close_all(self._devices)


def _power(device: AcmeDevice) -> Mapping[str, float]:
    return {"gpu.power": float(device.text("power"))}


def _errors(device: AcmeDevice) -> Mapping[str, float]:
    return {"gpu.ecc.uncorrected": float(device.text("errors"))}


def _check(device: AcmeDevice) -> DeviceHealth:
    errors = int(device.text("errors"))
    return DeviceHealth({"errors": float(errors)}, [f"{errors} errors"] if errors else [], [])


VENDOR = Vendor(
    name="acme",
    title="Acme",
    noun="GPU",
    source="Acme's driver",
    prefix="gpu",
    open=AcmeDriver,
    measures=(Measure(("gpu.power",), _power),),
    slow_measures=(Measure(("gpu.ecc.uncorrected",), _errors),),
    check=_check,
    device_numbers=MappingProxyType({240: range(64)}),
    device_files="/dev/acme/card",
    driver_folder="driver/acme",
    unit_devices=("char-acme",),
    domain="acme.example",
    resource_kinds=("half-.+",),
    uuid_of_id=lambda text: text.partition("_")[0],
    variables=(VisibleVariable("ACME_VISIBLE", partial(parse_listed_devices, uuid_prefix="ACME-"), relative=True),),
    uuid_prefix="ACME-",
    advice=MappingProxyType({DeviceState.LOST: "turn it off and on again"}),
    help="see `acme status`",
    recovery="Turn it off and on again.",
)

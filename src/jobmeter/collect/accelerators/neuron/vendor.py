"""AWS Trainium and Inferentia as a vendor of accelerators: the driver and the measures of the devices."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jobmeter.collect.accelerators.device import close_all, open_due
from jobmeter.collect.accelerators.neuron.device import CLASS, UUID_PREFIX, NeuronDevice
from jobmeter.collect.accelerators.neuron.monitor import MonitorReader
from jobmeter.collect.accelerators.vendor import DeviceHealth, DriverProblem, Measure, Vendor
from jobmeter.collect.accelerators.visible import Numbered, VisibleVariable, numbers_in
from jobmeter.collect.base import Machine
from jobmeter.model.device import DeviceState
from jobmeter.model.time import Clock

_MOST_DEVICES = 64
"""Largest number of devices of a node, as in the driver."""


class NeuronDriver:
    """Neuron devices by number. One collection waits ``patience`` seconds for the devices.

    A device that has disappeared is lost.
    """

    problem: DriverProblem | None = None
    """Always None, because the kernel's files need no library."""

    def __init__(self, clock: Clock, machine: Machine, patience: float, monitor: MonitorReader | None = None) -> None:
        self._clock, self._machine, self._patience = clock, machine, patience
        self._monitor = monitor or MonitorReader(clock)
        self._devices: dict[int, NeuronDevice] = {}

    def devices(self, now_ms: int | None = None) -> Sequence[NeuronDevice]:
        """Return the devices, including those that have disappeared since the agent started."""
        for number in self._list_device_files():
            if number not in self._devices:
                self._devices[number] = NeuronDevice(number, self._clock, self._machine, self._monitor)
        if self._devices:
            self._monitor.update(now_ms)
        deadline = self._clock.monotonic() + self._patience
        for device in self._devices.values():
            device.begin_round(now_ms)
        open_due(self._devices.values(), lambda device: device.attach, deadline, self._clock)
        return [self._devices[number] for number in sorted(self._devices)]

    def close(self) -> bool:
        """End the program, which has the devices open, and detach the devices."""
        is_ended = self._monitor.close()
        return close_all(self._devices.values()) and is_ended

    def _list_device_files(self) -> list[int]:
        names = (path.name.removeprefix("neuron") for path in Path(self._machine.sys, CLASS).glob("neuron[0-9]*"))
        return sorted(int(name) for name in names if name.isdigit() and int(name) < _MOST_DEVICES)


_PERCENT = 0.01
_FAST = ("npu.utilization", "npu.memory.usage", "npu.memory.limit", "npu.executions.failed")
_SLOW = ("npu.power.utilization", "npu.ecc.corrected", "npu.ecc.uncorrected")


def _measure_fast(device: NeuronDevice) -> Mapping[str, float]:
    return device.answer(
        {
            "npu.utilization": _scale(device.utilization(), _PERCENT),
            "npu.memory.usage": _scale(device.memory_usage()),
            "npu.memory.limit": _scale(device.memory_limit),
            "npu.executions.failed": _scale(device.faults()),
        }
    )


def _measure_slow(device: NeuronDevice) -> Mapping[str, float]:
    return device.answer(
        {
            "npu.power.utilization": _scale(device.measure_power_share(), _PERCENT),
            "npu.ecc.corrected": _scale(device.count_corrected_errors()),
            "npu.ecc.uncorrected": _scale(device.count_uncorrected_errors()),
        }
    )


def health_of(device: NeuronDevice) -> DeviceHealth:
    """Read the errors of a device for a check on request."""
    counts = {"ecc_uncorrected": device.count_uncorrected_errors(), "executions_failed": device.faults()}
    values = {name: float(count) for name, count in counts.items() if count is not None}
    device.answer(values)
    errors = [f"{lost} memory errors were not corrected"] if (lost := counts["ecc_uncorrected"]) else []
    failed = counts["executions_failed"]
    warnings = [f"{failed} executions ended with an error of the hardware"] if failed else []
    return DeviceHealth(values or {"answers": 1.0}, errors, warnings)


def _scale(number: float | None, scale: float = 1.0) -> float | None:
    return None if number is None else number * scale


MEASURES = (Measure(_FAST, _measure_fast),)
"""Measures read at every collection."""
SLOW_MEASURES = (Measure(_SLOW, _measure_slow),)
"""Measures read once a minute: power, which the driver updates once a minute, and error counters."""


def _devices_of_cores(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices of the cores in a value such as ``0-3`` or ``4,5``. Cores are numbered across the node.

    https://awsdocs-neuron.readthedocs-hosted.com/en/latest/containers/faq.html: core 51 of devices with 4 cores is in
    device 12.
    """
    by_core: dict[int, int] = {}
    for device in devices:
        cores = int(device.details.get("cores", 0))
        by_core |= {device.index * cores + core: device.index for core in range(cores)}
    return list(dict.fromkeys(by_core[core] for core in numbers_in(text, by_core)))


def _parse_visible_cores(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices in a value of AWS_NEURON_VISIBLE_DEVICES: ``ALL`` or numbers."""
    given = [device.index for device in devices]
    return given if text.strip().upper() == "ALL" else numbers_in(text, given)


def _number_of_id(resource: str, text: str, devices: Sequence[Numbered]) -> int | None:
    """Return the device number of an id of the device plug-in. The id numbers a core or a device.

    The ids are not documented. OpenTelemetry's collector parses them the same way (``awscontainerinsightreceiver``).
    """
    named = _devices_of_cores if resource.endswith("/neuroncore") else _parse_visible_cores
    return next(iter(named(text, devices)), None) if text.isascii() and text.isdigit() else None


VENDOR = Vendor(
    name="neuron",
    title="AWS Neuron",
    noun="device",
    source="the driver of AWS Neuron",
    prefix="npu",
    open=NeuronDriver,
    measures=MEASURES,
    slow_measures=SLOW_MEASURES,
    check=health_of,
    device_numbers={},  # the kernel chooses the major number
    device_files="/dev/neuron",
    unit_devices=("char-neuron",),  # neuron-monitor needs the device files; the files in /sys need no rule
    domain="aws.amazon.com",
    # https://awsdocs-neuron.readthedocs-hosted.com/en/latest/containers/tutorials/k8s-neuron-device-plugin.html
    resource_kinds=("neuron", "neuroncore", "neurondevice"),
    number_of_id=_number_of_id,
    # https://awsdocs-neuron.readthedocs-hosted.com/en/latest/neuron-runtime/nrt-configurable-parameters.html
    variables=(
        VisibleVariable("NEURON_RT_VISIBLE_CORES", _devices_of_cores),
        VisibleVariable("AWS_NEURON_VISIBLE_DEVICES", _parse_visible_cores),
    ),
    uuid_prefix=UUID_PREFIX,
    advice={
        DeviceState.DRIVER_NOT_LOADED: "load the kernel's module neuron (package aws-neuronx-dkms)",
        DeviceState.NO_PERMISSION: "let the agent read /sys/devices/virtual/neuron_device",
    },
    help="see `neuron-ls` and the kernel's log for neuron",
    recovery="See `neuron-ls` and the kernel's log for neuron, and reset or replace it.",
)

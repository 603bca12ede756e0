"""Driver of Neuron devices, which /sys lists."""

from collections.abc import Sequence
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.accelerators.device import close_all, open_due
from jobmeter.collect.accelerators.neuron.device import CLASS, NeuronDevice
from jobmeter.collect.accelerators.neuron.monitor import MonitorReader
from jobmeter.collect.accelerators.vendor import DriverProblem
from jobmeter.collect.machine import Machine
from jobmeter.model.time import Clock

_MOST_DEVICES = 64
"""Largest number of devices of a node, as in the driver."""


class NeuronDriver:
    """Neuron devices by number. One collection waits ``patience`` seconds for the devices. A missing device is lost."""

    problem: DriverProblem | None = None
    """Always None, because the kernel's files need no library."""

    def __init__(self, clock: Clock, machine: Machine, patience: float, monitor: MonitorReader | None = None) -> None:
        self._clock, self._machine, self._patience = clock, machine, patience
        self._monitor = monitor or MonitorReader(clock)
        self._devices: dict[int, NeuronDevice] = {}

    def list_devices(self, now_ms: int | None = None) -> Sequence[NeuronDevice]:
        """Return the devices, including those that have disappeared since the agent started."""
        for number in files.list_numbers(Path(self._machine.sys, CLASS), "neuron", _MOST_DEVICES):
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

"""A fake of NVML, in NVML's units: devices whose values a test sets, and that can lack, lose or hang anything."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobmeter.collect.nvidia.api import DeviceLostError, DeviceProcess, Field, NotSupportedError

_DEFAULTS: Mapping[str, Any] = {
    "utilization": (83, 41),
    "memory": (60 * 2**30, 139 * 2**30),
    "power": 431_250,
    "power_limit": 700_000,
    "energy": 5_000_123,
    "temperature": 61,
    "fan": 30,
    "clocks": (1980, 3201),
    "highest_clock": 1980,
    "performance_state": 0,
    "encoder": 0,
    "decoder": 0,
    "ecc_errors": (2, 0),
    "remapped_rows": (1, 0, 0, 0),
    "pcie_replays": 3,
    "fields": {(74, 0): 2_000_000_000, (82, 0): 74, (138, 0xFFFFFFFF): 1024, (139, 0xFFFFFFFF): 2048},
    "profile": {1: 90.0, 2: 71.5, 3: 22.0, 5: 44.0, 10: 38.5, 11: 0.0, 12: 3.0, 13: 1.0},
    "processes": (),
    "process_utilization": {},
}


def _method(name: str) -> "Callable[[FakeDevice], Any]":
    """The method that gives the value of that name."""
    return lambda device: device.result(name)


@dataclass
class FakeDevice:
    """See ``NvmlDevice``. ``values`` has the result of each method, by its name; one that is missing is not supported.

    ``minor`` is ``index`` unless a test says otherwise. ``energy`` grows by ``joules`` at every look. ``lost`` makes
    every call fail as for a device that fell off the bus.
    """

    index: int = 0
    uuid: str = "GPU-00000000-0000-0000-0000-000000000000"
    name: str = "Fake H200"
    values: dict[str, Any] = field(default_factory=lambda: dict(_DEFAULTS))
    joules: int = 500
    lost: bool = False
    profiled: bool = False
    minor: int | None = None

    def __post_init__(self) -> None:
        """Number the device's file as the device."""
        self.minor = self.index if self.minor is None else self.minor

    def result(self, what: str) -> Any:  # noqa: ANN401 - each method has its own type
        if self.lost:
            raise DeviceLostError("GPU is lost")
        if what not in self.values:
            raise NotSupportedError(what)
        return self.values[what]

    utilization = _method("utilization")
    memory = _method("memory")
    power = _method("power")
    power_limit = _method("power_limit")
    temperature = _method("temperature")
    fan = _method("fan")
    clocks = _method("clocks")
    highest_clock = _method("highest_clock")
    performance_state = _method("performance_state")
    encoder = _method("encoder")
    decoder = _method("decoder")
    ecc_errors = _method("ecc_errors")
    remapped_rows = _method("remapped_rows")
    pcie_replays = _method("pcie_replays")
    process_utilization = _method("process_utilization")

    def energy(self) -> int:
        self.values["energy"] = self.result("energy") + self.joules * 1000
        return int(self.values["energy"])

    def fields(self, requested: Sequence[Field]) -> Mapping[Field, float]:
        found = self.result("fields")
        return {name: float(found[name]) for name in requested if name in found}

    def profile(self, requested: Sequence[int]) -> Mapping[int, float]:
        found = self.result("profile")
        first, self.profiled = not self.profiled, True
        return {} if first else {name: found[name] for name in requested if name in found}

    def processes(self) -> Sequence[DeviceProcess]:
        return [DeviceProcess(*process) for process in self.result("processes")]


@dataclass
class FakeNvml:
    """See ``Nvml``."""

    found: list[FakeDevice] = field(default_factory=lambda: [FakeDevice()])

    def devices(self) -> Sequence[FakeDevice]:
        return self.found

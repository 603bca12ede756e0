"""A fake of NVML, in NVML's units: devices whose values a test sets, and that can lack, lose or hang anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobmeter.collect.nvidia.api import DeviceLostError, DeviceProcess, Field, NotSupportedError, Reading

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


@dataclass
class FakeDevice:
    """See ``NvmlDevice``. ``values`` has each reading and the result of each other method, by its name.

    What is missing there is not supported. ``minor`` is ``index`` unless a test says otherwise. ``energy`` grows by
    ``joules`` at every look. ``lost`` makes every call fail as for a device that fell off the bus.
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

    def _give(self, what: str) -> Any:  # noqa: ANN401 - each method has its own type
        if self.lost:
            raise DeviceLostError("GPU is lost")
        if what not in self.values:
            raise NotSupportedError(what)
        return self.values[what]

    def read(self, reading: Reading) -> Sequence[int]:
        """See ``NvmlDevice``."""
        found = self._give(reading)
        if reading is Reading.ENERGY:
            found = self.values[reading] = found + self.joules * 1000
        return found if isinstance(found, tuple) else (found,)

    def fields(self, requested: Sequence[Field]) -> Mapping[Field, float]:
        """See ``NvmlDevice``."""
        found = self._give("fields")
        return {name: float(found[name]) for name in requested if name in found}

    def profile(self, requested: Sequence[int]) -> Mapping[int, float]:
        """See ``NvmlDevice``."""
        found = self._give("profile")
        first, self.profiled = not self.profiled, True
        return {} if first else {name: found[name] for name in requested if name in found}

    def processes(self) -> Sequence[DeviceProcess]:
        """See ``NvmlDevice``."""
        return [DeviceProcess(*process) for process in self._give("processes")]

    def process_utilization(self) -> Mapping[int, float]:
        """See ``NvmlDevice``."""
        found: Mapping[int, float] = self._give("process_utilization")
        return found


@dataclass
class FakeNvml:
    """See ``Nvml``."""

    found: list[FakeDevice] = field(default_factory=lambda: [FakeDevice()])

    def devices(self) -> Sequence[FakeDevice]:
        """See ``Nvml.devices``."""
        return self.found

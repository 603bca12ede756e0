"""NVIDIA as a vendor of accelerators, and the measures of its GPUs."""

from collections.abc import Iterable, Mapping, Sequence

from jobmeter.collect.accelerators.device import NotSupportedError
from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.device import PynvmlDevice
from jobmeter.collect.accelerators.nvidia.readings import ALL_LINKS, Field, Reading
from jobmeter.collect.accelerators.nvidia.visible import UUID_PREFIX, VARIABLES, name_part
from jobmeter.collect.accelerators.vendor import DeviceHealth, Measure, Vendor
from jobmeter.model.device import DeviceState

_PERCENT = 0.01
_MILLI = 1e-3
_MEGA = 1e6
_NANO = 1e-9
_KIBI = 1024.0
_MEBI = 2.0**20
_MOST_FIELDS = 64

_FIELDS: Mapping[Field, tuple[str, float]] = {
    (74, 0): ("gpu.throttle.power", _NANO),
    (76, 0): ("gpu.throttle.sync", _NANO),
    (269, 0): ("gpu.throttle.thermal.software", _NANO),
    (270, 0): ("gpu.throttle.thermal.hardware", _NANO),
    (271, 0): ("gpu.throttle.power.brake", _NANO),
    (82, 0): ("gpu.temperature.memory", 1.0),
    (138, ALL_LINKS): ("gpu.nvlink.transmit", _KIBI),
    (139, ALL_LINKS): ("gpu.nvlink.receive", _KIBI),
    (197, 0): ("gpu.pcie.transmit", 1.0),
    (198, 0): ("gpu.pcie.receive", 1.0),
}
"""Numbers as in nvml.h (NVML_FI_DEV_*): clock event reasons in nanoseconds, NVLink data in KiB."""

_THERMAL: Field = (75, 0)
"""Nanoseconds of all thermal limits, for old drivers, which do not distinguish software from hardware."""

_LINK_TRAFFIC: Mapping[int, str] = {202: "gpu.nvlink.transmit", 204: "gpu.nvlink.receive"}
"""Bytes of each link of NVLink 5, for devices without a sum over links."""
_LINK_ERRORS: Mapping[str, tuple[Sequence[int], Sequence[int]]] = {
    "gpu.nvlink.errors": ((206, 207, 208, 209, 211, 212), (38, 45)),
    "gpu.nvlink.replays": ((), (52,)),
    "gpu.nvlink.recoveries": ((215,), (59,)),
}
"""Errors of NVLink: fields of each link (NVLink 5), and fields with the sum over all links of the device."""
_THERMAL_METRICS = {"gpu.throttle.thermal.software", "gpu.throttle.thermal.hardware"}
_SMOOTHING_LIFETIME = "gpu.power.smoothing.lifetime"
_HEALTH: Mapping[str, Sequence[int]] = {
    "gpu.recovery.action": (230,),
    "gpu.pcie.errors.corrected": (173,),
    "gpu.pcie.errors.uncorrected": (179, 180),
    "gpu.c2c.errors": (231, 232),
    "gpu.remapped.banks": (303, 304),
    "gpu.remapped.banks.pending": (307,),
    "gpu.retired.pages.correctable": (29,),
    "gpu.retired.pages.uncorrectable": (30,),
    "gpu.retired.pages.pending": (31,),
    "gpu.power.smoothing": (251,),
    _SMOOTHING_LIFETIME: (258,),
}
"""Fields of the device whose sum is a metric. Retired pages are given by GPUs before Ampere."""

_PROFILE: Mapping[str, tuple[Sequence[int], float]] = {
    "gpu.graphics.active": ((1,), _PERCENT),
    "gpu.sm.active": ((2,), _PERCENT),
    "gpu.sm.occupancy": ((3,), _PERCENT),
    "gpu.tensor.active": ((5,), _PERCENT),
    "gpu.dram.active": ((10,), _PERCENT),
    "gpu.fp64.active": ((11,), _PERCENT),
    "gpu.fp32.active": ((12,), _PERCENT),
    "gpu.fp16.active": ((13,), _PERCENT),
    "gpu.decoder.active": (range(30, 38), _PERCENT),
    "gpu.jpeg.active": (range(40, 48), _PERCENT),
    "gpu.pcie.transmit.rate": ((20,), _MEBI),
    "gpu.pcie.receive.rate": ((21,), _MEBI),
    "gpu.nvlink.receive.rate": ((60,), _MEBI),
    "gpu.nvlink.transmit.rate": ((61,), _MEBI),
    "gpu.c2c.transmit.rate": ((100,), _MEBI),
    "gpu.c2c.receive.rate": ((101,), _MEBI),
}
"""GPM metrics whose mean is a metric, and its scale. Numbers as in nvml.h (NVML_GPM_METRIC_*): percent and MiB/s."""


def _make_measure(reading: Reading, scale: float, *metrics: str) -> Measure[PynvmlDevice]:
    def read(device: PynvmlDevice) -> Mapping[str, float]:
        # An instance that shares its memory has no total.
        return {metric: value * scale for metric, value in zip(metrics, device.read(reading), strict=False)}

    return Measure(metrics, read)


def _fields(device: PynvmlDevice) -> Mapping[str, float]:
    found = device.read_fields((*_FIELDS, _THERMAL))
    values = {name: found[field] * scale for field, (name, scale) in _FIELDS.items() if field in found}
    if _THERMAL in found and not values.keys() & _THERMAL_METRICS:
        values["gpu.throttle.thermal.software"] = found[_THERMAL] * _NANO
    if not values.keys() & set(_LINK_TRAFFIC.values()) and (links := device.list_links()):
        each = device.read_fields([(number, link) for number in _LINK_TRAFFIC for link in links])
        for (number, _), value in each.items():
            values[_LINK_TRAFFIC[number]] = values.get(_LINK_TRAFFIC[number], 0.0) + value
    return values


def _health(device: PynvmlDevice) -> Mapping[str, float]:
    """Return the sums of fields. Errors of NVLink come from the links, else from the sums of the device."""
    links = device.list_links()
    of_links = [(number, link) for each, _ in _LINK_ERRORS.values() for number in each for link in links]
    totals = [(number, 0) for _, added in _LINK_ERRORS.values() for number in added if links]
    own = [(number, 0) for numbers in _HEALTH.values() for number in numbers]
    found = device.read_fields([*own, *totals])
    for start in range(0, len(of_links), _MOST_FIELDS):
        found = {**found, **device.read_fields(of_links[start : start + _MOST_FIELDS])}
    values = {metric: _sum(found, [(number, 0) for number in numbers]) for metric, numbers in _HEALTH.items()}
    if (lifetime := values[_SMOOTHING_LIFETIME]) is not None:
        values[_SMOOTHING_LIFETIME] = lifetime * _PERCENT
    for metric, (each, added) in _LINK_ERRORS.items():
        by_link = _sum(found, [(number, link) for number in each for link in links])
        values[metric] = _sum(found, [(number, 0) for number in added]) if by_link is None else by_link
    states = device.read_link_states()
    if states:
        values |= {"gpu.nvlink.links": float(len(states)), "gpu.nvlink.links.down": float(states.count(False))}
    return {metric: value for metric, value in values.items() if value is not None}


def _sum(found: Mapping[Field, float], fields: Iterable[Field]) -> float | None:
    given = [found[field] for field in fields if field in found]
    return sum(given) if given else None


def _sram(device: PynvmlDevice) -> Mapping[str, float]:
    status = device.read_structure("c_nvmlEccSramErrorStatus_v1_t", "nvmlDeviceGetSramEccErrorStatus")
    lost = status.volatileUncParity + status.volatileUncSecDed
    return dict(zip(_SRAM, map(float, (status.volatileCor, lost, status.bThresholdExceeded)), strict=True))


def _fabric(device: PynvmlDevice) -> Mapping[str, float]:
    found = device.read_structure("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV")
    return {"gpu.fabric.state": float(found.state)} if found.state else {}


def _profile(device: PynvmlDevice) -> Mapping[str, float]:
    found = device.read_profile([number for numbers, _ in _PROFILE.values() for number in numbers])
    values = {}
    for metric, (numbers, scale) in _PROFILE.items():
        if given := [found[number] for number in numbers if number in found]:
            values[metric] = sum(given) / len(given) * scale
    return values


_LINK = tuple(f"gpu.pcie.{name}" for name in ("generation", "width", "generation.limit", "width.limit"))
_REMAPPED = tuple(f"gpu.remapped.rows.{name}" for name in ("correctable", "uncorrectable", "pending", "failed"))
_SPARE = tuple(f"gpu.remapped.spare.{name}" for name in ("all", "most", "part", "few", "none"))
_SRAM = ("gpu.ecc.sram.corrected", "gpu.ecc.sram.uncorrected", "gpu.ecc.sram.exceeded")
_HEALTH_METRICS = (*_HEALTH, *_LINK_ERRORS, "gpu.nvlink.links", "gpu.nvlink.links.down")

MEASURES = (
    _make_measure(Reading.UTILIZATION, _PERCENT, "gpu.utilization", "gpu.memory.copy.utilization"),
    _make_measure(Reading.MEMORY, 1.0, "gpu.memory.usage", "gpu.memory.limit"),
    _make_measure(Reading.POWER, _MILLI, "gpu.power"),
    _make_measure(Reading.ENERGY, _MILLI, "gpu.energy"),
    _make_measure(Reading.TEMPERATURE, 1.0, "gpu.temperature"),
    _make_measure(Reading.CLOCKS, _MEGA, "gpu.clock.sm", "gpu.clock.memory"),
    _make_measure(Reading.PERFORMANCE_STATE, 1.0, "gpu.performance.state"),
    _make_measure(Reading.ENCODER, _PERCENT, "gpu.encoder.utilization"),
    _make_measure(Reading.DECODER, _PERCENT, "gpu.decoder.utilization"),
    Measure(tuple(metric for metric, _ in _FIELDS.values()), _fields),
    Measure(tuple(_PROFILE), _profile),
)
"""Measures read at every collection."""

SLOW_MEASURES = (
    _make_measure(Reading.POWER_LIMIT, _MILLI, "gpu.power.limit"),
    _make_measure(Reading.HIGHEST_CLOCK, _MEGA, "gpu.clock.sm.limit"),
    _make_measure(Reading.FAN, _PERCENT, "gpu.fan"),
    _make_measure(Reading.ECC_ERRORS, 1.0, "gpu.ecc.corrected", "gpu.ecc.uncorrected"),
    _make_measure(Reading.REMAPPED_ROWS, 1.0, *_REMAPPED),
    _make_measure(Reading.SPARE_ROWS, 1.0, *_SPARE),
    _make_measure(Reading.PCIE_REPLAYS, 1.0, "gpu.pcie.replay"),
    _make_measure(Reading.PCIE_LINK, 1.0, *_LINK),
    _make_measure(Reading.MARGIN, 1.0, "gpu.temperature.margin"),
    Measure(_HEALTH_METRICS, _health),
    Measure(_SRAM, _sram),
    Measure(("gpu.fabric.state",), _fabric),
)
"""Measures read once a minute: limits, counters of errors, links, and what the device needs to recover."""


HOT = 90
"""Degrees Celsius from which the temperature of a GPU is a warning."""


def _check(device: PynvmlDevice) -> DeviceHealth:
    """Read memory errors, pending or failed remappings of rows, and the temperature."""
    values: dict[str, float] = {}
    errors, warnings = [], []
    if (ecc := _read_or_none(device, Reading.ECC_ERRORS)) is not None:
        values["ecc_uncorrected"] = float(ecc[1])
        errors += [f"{ecc[1]:.0f} memory errors were not corrected"] if ecc[1] else []
    if (rows := _read_or_none(device, Reading.REMAPPED_ROWS)) is not None:
        errors += ["remapping a memory row failed"] if rows[3] else []
        warnings += ["a remapping waits for a reset"] if rows[2] else []
    if (heat := _read_or_none(device, Reading.TEMPERATURE)) is not None:
        values["temperature"] = float(heat[0])
        warnings += [f"its temperature is {heat[0]:.0f} °C"] if heat[0] >= HOT else []
    return DeviceHealth(values, errors, warnings)


def _read_or_none(device: PynvmlDevice, reading: Reading) -> Sequence[float] | None:
    try:
        return device.read(reading)
    except NotSupportedError:
        return None


def _uuid_of_id(text: str) -> str:
    """Return the UUID of the GPU in an id of the device plug-in.

    ``UUID::N`` is one of several that share the GPU in turns, ``UUID/N`` a part of it. ``MIG-GPU-UUID/N/M`` is an
    instance, which stands for the GPU while the instance is unknown.
    https://github.com/NVIDIA/k8s-device-plugin#with-cuda-time-slicing.
    """
    name = text.partition("::")[0].partition("/")[0].removeprefix("MIG-GPU")
    return f"GPU{name}" if name.startswith("-") else name


VENDOR = Vendor(
    name="nvidia",
    title="NVIDIA",
    noun="GPU",
    source="NVML",
    prefix="gpu",
    open=lambda clock, machine, patience: PynvmlLibrary(clock=clock, proc_root=machine.proc, patience=patience),
    measures=MEASURES,
    slow_measures=SLOW_MEASURES,
    check=_check,
    # https://docs.kernel.org/admin-guide/devices.html; 254 and 255 are ``nvidia-modeset`` and ``nvidiactl``.
    device_numbers={195: range(254)},
    device_files="/dev/nvidia",
    driver_folder="driver/nvidia",
    pci_driver="nvidia",
    unit_devices=("char-nvidia", "char-nvidia-frontend", "char-nvidia-caps"),
    domain="nvidia.com",
    resource_kinds=("mig-.+",),
    uuid_of_id=_uuid_of_id,
    id_of_part=name_part,
    variables=VARIABLES,
    uuid_prefix=UUID_PREFIX,
    advice={
        DeviceState.NO_PERMISSION: ("let the agent open /dev/nvidia*: outside of the job's control group, or as root"),
        DeviceState.LIBRARY_MISSING: ("in a container: NVIDIA_DRIVER_CAPABILITIES=utility; else install the library"),
        DeviceState.LIBRARY_MISMATCH: (
            "the driver was replaced: reboot, or give the agent's container the new library"
        ),
        DeviceState.DRIVER_NOT_LOADED: "load the driver: `modprobe nvidia`",
        DeviceState.RESET_REQUIRED: "drain the node, send the agent SIGUSR2, and `nvidia-smi --gpu-reset -i N`",
    },
    help="see `nvidia-smi -L` and the kernel's log for XIDs",
    recovery="See the kernel's log for XIDs, and reset or replace it.",
)

"""Huawei's Ascend as a vendor of accelerators."""

import re
from collections.abc import Sequence
from types import MappingProxyType

from jobmeter.collect.accelerators.ascend.device import UUID_PREFIX, AscendDevice
from jobmeter.collect.accelerators.ascend.driver import AscendDriver
from jobmeter.collect.accelerators.ascend.measures import MEASURES, SLOW_MEASURES, health_of
from jobmeter.collect.accelerators.vendor import Driver, Vendor
from jobmeter.collect.accelerators.visible import Numbered, VisibleVariable, ordered_devices
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState
from jobmeter.model.time import Clock

_ENTRY = re.compile(r"(?:Ascend[0-9A-Za-z]*-)?(?P<first>\d{1,4})(?:-(?P<last>\d{1,4}))?", re.ASCII)
"""``3``, ``0-3`` and ``Ascend910-3``."""
_ID = re.compile(r"Ascend[0-9A-Za-z]*-(?P<number>\d{1,4})", re.ASCII)
_MOST = 1_024


def _open(clock: Clock, machine: Machine, patience: float) -> Driver[AscendDevice]:
    return AscendDriver(clock, machine, patience)


def visible_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices in a value of ASCEND_VISIBLE_DEVICES: physical numbers, ranges, or names of the plug-in."""
    numbers = sorted(device.index for device in devices)
    found: list[int] = []
    for entry in text.split(",")[:_MOST]:
        match = _ENTRY.fullmatch(entry.strip())
        if match:
            first, last = int(match["first"]), int(match["last"] or match["first"])
            found += [number for number in numbers if first <= number <= last]
    return list(dict.fromkeys(found))


def _runtime_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    return ordered_devices(text, devices, UUID_PREFIX)


def _number_of_id(_resource: str, text: str, _devices: Sequence[Numbered]) -> int | None:
    """Return the physical number in an id of the device plug-in: ``Ascend910-3``."""
    match = _ID.fullmatch(text)
    return int(match["number"]) if match else None


VENDOR = Vendor(
    name="ascend",
    title="Ascend",
    noun="NPU",
    source="DCMI",
    prefix="npu",
    open=_open,
    measures=MEASURES,
    slow_measures=SLOW_MEASURES,
    check=health_of,
    device_numbers=MappingProxyType({}),  # the kernel chooses the major number
    device_files="/dev/davinci",
    driver_folder="driver/davinci",
    unit_devices=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    domain="huawei.com",
    resource_kinds=("Ascend.+",),
    number_of_id=_number_of_id,
    variables=(
        VisibleVariable("ASCEND_RT_VISIBLE_DEVICES", _runtime_devices, relative=True, within="ASCEND_VISIBLE_DEVICES"),
        VisibleVariable("ASCEND_VISIBLE_DEVICES", visible_devices),
    ),
    uuid_prefix=UUID_PREFIX,
    advice=MappingProxyType(
        {
            DeviceState.NO_PERMISSION: "run the agent as root, or as a user of the group HwHiAiUser",
            DeviceState.LIBRARY_MISSING: "mount /usr/local/dcmi and /usr/local/Ascend/driver into its container",
        }
    ),
    help="see `npu-smi info` and the kernel's log",
    recovery="See `npu-smi info -t health` and the kernel's log, and reset or replace it.",
)

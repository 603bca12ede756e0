"""Huawei's Ascend as a vendor of accelerators: its driver and the measures of its NPUs."""

import re
from collections.abc import Sequence
from functools import partial

from jobmeter.collect.accelerators.ascend.device import UUID_PREFIX
from jobmeter.collect.accelerators.ascend.driver import AscendDriver
from jobmeter.collect.accelerators.ascend.measures import MEASURES, SLOW_MEASURES, read_health
from jobmeter.collect.accelerators.vendor import Vendor
from jobmeter.collect.accelerators.visible import Numbered, VisibleVariable, parse_numbers, parse_ordered_devices
from jobmeter.model.device import DeviceState

_NAME = "Ascend[0-9A-Za-z]*-"
_ID = re.compile(rf"{_NAME}(?P<number>\d{{1,4}})", re.ASCII)


def parse_visible_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices in a value of ASCEND_VISIBLE_DEVICES: ``3``, ``0-3``, or the plug-in's ``Ascend910-3``."""
    return parse_numbers(text, (device.index for device in devices), f"(?:{_NAME})?")


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
    open=AscendDriver,
    measures=MEASURES,
    slow_measures=SLOW_MEASURES,
    check=read_health,
    device_numbers={},  # the kernel chooses the major number
    device_files="/dev/davinci",
    driver_folder="driver/davinci",
    unit_devices=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
    domain="huawei.com",
    resource_kinds=("Ascend.+",),
    number_of_id=_number_of_id,
    variables=(
        VisibleVariable(
            "ASCEND_RT_VISIBLE_DEVICES",
            partial(parse_ordered_devices, uuid_prefix=UUID_PREFIX),
            relative=True,
            within="ASCEND_VISIBLE_DEVICES",
        ),
        VisibleVariable("ASCEND_VISIBLE_DEVICES", parse_visible_devices),
    ),
    uuid_prefix=UUID_PREFIX,
    advice={
        DeviceState.NO_PERMISSION: "run the agent as root, or as a user of the group HwHiAiUser",
        DeviceState.LIBRARY_MISSING: "mount /usr/local/dcmi and /usr/local/Ascend/driver into its container",
    },
    help="see `npu-smi info` and the kernel's log",
    recovery="See `npu-smi info -t health` and the kernel's log, and reset or replace it.",
)

"""Checks of accelerators."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from jobmeter.collect.accelerators import registry
from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.accelerators.vendor import Driver, DriverProblem, Vendor
from jobmeter.collect.doctor.base import Check, SourceStatus
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState
from jobmeter.model.time import SystemClock

_AREA = "devices"
_PATIENCE = 8.0
"""Time limit in seconds for a driver and its devices.

Without persistence mode NVIDIA's driver starts each GPU first.
"""
_MOST = 4
"""Most devices that are named with their states."""


def list_device_checks(machine: Machine) -> dict[tuple[str, str], Callable[[], Iterable[Check]]]:
    """Return a check of each vendor by area and name."""
    return {(_AREA, vendor.name): partial(_check_vendor, machine, vendor) for vendor in registry.list_vendors()}


def _check_vendor(machine: Machine, vendor: Vendor[Any]) -> list[Check]:
    driver: Driver[Accelerator] = vendor.open(SystemClock(), machine, _PATIENCE)
    check = check_found(machine, vendor, driver.list_devices(), driver.problem)
    driver.close()
    return [check]


def check_found(
    machine: Machine, vendor: Vendor[Any], found: Sequence[Accelerator], problem: DriverProblem | None
) -> Check:
    """Check the devices that a driver shows, and the reason why it cannot be used."""
    noun = vendor.noun
    if not found and not vendor.is_present(machine):
        return Check(_AREA, vendor.name, SourceStatus.ABSENT, f"the machine has no {vendor.title} {noun}")
    if problem is not None:
        text = f"no {noun} is measured: {problem.text} ({problem.state})"
        return Check(_AREA, vendor.name, SourceStatus.PROBLEM, text, vendor.advice.get(problem.state, vendor.help))
    if not found:
        return Check(_AREA, vendor.name, SourceStatus.ABSENT, f"the driver shows no {vendor.title} {noun}")
    device_name = DeviceNames(registry.list_vendors(), machine).get_vendor_names(vendor)
    device_name.assign_places(found)
    states = [(device, DeviceState.HANGS if device.busy else device.state) for device in found]
    missing = [(device, state) for device, state in states if state is not DeviceState.MEASURED]
    products = ", ".join(sorted({device.name for device in found if device.name}))
    if missing:
        each = "; ".join(
            f"{device_name(device.index)}: {state}" + (f" ({device.reason})" if device.reason else "")
            for device, state in missing[:_MOST]
        )
        more = f"; and {len(missing) - _MOST} more" if len(missing) > _MOST else ""
        text = f"{len(found) - len(missing)} of {len(found)} {noun}s are measured ({products}); {each}{more}"
        return Check(_AREA, vendor.name, SourceStatus.PROBLEM, text, vendor.advice.get(missing[0][1], vendor.help))
    whole = sum(device.part is None for device in found)
    if len(files := vendor.list_files(machine)) > whole:
        text = f"{whole} of {len(files)} {noun}s answer ({products})"
        return Check(_AREA, vendor.name, SourceStatus.PROBLEM, text, vendor.help)
    parts = f" and {len(found) - whole} partitions of them" if len(found) > whole else ""
    return Check(_AREA, vendor.name, SourceStatus.OK, f"{whole} {noun}s{parts} ({products})")

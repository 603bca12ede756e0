"""Checks of accelerators: those that are measured, and those without a collector."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from jobmeter.collect.accelerators import registry
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.accelerators.vendor import Accelerator, Driver, Problem, Vendor
from jobmeter.collect.call_thread import CallThread
from jobmeter.collect.doctor.base import Check, Status
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState
from jobmeter.model.time import SystemClock

_AREA = "devices"
_PATIENCE = 8.0
"""Time limit in seconds for a driver and its devices. Without persistence mode NVIDIA's starts each GPU first."""
_MARGIN = 4.0
"""Factor on the time limit after which a driver counts as hanging: it keeps the limit itself, at each of its steps."""
_MOST = 4
"""Most devices that are named with their states."""


def check_devices(machine: Machine, patience: float = _PATIENCE) -> Iterator[Check]:
    """Check the accelerators of each vendor, all at once, so that a driver that hangs holds up no other vendor."""
    clock = SystemClock()
    checks = []
    for vendor in registry.VENDORS:
        thread: CallThread[Check] = CallThread(f"doctor {vendor.name}")
        thread.begin(partial(_check_vendor, machine, vendor, patience))
        checks.append((vendor, thread))
    deadline = clock.monotonic() + patience * _MARGIN
    for vendor, thread in checks:
        if thread.wait(deadline - clock.monotonic()):
            yield thread.result()
        else:
            text = f"no {vendor.noun} is measured: a call to {vendor.source} does not return ({DeviceState.HANGS})"
            yield Check(_AREA, vendor.name, Status.PROBLEM, text, vendor.help)
        thread.close()
    for unmeasured in registry.unmeasured_vendors():
        count = unmeasured.count(machine)
        if count:
            text = f"the machine has {count} {unmeasured.plural}, and this version has no collector for them"
            advice = f"scrape {unmeasured.exporter} into the server's remote write"
            yield Check(_AREA, unmeasured.name, Status.ABSENT, text, advice)
        else:
            yield Check(_AREA, unmeasured.name, Status.ABSENT, f"the machine has no {unmeasured.noun}")


def _check_vendor(machine: Machine, vendor: Vendor[Any], patience: float) -> Check:
    """Open the driver of a vendor and check its devices."""
    try:
        driver: Driver[Accelerator] = vendor.open(SystemClock(), machine, patience)
        check = check_found(machine, vendor, driver.devices(), driver.problem)
        driver.close()
    except Exception as error:  # noqa: BLE001 - a driver may fail in any way and must not take others along
        return Check(_AREA, vendor.name, Status.PROBLEM, f"a check failed: {error}"[:1_000], vendor.help)
    return check


def check_found(machine: Machine, vendor: Vendor[Any], found: Sequence[Accelerator], problem: Problem | None) -> Check:
    """Check the devices that a driver shows, and the reason why it cannot be used."""
    noun = vendor.noun
    if problem is not None:
        if not found and not vendor.is_present(machine):
            return Check(_AREA, vendor.name, Status.ABSENT, f"the machine has no {vendor.title} {noun}")
        text = f"no {noun} is measured: {problem.text} ({problem.state})"
        return Check(_AREA, vendor.name, Status.PROBLEM, text, vendor.advice.get(problem.state, vendor.help))
    if not found:
        return Check(_AREA, vendor.name, Status.ABSENT, f"the driver shows no {vendor.title} {noun}")
    device_name = DeviceNames(registry.VENDORS, machine).of(vendor)
    states = [(device, DeviceState.HANGS if device.busy else device.state) for device in found]
    missing = [(device, state) for device, state in states if state is not DeviceState.MEASURED]
    products = ", ".join(sorted({device.name for device in found if device.name}))
    if missing:
        each = "; ".join(f"{device_name(device.index)}: {_why(device, state)}" for device, state in missing[:_MOST])
        more = f"; and {len(missing) - _MOST} more" if len(missing) > _MOST else ""
        text = f"{len(found) - len(missing)} of {len(found)} {noun}s are measured ({products}); {each}{more}"
        return Check(_AREA, vendor.name, Status.PROBLEM, text, vendor.advice.get(missing[0][1], vendor.help))
    if len(files := vendor.files(machine)) > len(found):
        text = f"{len(found)} of {len(files)} {noun}s answer ({products})"
        return Check(_AREA, vendor.name, Status.PROBLEM, text, vendor.help)
    return Check(_AREA, vendor.name, Status.OK, f"{len(found)} {noun}s ({products})")


def _why(device: Accelerator, state: DeviceState) -> str:
    return f"{state} ({device.reason})" if device.reason else str(state)

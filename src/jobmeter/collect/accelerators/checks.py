"""Checks of accelerators on request: their states and errors."""

from collections.abc import Sequence
from typing import Any

from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.accelerators.device import Accelerator, DeviceLostError
from jobmeter.collect.accelerators.names import DeviceName
from jobmeter.collect.accelerators.vendor import Vendor
from jobmeter.model.device import DeviceState
from jobmeter.model.task import CheckStatus, TaskCheck

_NAME = "gpus"


def check_accelerators(
    collector: AcceleratorCollector[Any], others: Sequence[AcceleratorCollector[Any]]
) -> list[TaskCheck]:
    """Check the devices of a collector. The check is unavailable if neither this nor another collector has devices."""
    vendor = collector.vendor
    if collector.released:
        text = f"the driver of {vendor.title} is released on request; check again in a minute"
        return [TaskCheck(_NAME, CheckStatus.UNAVAILABLE, text)]
    checks = [_check_device(vendor, device, collector.device_name) for device in collector.devices]
    if checks or any(other.devices for other in others):
        return checks
    return [TaskCheck(_NAME, CheckStatus.UNAVAILABLE, f"{vendor.source} shows no {vendor.noun}")]


def _check_device(vendor: Vendor[Any], device: Accelerator, device_name: DeviceName) -> TaskCheck:
    name = device_name(device.index)
    if device.state is not DeviceState.MEASURED:
        because = f" ({device.reason})" if device.reason else ""
        status = CheckStatus.WARNING if device.state.usable else CheckStatus.CRITICAL
        return TaskCheck(_NAME, status, f"{name} is not measured: {device.state}{because}")
    try:
        health = vendor.check(device)
    except DeviceLostError:
        return TaskCheck(_NAME, CheckStatus.CRITICAL, f"{name} is lost: it does not answer")
    warned = CheckStatus.WARNING if health.warnings else CheckStatus.OK
    text = "; ".join((*health.errors, *health.warnings)) or "answers, without errors"
    status = CheckStatus.CRITICAL if health.errors else warned
    return TaskCheck(_NAME, status, f"{name} ({device.name}): {text}", health.values)

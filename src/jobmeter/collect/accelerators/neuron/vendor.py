"""AWS Trainium and Inferentia as a vendor of accelerators: the driver and the measures of the devices."""

from collections.abc import Sequence

from jobmeter.collect.accelerators.neuron.device import UUID_PREFIX
from jobmeter.collect.accelerators.neuron.driver import NeuronDriver
from jobmeter.collect.accelerators.neuron.measures import MEASURES, SLOW_MEASURES, read_health
from jobmeter.collect.accelerators.vendor import Vendor
from jobmeter.collect.accelerators.visible import Numbered, VisibleVariable, parse_numbers
from jobmeter.model.device import DeviceState


def _devices_of_cores(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices of the cores in a value such as ``0-3`` or ``4,5``. Cores are numbered across the node.

    https://awsdocs-neuron.readthedocs-hosted.com/en/latest/containers/faq.html: core 51 of devices with 4 cores is in
    device 12.
    """
    by_core: dict[int, int] = {}
    for device in devices:
        cores = int(device.details.get("cores", 0))
        by_core |= {device.index * cores + core: device.index for core in range(cores)}
    return list(dict.fromkeys(by_core[core] for core in parse_numbers(text, by_core)))


def _parse_visible_cores(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices in a value of AWS_NEURON_VISIBLE_DEVICES: ``ALL`` or numbers."""
    given = [device.index for device in devices]
    return given if text.strip().upper() == "ALL" else parse_numbers(text, given)


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
    check=read_health,
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

"""NVIDIA as a vendor of accelerators."""

from collections.abc import Sequence
from types import MappingProxyType

from jobmeter.collect.accelerators.nvidia.api import NvmlDevice, Reading
from jobmeter.collect.accelerators.nvidia.binding import PynvmlLibrary
from jobmeter.collect.accelerators.nvidia.measures import MEASURES, SLOW_MEASURES
from jobmeter.collect.accelerators.nvidia.visible import UUID_PREFIX, VARIABLES, id_of_part
from jobmeter.collect.accelerators.vendor import DeviceHealth, Driver, NotSupportedError, Vendor
from jobmeter.collect.machine import Machine
from jobmeter.model.device import DeviceState
from jobmeter.model.time import Clock

HOT = 90
"""Degrees Celsius from which the temperature of a GPU is a warning."""


def _open(clock: Clock, machine: Machine, patience: float) -> Driver[NvmlDevice]:
    return PynvmlLibrary(clock=clock, proc_root=machine.proc, patience=patience)


def _check(device: NvmlDevice) -> DeviceHealth:
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


def _read_or_none(device: NvmlDevice, reading: Reading) -> Sequence[float] | None:
    try:
        return device.read(reading)
    except NotSupportedError:
        return None


def _uuid_of_id(text: str) -> str:
    """Return the UUID of the GPU in an id of the device plug-in.

    ``UUID::N`` is one of several that share the GPU in turns, ``UUID/N`` a part of it, and ``MIG-GPU-UUID/N/M`` an
    instance of it, which stands for the GPU while the instance is unknown. https://github.com/NVIDIA/k8s-device-plugin#with-cuda-time-slicing.
    """
    name = text.partition("::")[0].partition("/")[0].removeprefix("MIG-GPU")
    return f"GPU{name}" if name.startswith("-") else name


VENDOR = Vendor(
    name="nvidia",
    title="NVIDIA",
    noun="GPU",
    source="NVML",
    prefix="gpu",
    open=_open,
    measures=MEASURES,
    slow_measures=SLOW_MEASURES,
    check=_check,
    # https://docs.kernel.org/admin-guide/devices.html; 254 and 255 are ``nvidia-modeset`` and ``nvidiactl``.
    device_numbers=MappingProxyType({195: range(254)}),
    device_files="/dev/nvidia",
    driver_folder="driver/nvidia",
    pci_driver="nvidia",
    unit_devices=("char-nvidia", "char-nvidia-frontend", "char-nvidia-caps"),
    domain="nvidia.com",
    resource_kinds=("mig-.+",),
    uuid_of_id=_uuid_of_id,
    id_of_part=id_of_part,
    variables=VARIABLES,
    uuid_prefix=UUID_PREFIX,
    advice=MappingProxyType(
        {
            DeviceState.NO_PERMISSION: (
                "let the agent open /dev/nvidia*: outside of the job's control group, or as root"
            ),
            DeviceState.LIBRARY_MISSING: (
                "in a container: NVIDIA_DRIVER_CAPABILITIES=utility; else install the library"
            ),
            DeviceState.LIBRARY_MISMATCH: (
                "the driver was replaced: reboot, or give the agent's container the new library"
            ),
            DeviceState.DRIVER_NOT_LOADED: "load the driver: `modprobe nvidia`",
            DeviceState.RESET_REQUIRED: "drain the node, send the agent SIGUSR2, and `nvidia-smi --gpu-reset -i N`",
        }
    ),
    help="see `nvidia-smi -L` and the kernel's log for XIDs",
    recovery="See the kernel's log for XIDs, and reset or replace it.",
)

"""Checks of accelerators: those that are measured, and those without a collector."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from jobmeter.collect import files as file_reader
from jobmeter.collect.discover.devices import device_name
from jobmeter.collect.doctor.base import Check, Machine, Status
from jobmeter.collect.nvidia.api import Nvml, NvmlDevice
from jobmeter.collect.nvidia.binding import PynvmlLibrary
from jobmeter.model.device import DeviceState

_AREA = "devices"
_PATIENCE = 8.0
"""Time limit in seconds for the library and its devices. Without persistence mode the driver starts each GPU first."""
_MOST = 4
"""Most GPUs that are named with their states."""
_SMI = "see `nvidia-smi -L` and the kernel's log for XIDs"
_ADVICE: Mapping[DeviceState, str] = MappingProxyType(
    {
        DeviceState.NO_PERMISSION: "let the agent open /dev/nvidia*: outside of the job's control group, or as root",
        DeviceState.LIBRARY_MISSING: "in a container: NVIDIA_DRIVER_CAPABILITIES=utility; else install the library",
        DeviceState.LIBRARY_MISMATCH: "the driver was replaced: reboot, or give the agent's container the new library",
        DeviceState.DRIVER_NOT_LOADED: "load the driver: `modprobe nvidia`",
        DeviceState.RESET_REQUIRED: "drain the node, stop the agent, and `nvidia-smi --gpu-reset -i N`",
    }
)


def check_devices(machine: Machine, nvml: Nvml | None = None) -> Iterator[Check]:
    """Check accelerators of NVIDIA, AMD and Huawei. ``nvml`` lists the devices that NVML shows."""
    library = nvml or PynvmlLibrary(proc_root=machine.proc, patience=_PATIENCE)
    yield _check_nvidia(machine, library)
    library.close()
    yield _check_amd(machine)
    npus = [path for path in sorted(Path(machine.dev).glob("davinci[0-9]*")) if path.name[7:].isdigit()]
    if npus:
        text = f"the machine has {len(npus)} NPUs, and this version has no collector for them"
        advice = "scrape the vendor's npu-exporter into the server's remote write"
        yield Check(_AREA, "ascend", Status.ABSENT, text, advice)
    else:
        yield Check(_AREA, "ascend", Status.ABSENT, "the machine has no Ascend NPU")


def _check_nvidia(machine: Machine, nvml: Nvml) -> Check:
    found = nvml.devices()
    problem = nvml.problem
    files = [path for path in Path(machine.dev).glob("nvidia[0-9]*") if path.name[6:].isdigit()]
    if problem is not None:
        if not found and not files and not Path(machine.proc, "driver/nvidia").is_dir():
            return Check(_AREA, "nvidia", Status.ABSENT, "the machine has no NVIDIA GPU")
        text = f"no GPU is measured: {problem.text} ({problem.state})"
        return Check(_AREA, "nvidia", Status.PROBLEM, text, _ADVICE.get(problem.state, _SMI))
    if not found:
        return Check(_AREA, "nvidia", Status.ABSENT, "the driver shows no NVIDIA GPU")
    states = [(device, DeviceState.HANGS if device.busy else device.state) for device in found]
    missing = [(device, state) for device, state in states if state is not DeviceState.MEASURED]
    names = ", ".join(sorted({device.name for device in found if device.name}))
    if missing:
        each = "; ".join(f"{device_name(device.index)}: {_why(device, state)}" for device, state in missing[:_MOST])
        more = f"; and {len(missing) - _MOST} more" if len(missing) > _MOST else ""
        text = f"{len(found) - len(missing)} of {len(found)} GPUs are measured ({names}); {each}{more}"
        return Check(_AREA, "nvidia", Status.PROBLEM, text, _ADVICE.get(missing[0][1], _SMI))
    if len(files) > len(found):
        text = f"{len(found)} of {len(files)} GPUs answer ({names})"
        return Check(_AREA, "nvidia", Status.PROBLEM, text, _SMI)
    return Check(_AREA, "nvidia", Status.OK, f"{len(found)} GPUs ({names})")


def _why(device: NvmlDevice, state: DeviceState) -> str:
    return f"{state} ({device.reason})" if device.reason else str(state)


def _check_amd(machine: Machine) -> Check:
    cards = [
        card
        for card in sorted(Path(machine.sys, "class/drm").glob("card[0-9]*"))
        if file_reader.read_text(str(card / "device/vendor")) == "0x1002"
    ]
    if cards:
        text = f"the machine has {len(cards)} AMD GPUs, and this version has no collector for them"
        advice = "scrape AMD's device-metrics-exporter into the server's remote write"
        return Check(_AREA, "amd", Status.ABSENT, text, advice)
    return Check(_AREA, "amd", Status.ABSENT, "the machine has no AMD GPU")

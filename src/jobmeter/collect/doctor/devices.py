"""Checks of accelerators: those that are measured, and those without a collector."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jobmeter.collect import files
from jobmeter.collect.discover.devices import Device
from jobmeter.collect.doctor.base import Check, Machine, Status
from jobmeter.collect.nvidia.binding import LIBRARY, PynvmlLibrary, has_library

_AREA = "devices"


def check_devices(
    machine: Machine,
    devices: Callable[[], Sequence[Device]] | None = None,
    has_library: Callable[[], bool] = has_library,
) -> Iterator[Check]:
    """NVIDIA's, AMD's and Huawei's. ``devices`` gives those that NVML shows."""
    yield _check_nvidia(machine, devices or PynvmlLibrary().devices, has_library)
    yield _check_amd(machine)
    npus = [path for path in sorted(Path(machine.dev).glob("davinci[0-9]*")) if path.name[7:].isdigit()]
    if npus:
        text = f"the machine has {len(npus)} NPUs, and this version has no collector for them"
        advice = "scrape the vendor's npu-exporter into the server's remote write"
        yield Check(_AREA, "ascend", Status.ABSENT, text, advice)
    else:
        yield Check(_AREA, "ascend", Status.ABSENT, "the machine has no Ascend NPU")


def _check_nvidia(machine: Machine, devices: Callable[[], Sequence[Device]], has_library: Callable[[], bool]) -> Check:
    found = devices()
    nodes = sorted(path.name for path in Path(machine.dev).glob("nvidia[0-9]*"))
    driver = Path(machine.proc, "driver/nvidia").is_dir()
    if found:
        names = ", ".join(sorted({device.name for device in found}))
        if len(nodes) > len(found):
            text = f"{len(found)} of {len(nodes)} GPUs answer ({names})"
            return Check(_AREA, "nvidia", Status.PROBLEM, text, "see `nvidia-smi -L` and the kernel's log for XIDs")
        return Check(_AREA, "nvidia", Status.OK, f"{len(found)} GPUs ({names})")
    if not nodes and not driver:
        return Check(_AREA, "nvidia", Status.ABSENT, "the machine has no NVIDIA GPU")
    if not has_library():
        text = f"the driver is loaded, and {LIBRARY} cannot be found"
        advice = "in a container: NVIDIA_DRIVER_CAPABILITIES=utility; else install the driver's library"
        return Check(_AREA, "nvidia", Status.PROBLEM, text, advice)
    text = f"{LIBRARY} cannot be opened though there is a driver"
    return Check(_AREA, "nvidia", Status.PROBLEM, text, "run `nvidia-smi`: it says why (a driver that was replaced)")


def _check_amd(machine: Machine) -> Check:
    cards = [
        card
        for card in sorted(Path(machine.sys, "class/drm").glob("card[0-9]*"))
        if files.read_text(str(card / "device/vendor")) == "0x1002"
    ]
    if cards:
        text = f"the machine has {len(cards)} AMD GPUs, and this version has no collector for them"
        advice = "scrape AMD's device-metrics-exporter into the server's remote write"
        return Check(_AREA, "amd", Status.ABSENT, text, advice)
    return Check(_AREA, "amd", Status.ABSENT, "the machine has no AMD GPU")

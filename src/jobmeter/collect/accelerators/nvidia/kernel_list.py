"""GPUs of the kernel's driver, also those that NVML cannot open: /proc/driver/nvidia/gpus."""

from pathlib import Path
from typing import NamedTuple

from jobmeter.collect import files
from jobmeter.model.device import normalize_pci_address


class KernelDevice(NamedTuple):
    """GPU of the kernel's driver. An unknown ``uuid`` is empty, an unknown ``minor`` absent."""

    uuid: str
    minor: int | None
    name: str
    pci: str


def list_kernel_devices(proc_root: str = "/proc") -> list[KernelDevice]:
    """Return the GPUs by PCI address, which is NVML's order; empty if the driver is not loaded."""
    paths = sorted(Path(proc_root).glob("driver/nvidia/gpus/*/information"))
    texts = ((path.parent.name, files.read(str(path))) for path in paths)
    return [_device(address, text.decode(errors="replace")) for address, text in texts if text is not None]


def _device(address: str, text: str) -> KernelDevice:
    """Parse lines such as ``GPU UUID:  GPU-5a3b...`` and ``Device Minor:  0``."""
    lines = (line.partition(":") for line in text.splitlines())
    found = {name.strip(): value.strip() for name, _, value in lines}
    uuid, minor = found.get("GPU UUID", ""), found.get("Device Minor", "")
    return KernelDevice(
        uuid="" if "?" in uuid else uuid,  # of a GPU that was not initialised yet
        minor=int(minor) if minor.isascii() and minor.isdigit() else None,
        name=found.get("Model", ""),
        pci=normalize_pci_address(address),
    )

"""State of a device, and its PCI address in one form."""

import re
from enum import StrEnum

_PCI = re.compile(
    r"(?:(?P<domain>[0-9A-Fa-f]{4,8}):)?(?P<bus>[0-9A-Fa-f]{2}):(?P<slot>[0-9A-Fa-f]{2})(?:\.[0-7])?", re.ASCII
)
"""``0000:9b:00.0`` of Linux, ``0000:9b:00`` and ``00000000:9B:00.0`` of NVIDIA, ``9b:00.0`` of lspci."""
_IN_LINE = re.compile(r"\b[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?\b", re.ASCII)
_LONGEST = 4_000


class DeviceState(StrEnum):
    """State of a device: measured, or the reason why not.

    Its ``code`` is the value of the metric ``gpu.state``. Codes are public and follow the order here: append new states
    at the end.
    """

    MEASURED = "measured"
    NO_PERMISSION = "no permission"
    """The agent may not open it: a control group, a container with some of the devices, or the rights of its file."""
    LIBRARY_MISSING = "library missing"
    """The kernel has the driver, but its library is missing."""
    LIBRARY_MISMATCH = "library mismatch"
    """The version of the library differs from the kernel's driver: one of them was replaced."""
    DRIVER_NOT_LOADED = "driver not loaded"
    HANGS = "hangs"
    """A call to it does not return."""
    RESET_REQUIRED = "reset required"
    LOST = "lost"
    """It fell off the bus, or the driver cannot reach it."""

    @property
    def code(self) -> int:
        """Number of the state: 0 measured, 7 lost."""
        return _CODES[self]

    @property
    def usable(self) -> bool:
        """False if no job can compute on the device. True if only the agent cannot reach it."""
        return self not in {self.DRIVER_NOT_LOADED, self.HANGS, self.RESET_REQUIRED, self.LOST}


STATES = tuple(DeviceState)
"""States in the order of their codes."""
_CODES = {state: code for code, state in enumerate(STATES)}


def normalize_pci_address(text: str) -> str:
    """Return the address of a device on the bus in one form: ``0000:9b:00``; empty for any other text.

    The result has no PCI function number: GPU drivers omit it, and all functions of a GPU are one device.
    """
    found = _PCI.fullmatch(text.strip())
    return (found and f"{int(found['domain'] or '0', 16):04x}:{found['bus']}:{found['slot']}".lower()) or ""


def find_addresses(line: str) -> list[str]:
    """Return the PCI addresses in the first 4,000 characters of a kernel's line; see ``normalize_pci_address``.

    ``NVRM: Xid (PCI:0000:9b:00): 79``, ``amdgpu 0000:c1:00.0: ...`` and ``mlx5_core 0000:3b:00.0: ...`` have one each.
    """
    found = (normalize_pci_address(text) for text in _IN_LINE.findall(line[:_LONGEST]))
    return list(dict.fromkeys(filter(None, found)))

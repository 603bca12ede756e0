"""Parse the variables that select GPUs of a process: as CUDA reads them, and as a plain list.

For CUDA_VISIBLE_DEVICES see https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars.
"""

import re
from collections.abc import Sequence
from typing import Protocol

_ORDINAL = re.compile(r"\s*([+-]?[0-9]+)", re.ASCII)
_UUID = "GPU-"


class Numbered(Protocol):
    """Device with its number on the node and its UUID, empty if unknown."""

    @property
    def index(self) -> int:
        """Number on the node."""
        ...

    @property
    def uuid(self) -> str:
        """Globally unique name."""
        ...


def is_ordinal(entry: str) -> bool:
    """True for an entry that CUDA reads as a number, ``1`` or ``1gpu``."""
    return _ORDINAL.match(entry) is not None


def cuda_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the numbers of the devices that CUDA makes visible for a value of CUDA_VISIBLE_DEVICES, in its order.

    ``devices`` are those that the process may open, in CUDA's order. The first entry decides whether the list has
    ordinals or UUIDs. The list ends at its first invalid entry: below 0, out of range, unknown, of the other kind, or
    an ambiguous abbreviation of UUIDs. A device that is named twice leaves none visible. An ordinal is read as by
    ``strtol``: ``1gpu`` is 1. MIG instances are skipped: they are not whole devices, and CUDA shows only one of them.
    """
    by_uuid = text.strip().startswith(_UUID)
    found: list[int] = []
    for entry in text.split(","):
        device = _of_uuid(entry.strip(), devices) if by_uuid else _of_ordinal(entry, devices)
        if device is None:
            break
        if device in found:
            return []
        found.append(device)
    return found


def listed_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the distinct numbers of the devices in a list of numbers and UUIDs, in its order.

    The form of Slurm's variables and of NVIDIA_VISIBLE_DEVICES. Other words, ``all`` say, name no device.
    """
    numbers = {device.index for device in devices}
    found: list[int | None] = []
    for name in (entry.strip() for entry in text.split(",")):
        if name.isascii() and name.isdigit():
            found.append(int(name) if int(name) in numbers else None)
        else:
            found.append(_of_uuid(name, devices))
    return list(dict.fromkeys(index for index in found if index is not None))


def _of_ordinal(entry: str, devices: Sequence[Numbered]) -> int | None:
    match = _ORDINAL.match(entry)
    ordinal = int(match[1]) if match else -1
    return devices[ordinal].index if 0 <= ordinal < len(devices) else None


def _of_uuid(name: str, devices: Sequence[Numbered]) -> int | None:
    """Return the only device whose UUID begins with the text."""
    if not name.startswith(_UUID):
        return None
    found = [device.index for device in devices if device.uuid.startswith(name)]
    return found[0] if len(found) == 1 else None

"""Parse CUDA_VISIBLE_DEVICES as CUDA does.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars.
"""

from collections.abc import Sequence
from functools import partial

from jobmeter.collect.accelerators.visible import (
    Numbered,
    VisibleVariable,
    device_of_uuid,
    listed_devices,
    ordinal_of,
)

UUID_PREFIX = "GPU-"


def cuda_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the numbers of the devices that CUDA makes visible for a value of CUDA_VISIBLE_DEVICES, in its order.

    ``devices`` are those that the process may open, in CUDA's order. The first entry decides whether the list has
    ordinals or UUIDs. The list ends at its first invalid entry: below 0, out of range, unknown, of the other kind, or
    an ambiguous abbreviation of UUIDs. A device that is named twice leaves none visible. An ordinal is read as by
    ``strtol``: ``1gpu`` is 1. MIG instances are skipped: they are not whole devices, and CUDA shows only one of them.
    """
    by_uuid = text.strip().startswith(UUID_PREFIX)
    found: list[int] = []
    for entry in text.split(","):
        device = device_of_uuid(entry.strip(), devices, UUID_PREFIX) if by_uuid else _of_ordinal(entry, devices)
        if device is None:
            break
        if device in found:
            return []
        found.append(device)
    return found


def _of_ordinal(entry: str, devices: Sequence[Numbered]) -> int | None:
    ordinal = ordinal_of(entry)
    return devices[ordinal].index if ordinal is not None and 0 <= ordinal < len(devices) else None


VARIABLES = (
    VisibleVariable("NVIDIA_VISIBLE_DEVICES", partial(listed_devices, uuid_prefix=UUID_PREFIX)),
    VisibleVariable("CUDA_VISIBLE_DEVICES", cuda_devices, relative=True),
)
"""Variables with devices of a process, most specific first."""

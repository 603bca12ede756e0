"""Parse CUDA_VISIBLE_DEVICES as CUDA does.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars.
"""

from collections.abc import Sequence

from jobmeter.collect.accelerators.visible import (
    Numbered,
    Partition,
    VisibleVariable,
    find_device_by_uuid,
    parse_listed_devices,
    parse_ordinal,
)

UUID_PREFIX = "GPU-"
_MIG = "MIG-"


def parse_cuda_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the numbers of the devices that CUDA makes visible for a value of CUDA_VISIBLE_DEVICES, in its order.

    ``devices`` are those that the process may open, in CUDA's order. The first entry decides whether the list has
    ordinals or UUIDs. The list ends at its first invalid entry: below 0, out of range, unknown, of the other kind, or
    an ambiguous abbreviation of UUIDs. A list that names a device twice makes none visible. CUDA shows one MIG instance
    at most: the first of the list, or of a device with MIG.
    """
    if text.strip().startswith(_MIG):
        return find_instances(text.split(",")[:1], devices)
    whole = [device for device in devices if device.part is None]
    by_uuid = text.strip().startswith(UUID_PREFIX)
    found: list[int] = []
    for entry in text.split(","):
        device = find_device_by_uuid(entry.strip(), whole, UUID_PREFIX) if by_uuid else _find_by_ordinal(entry, whole)
        if device is None:
            break
        if device in found:
            return []
        parts = [one for one in devices if one.part is not None and one.part.parent == device]
        if parts:
            return found or [min(parts, key=lambda one: one.part.ordinal if one.part else 0).index]
        found.append(device)
    return found


def find_instances(entries: Sequence[str], devices: Sequence[Numbered]) -> list[int]:
    """Return the MIG instances of entries: ``MIG-UUID``, also abbreviated, or ``MIG-GPU-UUID/INSTANCE/PLACE``.

    Drivers before 470 have the second form.
    """
    parts = [device for device in devices if device.part is not None]
    found = []
    for entry in (one.strip() for one in entries):
        exact = [one.index for one in parts if one.part is not None and name_part(one.part) == entry]
        index = exact[0] if exact else find_device_by_uuid(entry, parts, _MIG)
        found += [] if index is None else [index]
    return found


def name_part(part: Partition) -> str:
    """Return the name of an instance in the form of drivers before 470."""
    return f"{_MIG}{part.uuid}/{part.instance}/{part.place}"


def parse_container_devices(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the numbers of the devices in a value of NVIDIA_VISIBLE_DEVICES, with MIG instances as ``0:1`` too.

    https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html.
    """
    by_place = {f"{one.part.parent}:{one.part.ordinal}": one.index for one in devices if one.part is not None}
    whole = [device for device in devices if device.part is None]
    found: list[int] = []
    for entry in (one.strip() for one in text.split(",")):
        if entry in by_place:
            found.append(by_place[entry])
        elif entry.startswith(_MIG):
            found += find_instances([entry], devices)
        else:
            for index in parse_listed_devices(entry, whole, UUID_PREFIX):
                parts = [one.index for one in devices if one.part is not None and one.part.parent == index]
                found += parts or [index]
    return list(dict.fromkeys(found))


def _find_by_ordinal(entry: str, devices: Sequence[Numbered]) -> int | None:
    ordinal = parse_ordinal(entry)
    return devices[ordinal].index if ordinal is not None and 0 <= ordinal < len(devices) else None


VARIABLES = (
    VisibleVariable("NVIDIA_VISIBLE_DEVICES", parse_container_devices),
    VisibleVariable("CUDA_VISIBLE_DEVICES", parse_cuda_devices, relative=True),
)
"""Variables with devices of a process, most specific first."""

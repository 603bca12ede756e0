"""Parse the variables that select devices of a process, in the forms that several vendors share."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

SCHEDULER_VARIABLES = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Variables in which Slurm lists GPUs of a process by their numbers on the node, most specific first."""
_MOST_ENTRIES = 1_024
_ORDINAL = re.compile(r"\s*([+-]?[0-9]+)", re.ASCII)


class Partition(NamedTuple):
    """Place of a partition: number and UUID of the whole device, instance, and place within the instance.

    ``ordinal`` is its number among the partitions of the device. ``plugin_id`` is its id in a device plug-in of
    Kubernetes, empty if the id follows from the other fields.
    """

    parent: int
    uuid: str
    instance: int
    place: int
    ordinal: int
    plugin_id: str = ""


class Numbered(Protocol):
    """Device with its number on the node; see ``Accelerator`` for the other attributes."""

    index: int
    uuid: str
    part: Partition | None
    details: Mapping[str, str | int]


class VisibleVariable(NamedTuple):
    """Variable that names devices of a process.

    ``parse`` returns the numbers of the devices in a value, in its order, among the devices that the process may open.
    ``relative``: numbers in a value count from the first device that the process may open; else they are the node's.
    ``within`` is another variable: if the process has it, only its devices count. ``shared``: another vendor reads the
    variable too, so that it counts only where these devices have the plain names.
    """

    name: str
    parse: Callable[[str, Sequence[Numbered]], list[int]]
    relative: bool = False
    within: str = ""
    shared: bool = False


def make_scheduler_variables(uuid_prefix: str) -> tuple[VisibleVariable, ...]:
    """Return the variables of schedulers for devices whose UUIDs have that prefix."""
    parse = partial(parse_listed_devices, uuid_prefix=uuid_prefix)
    return tuple(VisibleVariable(name, parse) for name in SCHEDULER_VARIABLES)


def parse_ordinal(entry: str) -> int | None:
    """Return the number that an entry begins with, as C's ``strtol`` reads it: ``1gpu`` is 1; None without a number."""
    match = _ORDINAL.match(entry)
    return int(match[1]) if match else None


def parse_listed_devices(text: str, devices: Sequence[Numbered], uuid_prefix: str) -> list[int]:
    """Return the distinct devices in a list of numbers and UUIDs, the form of Slurm's variables, in its order.

    Other words, ``all`` for example, name no device.
    """
    numbers = {device.index for device in devices}
    found: list[int | None] = []
    for name in (entry.strip() for entry in text.split(",")):
        if name.isascii() and name.isdigit():
            found.append(int(name) if int(name) in numbers else None)
        else:
            found.append(find_device_by_uuid(name, devices, uuid_prefix))
    return list(dict.fromkeys(index for index in found if index is not None))


def parse_ordered_devices(text: str, devices: Sequence[Numbered], uuid_prefix: str) -> list[int]:
    """Return the distinct devices in a list of places among ``devices`` and of UUIDs, in its order.

    The list ends at its first invalid entry, as for ROCm.
    """
    found: list[int] = []
    for entry in (part.strip() for part in text.split(",")):
        if entry.isascii() and entry.isdigit():
            index = devices[int(entry)].index if len(entry) < 6 and int(entry) < len(devices) else None
        else:
            index = find_device_by_uuid(entry, devices, uuid_prefix)
        if index is None:
            break
        found.append(index)
    return list(dict.fromkeys(found))


def parse_numbers(text: str, given: Iterable[int], prefix: str = "") -> list[int]:
    """Return the distinct ``given`` numbers in a list of numbers and ranges, in the list's order: ``4,0-2``.

    Other entries are skipped. ``prefix`` is a pattern for the start of an entry.
    """
    numbers = sorted(given)
    found: list[int] = []
    for entry in text.split(",")[:_MOST_ENTRIES]:
        if match := re.fullmatch(rf"{prefix}(?P<first>\d{{1,4}})(?:-(?P<last>\d{{1,4}}))?", entry.strip(), re.ASCII):
            first, last = int(match["first"]), int(match["last"] or match["first"])
            found += [number for number in numbers if first <= number <= last]
    return list(dict.fromkeys(found))


def find_device_by_uuid(name: str, devices: Sequence[Numbered], uuid_prefix: str) -> int | None:
    """Return the only device whose UUID begins with the name; None if the name lacks the prefix of UUIDs."""
    if not name.startswith(uuid_prefix):
        return None
    found = [device.index for device in devices if device.uuid.startswith(name)]
    return found[0] if len(found) == 1 else None

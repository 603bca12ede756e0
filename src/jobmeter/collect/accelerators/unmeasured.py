"""Accelerators that a machine may have and that this version does not measure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from jobmeter.collect.machine import Machine


class UnmeasuredVendor(NamedTuple):
    """Vendor without a collector. ``count`` counts its devices in the files of a machine.

    ``noun`` and ``plural`` name its devices. ``exporter`` measures them. ``resource_kinds``: see ``Vendor``.
    """

    name: str
    noun: str
    plural: str
    exporter: str
    count: Callable[[Machine], int]
    resource_kinds: Sequence[str] = ()


def _count_ascend(machine: Machine) -> int:
    return sum(path.name.removeprefix("davinci").isdigit() for path in Path(machine.dev).glob("davinci[0-9]*"))


UNMEASURED = (
    UnmeasuredVendor("ascend", "Ascend NPU", "NPUs", "the vendor's npu-exporter", _count_ascend, ("Ascend.+",)),
)

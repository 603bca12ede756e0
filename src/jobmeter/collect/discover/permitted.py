"""Devices that a control group permits its processes to open: the hierarchy ``devices`` of version 1.

The kernel lists permitted devices only if all others are forbidden, as with Docker, podman, containerd and PBS. A group
that permits everything but some devices (Slurm's, with ConstrainDevices) is listed as ``a *:* rwm``, which says
nothing. Version 2 has a BPF program instead of a list. https://docs.kernel.org/admin-guide/cgroup-v1/devices.html.
"""

from collections.abc import Callable, Mapping, Sequence

from jobmeter.collect import files
from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.discover.member import Member

_READ_MS = 10_000
_MOST_GROUPS = 10_000


class DeviceGroups:
    """Reads the list of each group at most every 10 s. For one thread.

    ``device_numbers`` returns the numbers of the devices; see ``Vendor``.
    """

    def __init__(self, hierarchies: Hierarchies, device_numbers: Callable[[], Mapping[int, range]]) -> None:
        self._hierarchies = hierarchies
        self._device_numbers = device_numbers
        self._lists: dict[str, frozenset[int] | None] = {}
        self._read_ms: int | None = None

    def list_permitted(self, member: Member, devices: Sequence[Accelerator], now_ms: int) -> list[int] | None:
        """Return the numbers of the devices that a process may open, in order; None if its group does not tell.

        A partition is permitted with its whole device; the files that open it alone are not compared.
        """
        if not member.device_group:
            return None
        if self._read_ms is None or not 0 <= now_ms - self._read_ms < _READ_MS or len(self._lists) > _MOST_GROUPS:
            self._read_ms = now_ms
            self._lists.clear()
        if member.device_group not in self._lists:
            self._lists[member.device_group] = self._read_minors(member.device_group)
        minors = self._lists[member.device_group]
        whole = [device for device in devices if device.part is None]
        if minors is None or any(device.minor is None for device in whole):
            return None
        open_to = {device.index for device in whole if device.minor in minors}
        return [one.index for one in devices if (one.part.parent if one.part else one.index) in open_to]

    def _read_minors(self, path: str) -> frozenset[int] | None:
        folder = self._hierarchies.find_directory("devices", path)
        text = files.read(f"{folder}/devices.list") if folder else None
        return None if text is None else parse_minors(text.decode(errors="replace"), self._device_numbers())


def parse_minors(text: str, device_numbers: Mapping[int, range]) -> frozenset[int] | None:
    """Return the minor numbers of the devices that a ``devices.list`` allows; None if it allows every device."""
    by_major = {str(major): minors for major, minors in device_numbers.items()}
    found: set[int] = set()
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        number, _, access = rest.partition(" ")
        major, _, minor = number.partition(":")
        if kind not in {"a", "c"} or not {"r", "w"} <= set(access):
            continue
        if kind == "a" or major == "*":
            return None
        minors = by_major.get(major, range(0))
        found.update(minors if minor == "*" else {int(minor)}.intersection(minors) if minor.isdigit() else ())
    return frozenset(found)

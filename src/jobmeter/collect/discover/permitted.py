"""Which GPUs a control group lets its processes open: the hierarchy ``devices`` of version 1.

The kernel lists what a group may open only where all else is forbidden to it, as Docker, podman, containerd and PBS
have it. A group that may open everything but some devices (Slurm's, with ConstrainDevices) is listed as ``a *:* rwm``,
which says nothing. Version 2 has a BPF program in the place of a list, and no file that shows what it forbids.
https://docs.kernel.org/admin-guide/cgroup-v1/devices.html
"""

from collections.abc import Sequence

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import Hierarchies
from jobmeter.collect.discover.devices import Device
from jobmeter.collect.discover.member import Member

_MAJOR = "195"
"""Of NVIDIA's character devices: https://docs.kernel.org/admin-guide/devices.html"""
_GPUS = frozenset(range(254))
"""254 and 255 are the driver's own: ``nvidia-modeset`` and ``nvidiactl``."""
_READ_MS = 10_000
_MOST_GROUPS = 10_000


class DeviceGroups:
    """Reads each group at most every 10 s. For one thread."""

    def __init__(self, hierarchies: Hierarchies) -> None:
        self._hierarchies = hierarchies
        self._lists: dict[str, frozenset[int] | None] = {}
        self._read_ms: int | None = None

    def permitted(self, member: Member, devices: Sequence[Device], now_ms: int) -> list[int] | None:
        """The numbers of the devices that a process may open, in their order; None where its group does not say."""
        if not member.device_group:
            return None
        if self._read_ms is None or not 0 <= now_ms - self._read_ms < _READ_MS or len(self._lists) > _MOST_GROUPS:
            self._read_ms = now_ms
            self._lists.clear()
        if member.device_group not in self._lists:
            self._lists[member.device_group] = self._minors(member.device_group)
        minors = self._lists[member.device_group]
        if minors is None or any(device.minor is None for device in devices):
            return None
        return [device.index for device in devices if device.minor in minors]

    def _minors(self, path: str) -> frozenset[int] | None:
        folder = self._hierarchies.directory("devices", path)
        text = files.read(f"{folder}/devices.list") if folder else None
        return None if text is None else minors_of(text.decode(errors="replace"))


def minors_of(text: str) -> frozenset[int] | None:
    """The minor numbers of the GPUs that a ``devices.list`` allows; None where it allows every device there is."""
    found: set[int] = set()
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        number, _, access = rest.partition(" ")
        major, _, minor = number.partition(":")
        if kind not in {"a", "c"} or not {"r", "w"} <= set(access):
            continue
        if kind == "a" or major == "*":
            return None
        if major == _MAJOR:
            found |= _GPUS if minor == "*" else {int(minor)} & _GPUS if minor.isdigit() else set()
    return frozenset(found)

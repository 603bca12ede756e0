"""Use of devices by processes of jobs that began and ended between two collections."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from jobmeter.collect.accelerators.device import DeviceProcess, EndedUse
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.member import Member, MemberTable, Process
from jobmeter.model.time import SECOND

if TYPE_CHECKING:
    from jobmeter.collect.process.stat import Key

_COLLECTIONS = 3
"""Collections in which the use of an ended process is read: a driver may close its files later."""
_SLACK_SECONDS = 1.0
"""Largest difference between the driver's clock and this process's."""


class _DeviceState(NamedTuple):
    """Last collection of a device: its wall-clock time in seconds, and the processes of jobs on the device."""

    time: float
    pids: frozenset[int]


@dataclass(slots=True)
class _Ended:
    """Process that has ended. ``before`` is the state of each device before the end, ``done`` are finished devices."""

    process: Process
    before: Mapping[int, _DeviceState]
    left: int = _COLLECTIONS
    done: set[int] = field(default_factory=set)


class EndedProcesses:
    """Find the use of devices by processes that no collection has seen on the device. For one thread."""

    def __init__(self, members: MemberTable) -> None:
        self._members = members
        self._ended: dict[Key, _Ended] = {}
        self._devices: dict[int, _DeviceState] = {}

    def begin(self) -> None:
        """Begin a collection: take the processes that have ended since the last one."""
        present = {one.stat.key: one for one in self._members.list_ended() if not one.member.measured}
        for key, one in list(self._ended.items()):
            one.left -= 1
            if one.left <= 0 and key not in present:  # a zombie is present for as long as its parent wants
                del self._ended[key]
        for key, process in present.items():
            self._ended.setdefault(key, _Ended(process, self._devices))

    def select_pids(self, index: int) -> frozenset[int]:
        """Return the numbers of ended processes whose use of the device is not known yet."""
        return frozenset(self._due(index))

    def take_uses(self, index: int, found: Iterable[EndedUse]) -> list[tuple[Member, EndedUse]]:
        """Return each use that is to be counted, once, with the process's membership.

        A use from before the last collection belongs to an earlier process with this number.
        """
        due = self._due(index)
        counted = []
        for use in found:
            if (one := due.get(use.pid)) is not None:
                one.done.add(index)
                if use.began >= one.before[index].time - _SLACK_SECONDS:
                    counted.append((one.process.member, use))
        return counted

    def finish(
        self, wall_ms: int, users: Mapping[int, Collection[tuple[DeviceProcess, Owner]]], answered: Iterable[int]
    ) -> None:
        """End a collection, which has measured the ``users`` of the devices that have ``answered``."""
        pids = {index: frozenset(process.pid for process, _ in users.get(index, ())) for index in answered}
        for one in self._ended.values():
            one.done |= {index for index, measured in pids.items() if one.process.stat.key.pid in measured}
        self._devices = {**self._devices, **{index: _DeviceState(wall_ms / SECOND, pids[index]) for index in pids}}

    def _due(self, index: int) -> dict[int, _Ended]:
        """Return the processes to look up on a device, by number. Of several with one number the newest counts."""
        return {
            key.pid: one
            for key, one in sorted(self._ended.items(), key=lambda item: item[0].start)
            if one.left > 0 and index in one.before and index not in one.done and key.pid not in one.before[index].pids
        }


def compute_ended_shares(uses: Sequence[tuple[Member, EndedUse]], seconds: float) -> dict[Owner, float]:
    """Return the share of the last ``seconds`` in which kernels of each owner's ended processes ran."""
    found: dict[Owner, float] = {}
    for member, use in uses:
        if use.busy is not None and seconds > 0:
            share = use.busy * 0.01 * use.seconds / seconds
            found[member.owner] = min(found.get(member.owner, 0.0) + share, 1.0)
    return found

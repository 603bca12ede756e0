"""Detect disagreement about the owner of a device between its allocation, its permissions and its processes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobmeter.collect.accelerators.names import DeviceName
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.devices import DeviceClaim, DeviceSet, Permitted, return_no_devices
from jobmeter.collect.discover.member import Member
from jobmeter.model.event import ALLOCATION_MISMATCH, Level
from jobmeter.model.job import AllocationSource
from jobmeter.model.record import EventRecord, Records

HOLD = 3
"""Consecutive scans that must show a disagreement: a process may open every device when it starts."""


_GIVERS = {AllocationSource.KUBELET: "the kubelet", AllocationSource.PROLOG: "the prolog"}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Disagreement of two sources about a replica and a device; ``message`` describes it."""

    owner: Owner
    device: int
    message: str


def find_disagreements(
    devices: DeviceSet,
    users: Mapping[int, Sequence[Member]],
    given: Mapping[int, Sequence[DeviceClaim]] | None = None,
    members: Iterable[Member] = (),
    permitted: Permitted = return_no_devices,
) -> list[Disagreement]:
    """Find the current disagreements. For the arguments see ``determine_claims``.

    Devices in use come first: a process computes on a device that was allocated to another replica, or, if it is
    unallocated, that its control group forbids, or that its unambiguous environment does not name. Then idle devices:
    an environment names a device that its group forbids or that was allocated to others; or two sources allocated it to
    different jobs.
    """
    given = given or {}
    found: dict[tuple[Owner, int], str] = {}
    for index, present in users.items():
        for member in present:
            message = _explain_use(index, member, devices, given.get(index, ()), permitted(member))
            if message:
                found.setdefault((member.owner, index), f"It computes on {devices.name(index)}, {message}.")
    for member in members:
        for index, message in _explain_visible(member, devices, given, permitted(member)):
            found.setdefault((member.owner, index), message)
    for index, claims in given.items():
        for owner, message in _explain_givers(devices.name(index), claims):
            found.setdefault((owner, index), message)
    return [Disagreement(owner, index, message) for (owner, index), message in found.items()]


def _explain_use(
    index: int, member: Member, devices: DeviceSet, given: Sequence[DeviceClaim], allowed: Sequence[int] | None
) -> str:
    if given:
        return "" if _has(given, member.owner) else f"which {_givers(given)}"
    if allowed is not None:
        return "" if index in allowed else f"but its control group lets it open {_names(devices, allowed)}"
    names = _list_visible(member, devices)
    if not names or index in names:
        return ""
    return f"but {_variable(member, devices)} gives it {_names(devices, names)}"


def _explain_visible(
    member: Member, devices: DeviceSet, given: Mapping[int, Sequence[DeviceClaim]], allowed: Sequence[int] | None
) -> Iterator[tuple[int, str]]:
    for index in _list_visible(member, devices):
        what = f"{_variable(member, devices)} gives it {devices.name(index)}"
        if index in given:
            if not _has(given[index], member.owner):
                yield index, f"{what}, which {_givers(given[index])}."
        elif allowed is not None and index not in allowed:
            yield index, f"{what}, but its control group lets it open {_names(devices, allowed)}."


def _explain_givers(device: str, claims: Sequence[DeviceClaim]) -> Iterator[tuple[Owner, str]]:
    """Yield the owners that the less trusted source names and the first one does not, with messages."""
    first = [claim for claim in claims if claim.source == claims[0].source]
    jobs = {claim.owner.job for claim in first}
    for claim in claims[len(first) :]:
        if claim.owner.job not in jobs:
            giver = _GIVERS[claim.source].replace("the", "The", 1)
            yield claim.owner, f"{giver} gave it {device}, which {_givers(first)}."


def _has(given: Iterable[DeviceClaim], owner: Owner) -> bool:
    return any((claim.owner.job, claim.owner.replica) == (owner.job, owner.replica) for claim in given)


def _givers(given: Sequence[DeviceClaim]) -> str:
    names = sorted({f"{claim.owner.replica} of {claim.owner.job}" for claim in given})
    return f"{_GIVERS[given[0].source]} gave to {', '.join(names[:3])}"


def _variable(member: Member, devices: DeviceSet) -> str:
    named = devices.find_variable(member)
    return named[0].name if named else ""


def _names(devices: DeviceSet, numbers: Sequence[int]) -> str:
    return ", ".join(map(devices.name, numbers)) or "none"


def _list_visible(member: Member, devices: DeviceSet) -> list[int]:
    """Return the devices that the environment names; empty if any word is ambiguous, as relative numbers are."""
    named = devices.find_variable(member)
    if named is None:
        return []
    variable, text = named
    words = [word.strip() for word in text.split(",")]
    if variable.relative and any(word.isdigit() for word in words):
        return []
    names = devices.list_visible(member)
    return names if len(names) == len(words) else []


class DisagreementWatch:
    """Record source: an event for each disagreement that lasts. One thread updates, another may read."""

    def __init__(self, place: NodeIdentity, device_name: DeviceName) -> None:
        self._place = place
        self._device_name = device_name
        self._scans: dict[tuple[Owner, int], int] = {}
        self._events: list[EventRecord] = []

    def update(self, now_ms: int, found: Iterable[Disagreement]) -> None:
        """Update with the current disagreements."""
        before, self._scans = self._scans, {}
        for one in found:
            key = one.owner, one.device
            self._scans[key] = scans = before.get(key, 0) + 1
            if scans == HOLD:
                subject = f"device {self._device_name(one.device)}"
                event = self._place.make_event(
                    now_ms, Level.WARNING, ALLOCATION_MISMATCH, one.message, owner=one.owner, subject=subject
                )
                self._events = [*self._events, event]

    def take_records(self, now_ms: int) -> Records:  # noqa: ARG002 - events have the times of their scans
        """Return the events since the last call."""
        events, self._events = self._events, []
        return Records(events=events)

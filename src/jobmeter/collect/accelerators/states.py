"""Events about devices that stop being measured, or are measured again."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.names import DeviceName
from jobmeter.collect.accelerators.vendor import DriverProblem, Vendor
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.model.device import DeviceState
from jobmeter.model.event import (
    DEVICE_HANGS,
    DRIVER_MISMATCH,
    DRIVER_RELEASED,
    GPU_BACK,
    GPU_LOST,
    GPU_NOT_PERMITTED,
    XID,
    Level,
)
from jobmeter.model.record import EventRecord, Records
from jobmeter.model.time import MINUTE

_log = logging.getLogger(__name__)


class _Kind(NamedTuple):
    """Event of a state: its reason, level, description and advice, in which ``{noun}`` is the vendor's word."""

    reason: str
    level: Level
    text: str
    advice: str


_RECOVERY = "{recovery}"
_KINDS: Mapping[DeviceState, _Kind] = {
    DeviceState.LOST: _Kind(GPU_LOST, Level.ERROR, "cannot be read", _RECOVERY),
    DeviceState.RESET_REQUIRED: _Kind(
        GPU_LOST,
        Level.ERROR,
        "needs a reset",
        "Drain the node, release the driver (SIGUSR2 to its agent), and reset the {noun}.",
    ),
    DeviceState.DRIVER_NOT_LOADED: _Kind(GPU_LOST, Level.ERROR, "has no driver", "Load the driver."),
    DeviceState.LIBRARY_MISSING: _Kind(GPU_LOST, Level.WARNING, "cannot be measured", "Install the driver's library."),
    DeviceState.HANGS: _Kind(DEVICE_HANGS, Level.ERROR, "does not answer: a call to it does not return", _RECOVERY),
    DeviceState.NO_PERMISSION: _Kind(
        GPU_NOT_PERMITTED,
        Level.WARNING,
        "is not accessible to the agent",
        "Let the agent open the {noun}'s file, outside of control groups that forbid it.",
    ),
}
_MISMATCH = (
    "The driver's library and the kernel's driver are of different versions, so that no {noun} is measured. "
    "Load the new driver, or give the agent's container the new library; the agent tries again each minute."
)
_AT_FIRST = frozenset({DeviceState.DRIVER_NOT_LOADED, DeviceState.LIBRARY_MISSING})
"""States that are no event as the first state of a device, because it is configured that way."""


class DeviceStates:
    """Record source: an event for each change between measured and not measured, and the events of drivers.

    One thread updates, another may read. Each replica that has the device gets the event. Without a replica the event
    belongs to the node; ``alone`` suppresses events of the node.
    """

    def __init__(
        self, place: NodeIdentity, vendor: Vendor[Any], device_name: DeviceName, *, alone: bool = False
    ) -> None:
        self._place = place
        self._title, self._noun, self._recovery = vendor.title, vendor.noun, vendor.recovery
        self._device_name = device_name
        self._alone = alone
        self._states: dict[str, tuple[DeviceState, int]] = {}
        self._owners: Mapping[str, Sequence[Owner]] = {}
        self._parts: set[str] = set()
        self._mismatch = False
        self._events: deque[EventRecord] = deque()

    def update(
        self,
        now_ms: int,
        devices: Sequence[Accelerator],
        problem: DriverProblem | None,
        owners: Mapping[int, Sequence[Owner]],
    ) -> None:
        """Update with the devices and their owners."""
        mismatch = problem is not None and problem.state is DeviceState.LIBRARY_MISMATCH
        if mismatch and not self._mismatch:
            self._report(now_ms, DRIVER_MISMATCH, Level.ERROR, _MISMATCH.format(noun=self._noun), ())
        self._mismatch = mismatch
        # The driver renumbers the others when one disappears. Their names stay.
        named = {self._device_name(device.index): device for device in devices}
        for name, device in named.items():
            state = device.state
            before, since = self._states.get(name, (None, now_ms))
            if state == before:
                continue
            self._states[name] = state, now_ms
            mine = owners.get(device.index, ())
            if state is DeviceState.MEASURED:
                if before is not None:
                    text = f"{name} is measured again, after {max(now_ms - since, 0) / MINUTE:.1f} min: {before}."
                    self._report(now_ms, GPU_BACK, Level.INFO, text, mine, name)
            elif state in _KINDS and (before is not None or state not in _AT_FIRST):
                kind = _KINDS[state]
                because = f" ({device.reason})" if device.reason else ""
                advice = kind.advice.format(noun=self._noun, recovery=self._recovery)
                text = f"{name}, {device.name or f'a {self._noun}'}, {kind.text}{because}. {advice}"
                self._report(now_ms, kind.reason, kind.level, text, mine, name)
        for name in sorted(self._states.keys() - named.keys()):
            del self._states[name]
            if name in self._parts:  # partitions are removed on purpose, or lost with their device
                continue
            text = f"{name} has disappeared: the driver has {len(devices)} {self._noun}s now. {self._recovery}"
            self._report(now_ms, GPU_LOST, Level.ERROR, text, self._owners.get(name, ()), name)
        self._report_faults(now_ms, named, owners)
        self._parts = {name for name, device in named.items() if device.part is not None}
        self._owners = {name: owners.get(device.index, ()) for name, device in named.items()}

    def _report_faults(
        self, now_ms: int, named: Mapping[str, Accelerator], owners: Mapping[int, Sequence[Owner]]
    ) -> None:
        """Report the events of the drivers.

        The agent reports XIDs as events of the node, like the kernel's lines: the server knows the job of the device.
        """
        for name, device in named.items():
            mine = owners.get(device.index, ())
            for event in device.take_events():
                whose = () if event.reason == XID and not self._alone else mine
                self._report(now_ms - event.age_ms, event.reason, event.level, f"{name} {event.text}", whose, name)

    def note_release(self, now_ms: int, seconds: int, *, closed: bool) -> None:
        """Report that the driver is released on request. ``closed``: all of its files are closed."""
        if closed:
            text = f"The driver of {self._title} is released on request: its {self._noun}s can be reset or partitioned."
        else:
            text = f"The driver of {self._title} could not be released: a call to it has not returned."
        text += f" Nothing is measured of them for {seconds} s."
        self._report(now_ms, DRIVER_RELEASED, Level.INFO if closed else Level.WARNING, text, ())

    def take_records(self, now_ms: int) -> Records:  # noqa: ARG002 - events have times of their own
        """Return the events since the last call."""
        return Records(events=[self._events.popleft() for _ in range(len(self._events))])

    def _report(
        self, now_ms: int, reason: str, level: Level, text: str, owners: Sequence[Owner], device: str = ""
    ) -> None:
        _log.log(logging.INFO if level is Level.INFO else logging.WARNING, "%s: %s", reason, text)
        subject = f"device {device}" if device else ""
        for owner in owners or (() if self._alone else (None,)):
            event = self._place.make_event(now_ms, level, reason, text, owner=owner, subject=subject)
            self._events.append(event)

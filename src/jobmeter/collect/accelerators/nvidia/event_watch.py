"""NVML events: XIDs, memory errors, and changed recovery actions."""

import ctypes
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any, NamedTuple

from jobmeter.collect.accelerators.nvidia import codes
from jobmeter.collect.accelerators.nvidia.codes import convert_failure
from jobmeter.collect.accelerators.nvidia.device import PynvmlDevice, Session
from jobmeter.collect.call_thread import CallThread
from jobmeter.model.event import DEVICE_FAULT, LEVEL_OF, XID, Level
from jobmeter.model.xid import XidReport

_WAIT_MS = 1_000
"""Longest wait for an event. The release of the driver waits as long."""
_XID = 0x8
_NO_INSTANCE = 0xFFFFFFFF

_log = logging.getLogger(__name__)


class _EventKind(NamedTuple):
    """Kind of event: text, level, and the XID of the same error in the kernel's log, if there is an XID.

    An event with an XID has the XID's level.
    """

    text: str
    xid: int | None = None
    level: Level = Level.ERROR


_KINDS: Mapping[int, _EventKind] = {
    _XID: _EventKind("reported by NVML"),
    0x2: _EventKind("NVML reports a double bit ECC error", 48),
    0x400: _EventKind("NVML reports retired memory", 63),
    0x800: _EventKind("NVML reports memory that could not be retired", 64),
    0x1000: _EventKind("reports poisoned data that is not fatal", level=Level.WARNING),
    0x2000: _EventKind("reports fatal poisoned data"),
    0x4000: _EventKind("reports that it is not available"),
    0x8000: _EventKind("NVML reports a changed recovery action", 154),
}
"""Kinds by ``nvmlEventType*`` of nvml.h."""


class EventWatch:
    """Waits for the events of a session's GPUs in a thread, and adds each event to its GPU.

    The thread ends if no GPU has events.
    """

    def __init__(self) -> None:
        self._calls: CallThread[None] = CallThread("nvml events")
        self._stopping = Event()
        self._devices: Sequence[PynvmlDevice] = ()
        self._without: tuple[Session, frozenset[int]] | None = None

    def follow(self, session: Session, devices: Sequence[PynvmlDevice]) -> None:
        """Wait for the events of these GPUs from now on. Returns at once."""
        self._devices = [device for device in devices if device.attached]
        handles = {_address(device.handle) for device in self._devices}
        is_given_up = self._without is not None and self._without[0] is session and handles <= self._without[1]
        if handles and not is_given_up and not self._calls.busy:
            self._stopping.clear()
            self._calls.begin(partial(self._run, session))

    def stop(self, seconds: float = 0.0) -> bool:
        """Free the event set within ``seconds``. False while a call of the library has not returned."""
        self._stopping.set()
        return self._calls.wait(seconds)

    def close(self) -> None:
        """End the thread after its current call of the library has returned."""
        self._calls.close()

    def _run(self, session: Session) -> None:
        """Wait until ``stop``, the end of the session, or a failure.

        After a failure the next collection registers the GPUs again. A GPU without events is tried once in a session.
        """
        module = session.module
        tried: dict[int, PynvmlDevice | None] = {}
        try:
            events = module.nvmlEventSetCreate()
        except module.NVMLError as error:
            self._give_up(session, {_address(device.handle) for device in self._devices}, error)
            return
        try:
            while session.failure is None and not self._stopping.is_set():
                for device in self._devices:
                    handle = device.handle
                    # A lost GPU has no handle until it returns.
                    if handle is not None and _address(handle) not in tried:
                        tried[_address(handle)] = device if _register(module, handle, events) else None
                if not any(tried.values()):
                    self._give_up(session, tried, "no GPU has events")
                    return
                _wait(module, events, tried)
        except module.NVMLError as error:
            if convert_failure(error).code in codes.UNSUPPORTED:
                self._give_up(session, tried, error)
        finally:
            with suppress(module.NVMLError):
                module.nvmlEventSetFree(events)

    def _give_up(self, session: Session, handles: Iterable[int], reason: object) -> None:
        _log.info("NVML reports no events; XIDs come from the kernel's log alone: %s", reason)
        self._without = session, frozenset(handles)


def _wait(module: Any, events: Any, devices: Mapping[int, PynvmlDevice | None]) -> None:  # noqa: ANN401 - no types
    """Wait for the next event, and report it to its GPU. Raises NVMLError except for a timeout."""
    try:
        found = module.nvmlEventSetWait_v2(events, _WAIT_MS)
    except module.NVMLError as error:
        if convert_failure(error).code == codes.TIMEOUT:
            return
        raise
    device, kind = devices.get(_address(found.device)), _KINDS.get(int(found.eventType))
    if device is None or kind is None:
        return
    code = int(found.eventData) if found.eventType == _XID else kind.xid
    if code is None:
        device.add_event(DEVICE_FAULT, kind.level, f"{kind.text}.")
        return
    instance, place = (
        None if number == _NO_INSTANCE else int(number) for number in (found.gpuInstanceId, found.computeInstanceId)
    )
    xid = XidReport(code, device.pci, instance, place)
    text = f"had {xid}, {kind.text} - {xid.meaning.text}. {xid.meaning.advice}"
    device.add_event(XID, LEVEL_OF[xid.meaning.severity], text)


def _register(module: Any, handle: Any, events: Any) -> bool:  # noqa: ANN401
    """Register the events of a GPU in an event set. False if the GPU has no events."""
    try:
        kinds = module.nvmlDeviceGetSupportedEventTypes(handle) & sum(_KINDS)
        if kinds:
            module.nvmlDeviceRegisterEvents(handle, kinds, events)
    except module.NVMLError:
        return False
    return bool(kinds)


def _address(handle: Any) -> int:  # noqa: ANN401
    """Return the address that identifies a handle; 0 without a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0 if handle is not None else 0

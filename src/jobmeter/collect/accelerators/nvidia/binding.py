"""NVML through ``nvidia-ml-py``: the driver of NVIDIA's GPUs. Without the driver's library nothing is imported."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from jobmeter.collect.accelerators.device import SLOW_SECONDS, DeviceLostError, NotSupportedError, open_due
from jobmeter.collect.accelerators.nvidia import codes
from jobmeter.collect.accelerators.nvidia.codes import Failure, convert_failure, make_failure
from jobmeter.collect.accelerators.nvidia.device import MigInstance, PynvmlDevice, Session, decode_text
from jobmeter.collect.accelerators.nvidia.event_watch import EventWatch
from jobmeter.collect.accelerators.nvidia.instance import MigDevice
from jobmeter.collect.accelerators.nvidia.kernel_list import list_kernel_devices
from jobmeter.collect.accelerators.nvidia.loader import LIBRARY, LibraryLoader
from jobmeter.collect.backoff import Backoff
from jobmeter.collect.call_thread import CallThread
from jobmeter.model.time import Clock, SystemClock

PATIENCE = 2.0
"""Seconds that one collection waits for the library and its devices to open."""
_LISTING = 0.25
"""Part of ``PATIENCE`` that the lists of MIG instances may take in any case."""
_FIRST_FACTOR = 2
"""Factor on the wait of the first collection: without persistence mode the driver starts each GPU first."""
_MISSING = make_failure(codes.LIBRARY_NOT_FOUND, f"{LIBRARY} cannot be found")

_log = logging.getLogger(__name__)


class PynvmlLibrary:
    """NVML library.

    The library is opened again when it ends, and when no device can be read. A lost device only needs a new handle, so
    that the others continue with their GPM samples. Calls that may block run in threads: one for the library, one for
    its events, one for each device.
    """

    def __init__(self, *, proc_root: str = "/proc", clock: Clock | None = None, patience: float = PATIENCE) -> None:
        self._loader = LibraryLoader()
        self._proc = proc_root
        self._clock = clock or SystemClock()
        self.patience = patience
        self._calls: CallThread[Session | Failure | None] = CallThread("nvml")
        self._began: float | None = None
        self._listed = False
        self._session: Session | None = None
        self._devices: list[PynvmlDevice] = []
        self._instances: dict[MigInstance, MigDevice] = {}
        self._events = EventWatch()
        self._retry, self._reopen = Backoff(), Backoff()
        self.problem: Failure | None = None
        """Reason why the library cannot be used; None while it can."""

    def list_devices(self, now_ms: int | None = None) -> Sequence[PynvmlDevice]:
        """Return the GPUs, including those that cannot be opened."""
        deadline = self._clock.monotonic() + self.patience * (1 if self._listed else _FIRST_FACTOR)
        self._listed = True
        for backoff in (self._retry, self._reopen):
            backoff.tick(now_ms)
        for device in self._list_devices():
            device.begin_round(now_ms)
        if self._began is not None:
            self._finish_open(deadline)
        elif self._session is None:
            self._open(deadline)
        elif self._is_over(self._session, deadline):
            self._restart(self._session, deadline)
        if self._session is not None:
            self._attach(self._session, deadline)
            self._find_instances(self._session, deadline)
            self._events.follow(self._session, self._devices)
        return self._list_devices()

    def _list_devices(self) -> list[PynvmlDevice]:
        """Return the GPUs, then their MIG instances."""
        return [*self._devices, *sorted(self._instances.values(), key=lambda one: one.index)]

    def close(self) -> bool:
        """Close the library. A library in which a call blocks stays open."""
        for device in self._list_devices():
            device.close()
        if self._began is not None:
            self._finish_open(0.0)
        session = self._session
        is_quiet = self._events.stop(self.patience)
        if self._calls.busy or not is_quiet or (session is not None and not self._is_quiet(session)):
            return False
        self._events.close()
        if session is not None:
            self._session = None
            self._shut_down(session, self.patience)
        self._calls.close()
        if not self._calls.wait(0):  # the shutdown has not returned
            return False
        self._loader.unload()
        self._listed = False
        return True

    def _is_quiet(self, session: Session) -> bool:
        """Return True while no call of the library is running or between two steps."""
        return session.quiet and not any(device.busy for device in self._list_devices())

    def _is_over(self, session: Session, deadline: float) -> bool:
        """Return True if the library has to be opened again and none of its calls is running.

        Waits for the event thread.
        """
        # If no device answers, a restart loses nothing and may find them again.
        useless = not any(device.attached for device in self._devices) and self._reopen.due
        if session.failure is None and not useless:
            return False
        return self._events.stop(max(deadline - self._clock.monotonic(), 0.0)) and self._is_quiet(session)

    def _restart(self, session: Session, deadline: float) -> None:
        """Close the session, and open the next one when it is due."""
        if session.failure is None:
            self._reopen.note_failure()
        elif session.answered:
            self._retry.note_success()
        else:
            self._retry.note_failure()
        self._session = None
        self._shut_down(session, deadline - self._clock.monotonic())
        self._open(deadline)

    def _shut_down(self, session: Session, seconds: float) -> None:
        """End a session without running calls."""
        for device in self._list_devices():
            device.detach()
        session.end(make_failure(codes.UNINITIALIZED, "the library is closed"))
        self._calls.begin(partial(_shut_down, session.module))
        self._calls.wait(seconds)

    def _open(self, deadline: float) -> None:
        if self._calls.busy or not self._retry.due:
            return
        module = self._loader.load()
        if module is None:
            self._note_failure(_MISSING)
            return
        self._calls.begin(partial(_start, module))
        self._began = self._clock.monotonic()
        self._finish_open(deadline)

    def _finish_open(self, deadline: float) -> None:
        """Take the result of opening the library, once it is there."""
        if not self._calls.wait(deadline - self._clock.monotonic()):
            took = self._clock.monotonic() - (self._began or 0.0)
            if took >= SLOW_SECONDS:
                self._explain(make_failure(codes.TIMEOUT, f"nvmlInit has not returned for {took:.0f} s"))
            return
        self._began = None
        opened = self._calls.get_result()
        if isinstance(opened, Session):
            self._note_opened(opened)
        elif opened is not None:
            self._note_failure(opened)

    def _note_opened(self, session: Session) -> None:
        if self.problem is not None:
            _log.info("NVML is open: %d GPUs", session.count)
        self._session, self.problem = session, None
        for device in self._devices[session.count :]:
            device.close()
        del self._devices[session.count :]
        for listed, instance in list(self._instances.items()):
            if listed.part.parent >= session.count:
                self._forget(listed, instance)
        self._fill(session.count)

    def _note_failure(self, failure: Failure) -> None:
        self._retry.note_failure()
        self._explain(failure)

    def _explain(self, failure: Failure) -> None:
        """Store the reason why nothing is measured, and list the devices of the kernel's driver."""
        if self.problem is None or self.problem.code != failure.code:
            present = list_kernel_devices(self._proc) or self._devices
            _log.log(logging.WARNING if present else logging.INFO, "NVML cannot be opened: %s", failure.text)
        self.problem = failure
        self._fill(len(list_kernel_devices(self._proc)))
        for device in self._list_devices():
            device.note_failure(failure.state, failure.text)

    def _fill(self, count: int) -> None:
        """Create a device for each index. Devices that NVML has not opened get the data of the kernel's driver."""
        self._devices += [PynvmlDevice(index, self._clock) for index in range(len(self._devices), count)]
        listed = list_kernel_devices(self._proc)
        if len(listed) == len(self._devices):
            for device, entry in zip(self._devices, listed, strict=True):
                device.uuid = device.uuid or entry.uuid
                device.minor = entry.minor if device.minor is None else device.minor
                device.name = device.name or entry.name
                device.pci = device.pci or entry.pci

    def _attach(self, session: Session, deadline: float) -> None:
        """Open the devices that have no handle, all at once."""
        open_due(self._devices, lambda device: partial(device.attach, session), deadline, self._clock)
        if session.answered and any(device.attached for device in self._devices):
            self._reopen.note_success()

    def _find_instances(self, session: Session, deadline: float) -> None:
        """List the MIG instances of every GPU, all at once. Instances of a GPU that does not answer stay.

        The lists have time of their own, in case opening a GPU used up the time.
        """
        deadline = max(deadline, self._clock.monotonic() + self.patience * _LISTING)
        asked = [device for device in self._devices if device.attached and device.begin(device.list_instances)]
        for device in asked:
            try:
                found = device.finish(deadline - self._clock.monotonic())
            except (TimeoutError, NotSupportedError, DeviceLostError):
                continue
            present = {one._replace(handle=None): one for one in found}
            for listed, instance in list(self._instances.items()):
                if listed.part.parent == device.index and listed not in present:
                    self._forget(listed, instance)
            for listed, one in present.items():
                if listed not in self._instances:
                    self._instances[listed] = MigDevice(one, device, self._clock)
                instance = self._instances[listed]
                if not instance.busy:
                    same = {other.part.place for other in found if other.part.instance == one.part.instance}
                    instance.adopt(session, one, frozenset(same))

    def _forget(self, listed: MigInstance, instance: MigDevice) -> None:
        if not instance.busy:
            instance.detach()
        instance.close()
        del self._instances[listed]


def _start(module: Any) -> Session | Failure:  # noqa: ANN401 - the module has no types
    """Open the library."""
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        return convert_failure(error)
    try:
        count, version = module.nvmlDeviceGetCount(), ""
        with suppress(module.NVMLError):
            version = decode_text(module.nvmlSystemGetDriverVersion())
        return Session(module, count, version)
    except module.NVMLError as error:
        _shut_down(module)
        return convert_failure(error)


def _shut_down(module: Any) -> None:  # noqa: ANN401
    try:
        module.nvmlShutdown()
    except module.NVMLError as error:
        _log.info("NVML cannot be closed: %s", error)

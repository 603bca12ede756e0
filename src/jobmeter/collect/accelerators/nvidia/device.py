"""GPU through ``nvidia-ml-py``, and the session of its library."""

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from jobmeter.collect import files
from jobmeter.collect.accelerators.device import Accelerator, DeviceLostError, DeviceProcess, EndedUse
from jobmeter.collect.accelerators.nvidia import codes
from jobmeter.collect.accelerators.nvidia.accounting import read_ended_uses
from jobmeter.collect.accelerators.nvidia.codes import Failure, convert_failure, make_failure
from jobmeter.collect.accelerators.nvidia.readings import OF_HARDWARE, READINGS, Field, NvmlError, Reading
from jobmeter.collect.accelerators.visible import Partition
from jobmeter.model.device import normalize_pci_address
from jobmeter.model.grouping import group_pairs
from jobmeter.model.time import Clock

T = TypeVar("T")

_UNKNOWN_VALUE = 2**64 - 1
_LINK_COUNT = 91
_MOST_LINKS = 18
_SAMPLES_OF_KERNELS, _SAMPLES_OF_MEMORY = 1, 2
_MPS_SERVER = "nvidia-cuda-mps-server"[:15]
"""The kernel's form of the name, truncated to 15 letters."""
_MOST_INSTANCES = 64
_MEBI = 2**20
_FIRST_GPM_END, _GPM_END = 98, 2**16
"""Limits above the numbers of GPM metrics: of the first drivers with GPM, and of all."""
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Session:
    """Session of the library, from ``nvmlInit`` to ``nvmlShutdown``. Its handles and GPM samples end with it.

    ``driver`` is the driver's version, empty if unknown. ``failure`` is the reason of its end, None before.
    ``answered``: some device gave a value in it.
    """

    def __init__(self, module: Any, count: int, driver: str = "") -> None:  # noqa: ANN401 - the module has no types
        self.module = module
        self.count = count
        self.driver = driver
        self.failure: Failure | None = None
        self.answered = False
        self._lock = Lock()
        self._inside = 0

    @property
    def quiet(self) -> bool:
        """True while no call is running, so that it may end."""
        return not self._inside

    def enter(self) -> None:
        """Begin a call, from any thread. Raises DeviceLostError when the session has ended."""
        with self._lock:
            if self.failure is not None:
                raise DeviceLostError(self.failure.text)
            self._inside += 1

    def leave(self) -> None:
        """End a call."""
        with self._lock:
            self._inside -= 1

    def end(self, failure: Failure) -> None:
        """Allow no further calls."""
        with self._lock:
            self.failure = self.failure or failure


class MigInstance(NamedTuple):
    """MIG instance as its device lists it: ``slices`` that compute, ``memory`` of its GPU instance in bytes."""

    part: Partition
    uuid: str
    name: str
    handle: Any
    slices: int
    memory: int


class PynvmlDevice(Accelerator):
    """GPU of NVML. The object is reused over sessions; ``attach`` gives it a session's handle."""

    def __init__(self, index: int, clock: Clock) -> None:
        super().__init__(index, clock, "nvml gpu")
        self._session: Session | None = None
        self.handle: Any = None
        """Handle of the session; None without one."""
        self._sample: Any = None
        self._profiled: bool | None = None
        self._sampled_us = 0
        self._baseline = False
        self._averaged_us: dict[int, int] = {}
        self._links: Sequence[int] | None = None
        self._lacking: set[Reading] = set()
        self._gpm_end = _GPM_END
        self.partitioned = False
        """True for a device with MIG: its instances compute."""

    @property
    def attached(self) -> bool:
        """True while there is a handle to call it with."""
        return self.handle is not None and self._session is not None and self._session.failure is None

    def attach(self, session: Session) -> None:
        """Get the handle and the identity of the device; a failure is in ``state`` and ``reason``."""
        module = session.module
        try:
            handle = module.nvmlDeviceGetHandleByIndex(self.index)
            uuid = decode_text(_identity(module, module.nvmlDeviceGetUUID, handle, ""))
            self.minor = _identity(module, module.nvmlDeviceGetMinorNumber, handle, self.minor)
            self.name = decode_text(_identity(module, module.nvmlDeviceGetName, handle, self.name))
            self.pci = _address(_identity(module, module.nvmlDeviceGetPciInfo, handle, None)) or self.pci
        except module.NVMLError as error:
            failure = convert_failure(error)
            if failure.code in codes.LIBRARY_ENDED:
                session.end(failure)
            self.lose(failure.text, failure.state)
            return
        if uuid:
            self.uuid, self.details = uuid, _details(session, handle)
        self._session, self.handle = session, handle

    def detach(self) -> None:
        """Drop the handle and its data."""
        sample, self._sample = self._sample, None
        if sample is not None and self._session is not None:
            _free(self._session, sample)
        self._session = self.handle = None
        self._profiled, self._sampled_us, self._baseline = None, 0, False
        self._averaged_us, self._links, self._lacking = {}, None, set()
        self._gpm_end = _GPM_END
        self.partitioned = False

    def read(self, reading: Reading) -> Sequence[float]:
        """Return the numbers of a reading. The memory in use of a device with MIG is measured for each instance."""
        if self.partitioned and reading is Reading.MEMORY:
            raise NvmlError("its MIG instances have its memory")
        if reading is Reading.UTILIZATION:
            return self._read_utilization()
        if reading in self._lacking:
            raise NvmlError("the device does not give it")
        try:
            return [int(number) for number in READINGS[reading](self._module, self._call)]
        except NvmlError as error:
            if error.lasting and reading in OF_HARDWARE:
                self._lacking.add(reading)
            raise

    def read_fields(self, requested: Sequence[Field]) -> Mapping[Field, float]:
        """Return the values of the fields that the device has."""
        answers = self._call(self._module.nvmlDeviceGetFieldValues, list(requested))
        if answers and all(answer.nvmlReturn in codes.GONE for answer in answers):
            raise self._mark_lost(make_failure(answers[0].nvmlReturn, "the device is lost"))
        return {
            field: float(getattr(answer.value, _VALUES[answer.valueType]))
            for field, answer in zip(requested, answers, strict=True)
            if answer.nvmlReturn == codes.SUCCESS and 0 <= answer.valueType < len(_VALUES)
        }

    def list_links(self) -> Sequence[int]:
        """Return the numbers of the device's NVLinks; empty without any."""
        if self._links is None:
            found = self.read_fields([(_LINK_COUNT, 0)]).get((_LINK_COUNT, 0), 0)
            self._links = range(min(int(found), _MOST_LINKS))
        return self._links

    def read_link_states(self) -> Sequence[bool]:
        """Return the state of each NVLink, True if the link is up. A link without a state is left out."""
        found = []
        for link in self.list_links():
            with suppress(NvmlError):
                found.append(bool(self._call(self._module.nvmlDeviceGetNvLinkState, link)))
        return found

    def read_structure(self, kind: str, function: str) -> Any:  # noqa: ANN401
        """Return a structure that a function of the module fills. Raises NvmlError if the module lacks either."""
        made, call = getattr(self._module, kind, None), getattr(self._module, function, None)
        if made is None or call is None:
            raise NvmlError(f"the module has no {function}", codes.FUNCTION_NOT_FOUND)
        structure = made()
        self._call(call, ctypes.byref(structure))
        return structure

    def _read_utilization(self) -> Sequence[float]:
        """Return the mean utilization since the last call if the driver has samples, else the driver's last period."""
        rates = self._call(self._module.nvmlDeviceGetUtilizationRates)
        found = [float(rates.gpu), float(rates.memory)]
        for place, kind in enumerate((_SAMPLES_OF_KERNELS, _SAMPLES_OF_MEMORY)):
            mean = self._average_since(kind)
            found[place] = found[place] if mean is None else mean
        return found

    def _average_since(self, kind: int) -> float | None:
        last_us = self._averaged_us.get(kind, 0)
        try:
            form, samples = self._call(self._module.nvmlDeviceGetSamples, kind, last_us)
        except NvmlError:  # the driver has no samples, or none since the last call
            return None
        values = [float(getattr(one.sampleValue, _VALUES[form])) for one in samples if one.timeStamp > last_us]
        self._averaged_us[kind] = max((one.timeStamp for one in samples), default=last_us)
        return sum(values) / len(values) if values and last_us else None

    def read_profile(self, requested: Sequence[int]) -> Mapping[int, float]:
        """Return the available GPM metrics over the time since the last call."""
        if self._profiled is None:
            self._profiled = self._is_profiled()
        if not self._profiled:
            raise NvmlError("the device has no GPM")
        session = self._session
        fresh = self._call_library(self._module.nvmlGpmSampleAlloc)
        try:
            self._take(fresh)
        except BaseException:
            _free(session, fresh)
            raise
        last, self._sample = self._sample, fresh
        if last is None:
            return {}
        try:
            return self._read_profile(last, fresh, [one for one in requested if one < self._gpm_end])
        except NvmlError as error:
            if not error.lasting or self._gpm_end == _FIRST_GPM_END:
                raise
            self._gpm_end = _FIRST_GPM_END  # an old driver may refuse numbers that it does not know
            return self._read_profile(last, fresh, [one for one in requested if one < self._gpm_end])
        finally:
            _free(session, last)

    def _is_profiled(self) -> bool:
        return bool(self._call(self._module.nvmlGpmQueryDeviceSupport).isSupportedDevice)

    def _take(self, sample: Any) -> None:  # noqa: ANN401
        """Fill a GPM sample."""
        self._call(self._module.nvmlGpmSampleGet, sample)

    def list_instances(self) -> "list[MigInstance]":
        """Return the MIG instances of the device, and note whether it has MIG. Empty without MIG."""
        module = self._module
        try:
            self.partitioned = bool(self._call_library(module.nvmlDeviceGetMigMode, self.handle)[0])
        except NvmlError as error:
            if not error.lasting:
                raise
            self.partitioned = False
        if not self.partitioned:
            return []
        found = []
        for ordinal in range(
            min(self._call_library(module.nvmlDeviceGetMaxMigDeviceCount, self.handle), _MOST_INSTANCES)
        ):
            try:
                found.append(self._read_instance(ordinal))
            except NvmlError as error:
                # No instance has this number, or it is not this container's. After any other failure the instances
                # would seem to be removed.
                if not error.lasting and error.code not in {codes.NOT_FOUND, codes.NO_PERMISSION}:
                    raise
        return found

    def _read_instance(self, ordinal: int) -> "MigInstance":
        module = self._module
        handle = self._call_library(module.nvmlDeviceGetMigDeviceHandleByIndex, self.handle, ordinal)
        instance, place = (
            self._call_library(function, handle)
            for function in (module.nvmlDeviceGetGpuInstanceId, module.nvmlDeviceGetComputeInstanceId)
        )
        attributes = self._call_library(module.nvmlDeviceGetAttributes_v2, handle)
        return MigInstance(
            Partition(self.index, self.uuid, instance, place, ordinal),
            decode_text(self._call_library(module.nvmlDeviceGetUUID, handle)),
            decode_text(self._call_library(module.nvmlDeviceGetName, handle)),
            handle,
            int(attributes.computeInstanceSliceCount),
            int(attributes.memorySizeMB) * _MEBI,
        )

    def list_processes(self) -> Sequence[DeviceProcess]:
        """Return the processes that compute on it, without the server of MPS, whose clients are in a separate list.

        https://docs.nvidia.com/deploy/mps/: `nvidia-smi` shows clients as M+C.
        """
        if self.partitioned:
            raise NvmlError("its MIG instances have its processes")
        found = self._list("nvmlDeviceGetComputeRunningProcesses")
        try:
            clients = self._list("nvmlDeviceGetMPSComputeRunningProcesses")
        except NvmlError as error:
            if not error.lasting:  # without the list its clients would seem to have left
                raise
            clients = []
        shared = {client.pid for client in clients}
        by_pid = {process.pid: process for process in (*found, *clients)}
        return [
            DeviceProcess(pid, None if memory == _UNKNOWN_VALUE else memory, pid in shared)
            for pid, memory in ((pid, process.usedGpuMemory) for pid, process in by_pid.items())
            if files.read_text(f"/proc/{pid}/comm") != _MPS_SERVER
        ]

    def process_utilization(self) -> Mapping[int, float] | None:
        """Return the utilization by process, from the samples of processes that worked since the last call."""
        try:
            samples = self._call(self._module.nvmlDeviceGetProcessUtilization, self._sampled_us)
        except NvmlError as error:
            if error.code not in {codes.SUCCESS, codes.NOT_FOUND}:
                raise
            samples = []  # no process worked
        self._sampled_us = max((sample.timeStamp for sample in samples), default=self._sampled_us)
        first, self._baseline = not self._baseline, True
        if first:
            return None  # older than the last call
        by_pid = group_pairs((sample.pid, sample.smUtil) for sample in samples)
        return {pid: sum(shares) / len(shares) for pid, shares in by_pid.items() if pid}

    def list_ended_uses(self, pids: Collection[int]) -> Sequence[EndedUse]:
        """Return the use by these processes if they have ended, where the driver accounts for processes."""
        return [] if self.partitioned else read_ended_uses(self._module, self._call, pids)

    def _list(self, name: str) -> Sequence[Any]:
        """Return a list of processes; before driver 510 by the second version of the call."""
        try:
            found: Sequence[Any] = self._call(getattr(self._module, name))
        except NvmlError as error:
            if error.code != codes.FUNCTION_NOT_FOUND:
                raise
            found = self._call(getattr(self._module, f"{name}_v2"))
        return found

    @property
    def _module(self) -> Any:  # noqa: ANN401
        if self._session is None:
            raise DeviceLostError(self.reason or f"gpu{self.index} is not open")
        return self._session.module

    def _read_profile(self, last: Any, fresh: Any, requested: Sequence[int]) -> Mapping[int, float]:  # noqa: ANN401
        module = self._module
        question = module.c_nvmlGpmMetricsGet_t()
        question.version = module.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(requested)
        question.sample1, question.sample2 = last, fresh
        for position, metric in enumerate(requested):
            question.metrics[position].metricId = metric
        answer = self._call_library(module.nvmlGpmMetricsGet, question)
        found = [answer.metrics[position] for position in range(len(requested))]
        return {metric.metricId: float(metric.value) for metric in found if metric.nvmlReturn == codes.SUCCESS}

    def _mark_lost(self, failure: Failure) -> DeviceLostError:
        self.lose(failure.text, failure.state)
        return DeviceLostError(failure.text)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        answer = self._call_library(function, self.handle, *arguments)
        if self._session is not None:
            self._session.answered = True
        self.note_answer()
        return answer

    def _call_library(self, function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """Call the library, and convert its errors."""
        session = self._session
        if session is None:
            raise DeviceLostError(self.reason or f"gpu{self.index} is not open")
        session.enter()
        try:
            return function(*arguments)
        except session.module.NVMLError as error:
            failure = convert_failure(error)
            if failure.code in codes.LIBRARY_ENDED:
                session.end(failure)
                raise DeviceLostError(failure.text) from error
            if failure.code in codes.GONE:
                raise self._mark_lost(failure) from error
            raise NvmlError(failure.text, failure.code) from error
        except session.module.NVMLLibraryMismatchError as error:
            # Raised by the module if an old driver lacks the version of a call.
            raise NvmlError(str(error), codes.FUNCTION_NOT_FOUND) from error
        finally:
            session.leave()


def _free(session: Session | None, sample: Any) -> None:  # noqa: ANN401
    """Free a GPM sample, unless its session has ended."""
    if session is None or session.failure is not None:
        return
    with suppress(session.module.NVMLError):
        session.module.nvmlGpmSampleFree(sample)


def _identity(module: Any, function: Callable[..., T], handle: Any, default: T) -> T:  # noqa: ANN401
    """Return the answer of the function; the default if the device does not support it."""
    try:
        return function(handle)
    except module.NVMLError as error:
        if convert_failure(error).code not in codes.UNSUPPORTED:
            raise
        return default


def _details(session: Session, handle: Any) -> dict[str, str | int]:  # noqa: ANN401
    """Return further facts about a device; absent if the driver does not give them now."""
    module = session.module
    found: dict[str, str | int] = {"vendor": "nvidia", "driver": session.driver}
    with suppress(module.NVMLError):
        found["serial"] = decode_text(module.nvmlDeviceGetSerial(handle))
    with suppress(module.NVMLError):
        found["memory"] = int(module.nvmlDeviceGetMemoryInfo(handle).total)
    return {name: value for name, value in found.items() if value}


def _address(found: Any) -> str:  # noqa: ANN401
    """Return the address of ``nvmlPciInfo_t``; empty for None."""
    return normalize_pci_address(decode_text(found.busId)) if found is not None else ""


def decode_text(value: Any) -> str:  # noqa: ANN401 - old versions give bytes
    """Return a text of the module."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

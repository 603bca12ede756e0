"""NVML through ``nvidia-ml-py``: the real ``Nvml``. Nothing is imported where the driver's library is missing."""

import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from jobmeter.collect import files
from jobmeter.collect.nvidia.api import DeviceLostError, DeviceProcess, Field, NotSupportedError, NvmlDevice, Reading

T = TypeVar("T")

LIBRARY = "libnvidia-ml.so.1"
_LOST = (15, 16)
"""NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED."""
_GONE = (1, 9, 15, 28)
"""The library has to be opened again: not initialised, driver unloaded, device lost or not found."""
_UNKNOWN_VALUE = 2**64 - 1
_MPS_SERVER = b"nvidia-cuda-mps-server"[:15]
"""The kernel's form of the name, truncated to 15 letters."""
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

_log = logging.getLogger(__name__)


class PynvmlLibrary:
    """See ``Nvml``. ``load`` gives the module ``pynvml`` or one that behaves like it, None where there is no driver."""

    def __init__(self, load: "Callable[[], Any | None] | None" = None) -> None:
        self._load = load or _load
        self._module: Any = None
        self._devices: list[PynvmlDevice] = []
        self._missing = False

    def devices(self) -> Sequence[NvmlDevice]:
        """See ``Nvml.devices``."""
        if self._missing:
            return []
        if self._module is None or any(device.lost for device in self._devices):
            self._open()
        return list(self._devices)

    def _open(self) -> None:
        module = self._module or self._load()
        if module is None:
            self._missing = True
            return
        self._devices = []
        try:
            if self._module is not None:
                module.nvmlShutdown()
            module.nvmlInit()
            handles = [module.nvmlDeviceGetHandleByIndex(index) for index in range(module.nvmlDeviceGetCount())]
        except module.NVMLError as error:
            # A library without its driver (a container, a driver that is being replaced) may work at a later look.
            _log.info("NVML cannot be opened: %s", error)
            self._module = None
            return
        self._module = module
        self._devices = [PynvmlDevice(module, handle, index) for index, handle in enumerate(handles)]


class PynvmlDevice:
    """See ``NvmlDevice``."""

    def __init__(self, module: Any, handle: Any, index: int) -> None:  # noqa: ANN401 - the module has no types
        self._nvml = module
        self._handle = handle
        self.index = index
        self.uuid = _text(self._read(module.nvmlDeviceGetUUID, default=""))
        self.minor: int | None = self._read(module.nvmlDeviceGetMinorNumber, default=None)
        self.name = _text(self._read(module.nvmlDeviceGetName, default=""))
        self._sample: Any = None
        self._profiled: bool | None = None
        self._sampled_us = 0
        self.lost = False

    def read(self, reading: Reading) -> Sequence[int]:
        """See ``NvmlDevice``."""
        return [int(number) for number in _READINGS[reading](self._nvml, self._call)]

    def fields(self, requested: Sequence[Field]) -> Mapping[Field, float]:
        """See ``NvmlDevice``."""
        answers = self._call(self._nvml.nvmlDeviceGetFieldValues, list(requested))
        return {
            field: float(getattr(answer.value, _VALUES[answer.valueType]))
            for field, answer in zip(requested, answers, strict=True)
            if answer.nvmlReturn == 0 and 0 <= answer.valueType < len(_VALUES)
        }

    def profile(self, requested: Sequence[int]) -> Mapping[int, float]:
        """See ``NvmlDevice``."""
        if self._profiled is None:
            self._profiled = bool(self._call(self._nvml.nvmlGpmQueryDeviceSupport).isSupportedDevice)
        if not self._profiled:
            raise NotSupportedError("the device has no GPM")
        fresh = self._guarded(self._nvml.nvmlGpmSampleAlloc)
        try:
            self._call(self._nvml.nvmlGpmSampleGet, fresh)
        except BaseException:
            self._guarded(self._nvml.nvmlGpmSampleFree, fresh)
            raise
        last, self._sample = self._sample, fresh
        if last is None:
            return {}
        try:
            return self._profiled_since(last, fresh, requested)
        finally:
            self._guarded(self._nvml.nvmlGpmSampleFree, last)

    def processes(self) -> Sequence[DeviceProcess]:
        """See ``NvmlDevice``. Clients of MPS are in a separate list; their shared server does not count as a user.

        https://docs.nvidia.com/deploy/mps/: `nvidia-smi` shows clients as M+C.
        """
        found = self._call(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        clients: Sequence[Any] = self._read(self._nvml.nvmlDeviceGetMPSComputeRunningProcesses, [])
        by_pid = {process.pid: process for process in (*found, *clients)}
        return [
            DeviceProcess(pid, None if process.usedGpuMemory == _UNKNOWN_VALUE else process.usedGpuMemory)
            for pid, process in by_pid.items()
            if not _is_mps_server(pid)
        ]

    def process_utilization(self) -> Mapping[int, float]:
        """See ``NvmlDevice``."""
        samples = self._call(self._nvml.nvmlDeviceGetProcessUtilization, self._sampled_us)
        first, self._sampled_us = (
            not self._sampled_us,
            max((sample.timeStamp for sample in samples), default=self._sampled_us),
        )
        if first:
            return {}  # older than the last call
        by_pid: dict[int, list[int]] = {}
        for sample in samples:
            by_pid.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: sum(shares) / len(shares) for pid, shares in by_pid.items() if pid}

    def _profiled_since(self, last: Any, fresh: Any, requested: Sequence[int]) -> Mapping[int, float]:  # noqa: ANN401
        question = self._nvml.c_nvmlGpmMetricsGet_t()
        question.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        question.numMetrics = len(requested)
        question.sample1, question.sample2 = last, fresh
        for position, metric in enumerate(requested):
            question.metrics[position].metricId = metric
        answer = self._guarded(self._nvml.nvmlGpmMetricsGet, question)
        found = [answer.metrics[position] for position in range(len(requested))]
        return {metric.metricId: float(metric.value) for metric in found if metric.nvmlReturn == 0}

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        return self._guarded(function, self._handle, *arguments)

    def _guarded(self, function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            code = getattr(error, "value", 999)
            self.lost = self.lost or code in _GONE
            raise (DeviceLostError if code in _LOST else NotSupportedError)(str(error)) from error

    def _read(self, function: Callable[..., T], default: T) -> T:
        try:
            return function(self._handle)
        except self._nvml.NVMLError:
            return default


_Call = Callable[..., Any]
"""Calls a function of the module for the device."""


def _utilization(nvml: Any, call: _Call) -> Sequence[int]:  # noqa: ANN401 - the module has no types
    rates = call(nvml.nvmlDeviceGetUtilizationRates)
    return rates.gpu, rates.memory


def _memory(nvml: Any, call: _Call) -> Sequence[int]:  # noqa: ANN401
    try:
        found = call(nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlMemory_v2)
    except NotSupportedError:
        # Before driver 510; what the driver keeps for itself counts as used there.
        found = call(nvml.nvmlDeviceGetMemoryInfo)
    return found.used, found.total


def _performance_state(nvml: Any, call: _Call) -> Sequence[int]:  # noqa: ANN401
    state = int(call(nvml.nvmlDeviceGetPerformanceState))
    if not 0 <= state <= 15:
        raise NotSupportedError("the P-state is unknown")
    return [state]


def _ecc_errors(nvml: Any, call: _Call) -> Sequence[int]:  # noqa: ANN401
    kinds = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return [call(nvml.nvmlDeviceGetTotalEccErrors, kind, nvml.NVML_VOLATILE_ECC) for kind in kinds]


_READINGS: Mapping[Reading, Callable[[Any, _Call], Sequence[int]]] = {
    Reading.UTILIZATION: _utilization,
    Reading.MEMORY: _memory,
    Reading.POWER: lambda nvml, call: [call(nvml.nvmlDeviceGetPowerUsage)],
    Reading.POWER_LIMIT: lambda nvml, call: [call(nvml.nvmlDeviceGetEnforcedPowerLimit)],
    Reading.ENERGY: lambda nvml, call: [call(nvml.nvmlDeviceGetTotalEnergyConsumption)],
    Reading.TEMPERATURE: lambda nvml, call: [call(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)],
    Reading.FAN: lambda nvml, call: [call(nvml.nvmlDeviceGetFanSpeed)],
    Reading.CLOCKS: lambda nvml, call: [
        call(nvml.nvmlDeviceGetClockInfo, clock) for clock in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
    ],
    Reading.HIGHEST_CLOCK: lambda nvml, call: [call(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM)],
    Reading.PERFORMANCE_STATE: _performance_state,
    Reading.ENCODER: lambda nvml, call: call(nvml.nvmlDeviceGetEncoderUtilization)[:1],
    Reading.DECODER: lambda nvml, call: call(nvml.nvmlDeviceGetDecoderUtilization)[:1],
    Reading.ECC_ERRORS: _ecc_errors,
    Reading.REMAPPED_ROWS: lambda nvml, call: call(nvml.nvmlDeviceGetRemappedRows),
    Reading.PCIE_REPLAYS: lambda nvml, call: [call(nvml.nvmlDeviceGetPcieReplayCounter)],
}


def _is_mps_server(pid: int) -> bool:
    return (files.read(f"/proc/{pid}/comm") or b"").strip() == _MPS_SERVER


def _text(value: Any) -> str:  # noqa: ANN401 - old versions give bytes
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def has_library() -> bool:
    """Whether the driver's library is there."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def _load() -> ModuleType | None:
    return import_module("pynvml") if has_library() else None

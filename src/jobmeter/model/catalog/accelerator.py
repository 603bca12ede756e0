"""Metrics of GPUs and NPUs. The core set has the same names under both prefixes."""

from collections.abc import Mapping

from jobmeter.model.catalog.metric import NO_NAMES, Aggregate, Kind, Metric, Scope

_D = Scope.DEVICE
_AMOUNTS = frozenset({"By", "W", "J", "{error}", "{row}"})
"""Units of metrics that are summed over the devices of a node; shares of time, temperatures and clocks have a mean."""
_NAMES: Mapping[str, Mapping[str, str]] = {
    "gpu.utilization": {
        "pai-dlc": "GpuCoreUsage",
        "pai-studio": "GpuCoreUsage",
        "pai-studio-nodes": "GpuUsageRate",
        "cms": "GPU_DUTY_CYCLE",
        "modelarts": "gpuUtil",
        "baseten": "gpu_utilization",
    },
    "gpu.memory.usage": {"cms": "GPU_MEMORY_USED", "baseten": "gpu_memory_usage_bytes"},
    "gpu.memory.limit": {"cms": "GPU_MEMORY_TOTAL"},
    "gpu.memory.utilization": {
        "pai-dlc": "GpuMemoryUsage",
        "pai-studio": "GpuMemoryUsage",
        "pai-studio-nodes": "GpuMemoryUsageRate",
        "cms": "GPU_MEMORY_UTIL",
        "modelarts": "gpuMemUsage",
    },
    "gpu.sm.active": {"cms": "GPU_SM_UTIL"},
    "gpu.sm.occupancy": {"cms": "GPU_SM_OCCUPANCY"},
    "gpu.tensor.active": {"cms": "GPU_PIP_TENSOR_ACTIVE"},
    "gpu.dram.active": {"cms": "GPU_DRAM_ACTIVE_UTIL"},
    "gpu.power": {"cms": "GPU_POWER_USAGE"},
    "gpu.temperature": {"cms": "GPU_TEMPERATURE"},
    "gpu.pcie.receive": {"cms": "GPU_PCIE_RECEIVE"},
    "gpu.pcie.transmit": {"cms": "GPU_PCIE_TRANSMIT"},
    "gpu.nvlink.receive": {"cms": "GPU_NVLINK_RECEIVE"},
    "gpu.nvlink.transmit": {"cms": "GPU_NVLINK_TRANSMIT"},
    "npu.utilization": {"modelarts": "npuUtil"},
    "npu.memory.utilization": {"modelarts": "npuMemUsage"},
}


def _ratio(prefix: str, name: str, text: str) -> Metric:
    return Metric(
        name=f"{prefix}.{name}",
        unit="1",
        scope=_D,
        text=text,
        maximum=1.5,
        parts=Aggregate.MEAN,
        names=_NAMES.get(f"{prefix}.{name}", NO_NAMES),
    )


def _gauge(prefix: str, name: str, unit: str, text: str, minimum: float | None = 0.0) -> Metric:
    return Metric(
        name=f"{prefix}.{name}",
        unit=unit,
        scope=_D,
        text=text,
        minimum=minimum,
        on_node=Aggregate.SUM if unit in _AMOUNTS else None,
        parts=Aggregate.MEAN,
        names=_NAMES.get(f"{prefix}.{name}", NO_NAMES),
    )


def _counter(prefix: str, name: str, unit: str, text: str, read_unit: str = "") -> Metric:
    return Metric(
        name=f"{prefix}.{name}",
        unit=unit,
        scope=_D,
        kind=Kind.COUNTER,
        on_node=Aggregate.SUM if unit in _AMOUNTS else None,
        text=text,
        read_unit=read_unit,
        names=_NAMES.get(f"{prefix}.{name}", NO_NAMES),
    )


def _core(prefix: str) -> tuple[Metric, ...]:
    return (
        _ratio(prefix, "utilization", "Share of time in which any kernel ran."),
        _gauge(prefix, "memory.usage", "By", "Device memory in use."),
        _gauge(prefix, "memory.limit", "By", "Device memory there is."),
        Metric(
            name=f"{prefix}.memory.utilization",
            unit="1",
            scope=_D,
            over=Aggregate.RATIO,
            maximum=1.5,
            parts=Aggregate.MEAN,
            ratio=(f"{prefix}.memory.usage", f"{prefix}.memory.limit"),
            text="Device memory in use over what there is.",
            names=_NAMES.get(f"{prefix}.memory.utilization", NO_NAMES),
        ),
        _ratio(
            prefix,
            "sm.active",
            "Share of time in which a streaming multiprocessor (or core) had work, over all of them.",
        ),
        _ratio(prefix, "tensor.active", "Share of time in which the tensor (matrix) pipe worked."),
        _ratio(prefix, "dram.active", "Share of time in which device memory moved data."),
        _gauge(prefix, "power", "W", "Power drawn."),
        _counter(prefix, "energy", "J", "Energy used.", read_unit="W"),
        _gauge(prefix, "temperature", "Cel", "Core temperature.", minimum=-60.0),
    )


METRICS: tuple[Metric, ...] = (
    *_core("gpu"),
    *_core("npu"),
    _ratio("gpu", "memory.copy.utilization", "Share of time in which the memory controller was busy."),
    _ratio("gpu", "sm.occupancy", "Resident warps over the most that fit."),
    _ratio("gpu", "graphics.active", "Share of time in which the graphics or compute engine was busy."),
    _ratio("gpu", "fp64.active", "Share of time in which the FP64 pipe worked."),
    _ratio("gpu", "fp32.active", "Share of time in which the FP32 pipe worked."),
    _ratio("gpu", "fp16.active", "Share of time in which the FP16 pipe worked."),
    _ratio("gpu", "encoder.utilization", "Share of time in which the video encoder worked."),
    _ratio("gpu", "decoder.utilization", "Share of time in which the video decoder worked."),
    _ratio("gpu", "fan", "Fan speed over its maximum."),
    _gauge("gpu", "power.limit", "W", "Power that the device may draw."),
    _gauge("gpu", "temperature.memory", "Cel", "Memory temperature.", minimum=-60.0),
    _gauge("gpu", "clock.sm", "Hz", "Clock of the streaming multiprocessors."),
    _gauge("gpu", "clock.memory", "Hz", "Clock of the memory."),
    _gauge("gpu", "clock.sm.limit", "Hz", "Highest clock of the streaming multiprocessors."),
    _gauge("gpu", "performance.state", "", "NVIDIA P-state: 0 is fastest."),
    _counter("gpu", "throttle.power", "s", "Time throttled by the power cap.", read_unit="1"),
    _counter(
        "gpu",
        "throttle.thermal.software",
        "s",
        "Time throttled by the software thermal limit.",
        read_unit="1",
    ),
    _counter(
        "gpu",
        "throttle.thermal.hardware",
        "s",
        "Time throttled by the hardware thermal limit.",
        read_unit="1",
    ),
    _counter("gpu", "throttle.power.brake", "s", "Time throttled by an external power brake.", read_unit="1"),
    _counter("gpu", "throttle.sync", "s", "Time throttled to stay in step with other devices.", read_unit="1"),
    _counter("gpu", "ecc.corrected", "{error}", "Memory errors corrected since the driver was loaded."),
    _counter(
        "gpu",
        "ecc.uncorrected",
        "{error}",
        "Memory errors that could not be corrected since the driver was loaded.",
    ),
    _gauge("gpu", "remapped.rows.correctable", "{row}", "Memory rows remapped for correctable errors."),
    _gauge("gpu", "remapped.rows.uncorrectable", "{row}", "Memory rows remapped for uncorrectable errors."),
    _gauge("gpu", "remapped.rows.pending", "1", "1 while a remapping waits for a reset."),
    _gauge("gpu", "remapped.rows.failed", "1", "1 after a remapping failed."),
    _counter("gpu", "pcie.receive", "By", "Bytes received over PCIe."),
    _counter("gpu", "pcie.transmit", "By", "Bytes sent over PCIe."),
    _counter("gpu", "pcie.replay", "{error}", "PCIe replays."),
    _counter("gpu", "nvlink.receive", "By", "Bytes received over NVLink."),
    _counter("gpu", "nvlink.transmit", "By", "Bytes sent over NVLink."),
    _gauge("gpu", "process.memory.usage", "By", "Device memory that the processes of one replica use."),
    _ratio("gpu", "process.utilization", "Share of time in which kernels of one replica's processes ran."),
)

"""Metrics of GPUs and NPUs. Core metrics have equal names under both prefixes."""

from collections.abc import Mapping
from functools import partial
from typing import Unpack

from msgspec.structs import replace

from jobmeter.model.catalog.metric import (
    NO_NAMES,
    Aggregate,
    Display,
    Kind,
    Metric,
    MetricScope,
    Presentation,
    make_utilization,
)
from jobmeter.model.device import STATES

_AMOUNTS = frozenset({"By", "By/s", "W", "J", "{error}", "{row}", "{process}"})
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


def _metric(
    name: str,
    unit: str,
    text: str,
    kind: Kind = Kind.GAUGE,
    read_unit: str = "",
    minimum: float = 0.0,
    maximum: float | None = None,
    **presentation: Unpack[Presentation],
) -> Metric:
    return Metric(
        name,
        unit,
        text,
        MetricScope.DEVICE,
        kind,
        read_unit,
        on_node=Aggregate.SUM if unit in _AMOUNTS else None,
        parts=Aggregate.SUM if kind is Kind.COUNTER else Aggregate.MEAN,
        minimum=minimum,
        maximum=maximum,
        names=_NAMES.get(name, NO_NAMES),
        **presentation,
    )


_STATES = ", ".join(f"{one.code} {one}" for one in STATES)
_ratio = partial(_metric, unit="1", maximum=1.5)
_counter = partial(_metric, kind=Kind.COUNTER)
_time = partial(_counter, unit="s", read_unit="1")


def _rates(prefix: str, link: str) -> tuple[Metric, Metric]:
    """Return the rates of a link that GPM measures. MIG instances have no counters of links."""
    return (
        _metric(f"{prefix}.receive.rate", "By/s", f"Bytes a second received over {link}, as GPM measures."),
        _metric(f"{prefix}.transmit.rate", "By/s", f"Bytes a second sent over {link}, as GPM measures."),
    )


def _make_title(prefix: str, title: str) -> str:
    return f"NPU {title[0].lower()}{title[1:]}" if prefix == "npu" else title


def _core(prefix: str) -> tuple[Metric, ...]:
    memory = f"{prefix}.memory"
    return (
        _ratio(
            f"{prefix}.utilization",
            text="Share of time in which any kernel ran.",
            title=_make_title(prefix, "Utilization"),
            phrase="utilization",
            column=prefix.upper(),
            views=Display.FIRST | Display.RANKS | Display.NODE | Display.USE | Display.CORE,
        ),
        _metric(
            f"{memory}.usage",
            "By",
            "Device memory in use.",
            title=_make_title(prefix, "Device memory in use"),
            phrase="device memory in use",
            column=f"{prefix.upper()} memory",
            views=Display.FIRST | Display.NODE | Display.CORE,
        ),
        _metric(
            f"{memory}.limit",
            "By",
            "Total device memory.",
            title=_make_title(prefix, "Device memory limit"),
            views=Display.HIDDEN,
        ),
        make_utilization(
            memory,
            "Device memory in use over total device memory.",
            MetricScope.DEVICE,
            names=_NAMES[f"{memory}.utilization"],
            title=_make_title(prefix, "Device memory in use, share"),
            phrase="device memory in use",
            views=Display.CHART | Display.CORE,
        ),
        _ratio(
            f"{prefix}.sm.active",
            text="Share of time in which a streaming multiprocessor (or core) had work, over all of them.",
            title=_make_title(prefix, "Multiprocessor activity"),
            phrase="multiprocessor activity",
            views=Display.FIRST | Display.RANKS | Display.CORE,
        ),
        _ratio(
            f"{prefix}.tensor.active",
            text="Share of time in which the tensor (matrix) pipe worked.",
            title=_make_title(prefix, "Tensor core activity"),
            phrase="tensor core activity",
            views=Display.FIRST,
        ),
        _ratio(
            f"{prefix}.dram.active",
            text="Share of time in which device memory moved data.",
            title=_make_title(prefix, "Memory interface activity"),
            phrase="memory interface activity",
        ),
        *_physics(prefix),
        *_measurement(prefix),
    )


def _measurement(prefix: str) -> tuple[Metric, ...]:
    own = f"{prefix}.process"
    return (
        replace(
            _metric(f"{prefix}.state", "", f"State of its measurement: {_STATES}."),
            over=Aggregate.MAX,
            parts=Aggregate.MAX,
            maximum=float(len(STATES) - 1),
        ),
        _metric(f"{own}es", "{process}", "Processes that compute on the device."),
        _metric(f"{own}es.foreign", "{process}", "Processes that compute on the device and belong to no job."),
        _metric(f"{own}.memory.usage", "By", "Device memory that the processes of one replica use."),
        _ratio(f"{own}.utilization", text="Share of time in which kernels of one replica's processes ran."),
    )


def _physics(prefix: str) -> tuple[Metric, ...]:
    return (
        _metric(
            f"{prefix}.power",
            "W",
            "Power drawn.",
            title=_make_title(prefix, "Power"),
            phrase="power",
            column="Power" if prefix == "gpu" else "",
            views=Display.FIRST | Display.RANKS | Display.NODE | Display.CORE,
        ),
        _counter(
            f"{prefix}.energy",
            "J",
            "Energy used.",
            read_unit="W",
            title=_make_title(prefix, "Power, by energy"),
            phrase=f"{prefix} energy",
            views=Display.CORE,
        ),
        _metric(
            f"{prefix}.temperature",
            "Cel",
            "Core temperature.",
            minimum=-60.0,
            title=_make_title(prefix, "Temperature"),
            phrase="temperature",
            views=Display.FIRST | Display.NODE | Display.CORE,
        ),
    )


METRICS: tuple[Metric, ...] = (
    *_core("gpu"),
    *_core("npu"),
    _ratio("gpu.memory.copy.utilization", text="Share of time in which the memory controller was busy."),
    _ratio("gpu.sm.occupancy", text="Resident warps over the most that fit."),
    _ratio("gpu.graphics.active", text="Share of time in which the graphics or compute engine was busy."),
    _ratio("gpu.fp64.active", text="Share of time in which the FP64 pipe worked."),
    _ratio("gpu.fp32.active", text="Share of time in which the FP32 pipe worked."),
    _ratio("gpu.fp16.active", text="Share of time in which the FP16 pipe worked."),
    _ratio("gpu.encoder.utilization", text="Share of time in which the video encoder worked."),
    _ratio("gpu.decoder.utilization", text="Share of time in which the video decoder worked."),
    _ratio("gpu.decoder.active", text="Share of time in which the video decoders worked, mean of all (GPM)."),
    _ratio("gpu.jpeg.active", text="Share of time in which the JPEG decoders worked, mean of all (GPM)."),
    _ratio("gpu.fan", text="Fan speed over its maximum."),
    _metric("gpu.power.limit", "W", "Power that the device may draw.", views=Display.HIDDEN),
    _metric("gpu.power.smoothing", "", "1 while power smoothing is on."),
    _ratio("gpu.power.smoothing.lifetime", text="Remaining share of the lifetime of the power smoothing circuit."),
    _metric("gpu.temperature.memory", "Cel", "Memory temperature.", minimum=-60.0),
    _metric("gpu.temperature.hotspot", "Cel", "Temperature of the hottest place of the chip (AMD).", minimum=-60.0),
    _metric("gpu.temperature.margin", "Cel", "Degrees to the temperature at which the device slows.", minimum=-100.0),
    _metric("gpu.clock.sm", "Hz", "Clock of the streaming multiprocessors.", title="Clock"),
    _metric("gpu.clock.memory", "Hz", "Clock of the memory."),
    _metric("gpu.clock.sm.limit", "Hz", "Highest clock of the streaming multiprocessors.", views=Display.HIDDEN),
    _metric("gpu.performance.state", "", "NVIDIA P-state: 0 is fastest."),
    _time("gpu.throttle.power", text="Time throttled by the power cap."),
    _time("gpu.throttle.thermal.software", text="Time throttled by the software thermal limit."),
    _time("gpu.throttle.thermal.hardware", text="Time throttled by the hardware thermal limit."),
    _time("gpu.throttle.power.brake", text="Time throttled by an external power brake."),
    _time("gpu.throttle.sync", text="Time throttled to stay in step with other devices."),
    _counter("gpu.ecc.corrected", "{error}", "Memory errors corrected since the driver was loaded."),
    _counter(
        "gpu.ecc.uncorrected", "{error}", "Memory errors that could not be corrected since the driver was loaded."
    ),
    _counter("gpu.ecc.deferred", "{error}", "Memory errors found and not yet used by a program (AMD)."),
    _counter("gpu.ecc.sram.corrected", "{error}", "SRAM errors corrected since the driver was loaded."),
    _counter("gpu.ecc.sram.uncorrected", "{error}", "SRAM errors that could not be corrected."),
    _metric("gpu.ecc.sram.exceeded", "", "1 after too many SRAM errors: the device should be replaced."),
    _metric("gpu.remapped.banks", "{bank}", "Memory banks that are remapped."),
    _metric("gpu.remapped.banks.pending", "", "1 while the remapping of a bank waits for a reset."),
    _metric("gpu.remapped.rows.correctable", "{row}", "Memory rows remapped for correctable errors."),
    _metric("gpu.remapped.rows.uncorrectable", "{row}", "Memory rows remapped for uncorrectable errors."),
    _metric("gpu.remapped.rows.pending", "", "1 while a remapping waits for a reset."),
    _metric("gpu.remapped.rows.failed", "", "1 after a remapping failed."),
    _metric("gpu.remapped.spare.all", "{bank}", "Memory banks with all their spare rows."),
    _metric("gpu.remapped.spare.most", "{bank}", "Memory banks with most of their spare rows."),
    _metric("gpu.remapped.spare.part", "{bank}", "Memory banks with part of their spare rows."),
    _metric("gpu.remapped.spare.few", "{bank}", "Memory banks with few spare rows left."),
    _metric("gpu.remapped.spare.none", "{bank}", "Memory banks without a spare row."),
    _metric("gpu.retired.pages.correctable", "{page}", "Memory pages retired for repeated correctable errors."),
    _metric("gpu.retired.pages.uncorrectable", "{page}", "Memory pages retired for uncorrectable errors."),
    _metric("gpu.retired.pages.pending", "", "1 while the retirement of a page waits for a reset."),
    _counter("gpu.pcie.receive", "By", "Bytes received over PCIe.", title="PCIe traffic received"),
    _counter("gpu.pcie.transmit", "By", "Bytes sent over PCIe.", title="PCIe traffic sent"),
    *_rates("gpu.pcie", "PCIe"),
    _counter("gpu.pcie.replay", "{error}", "PCIe replays."),
    _counter("gpu.pcie.errors.corrected", "{error}", "PCIe errors that were corrected."),
    _counter("gpu.pcie.errors.uncorrected", "{error}", "PCIe errors that were not corrected, fatal or not."),
    _metric("gpu.pcie.generation", "{generation}", "Generation of the PCIe link; an idle device may lower it."),
    _metric(
        "gpu.pcie.generation.limit",
        "{generation}",
        "Highest generation that the device and its slot allow.",
        views=Display.HIDDEN,
    ),
    _metric("gpu.pcie.width", "{lane}", "Lanes that the PCIe link uses."),
    _metric("gpu.pcie.width.limit", "{lane}", "Most lanes that the device and its slot allow.", views=Display.HIDDEN),
    _counter("gpu.nvlink.receive", "By", "Bytes received over NVLink.", title="NVLink traffic received"),
    _counter("gpu.nvlink.transmit", "By", "Bytes sent over NVLink.", title="NVLink traffic sent"),
    *_rates("gpu.nvlink", "NVLink"),
    _metric("gpu.nvlink.links", "{link}", "NVLinks that the device has.", views=Display.HIDDEN),
    _metric("gpu.nvlink.links.down", "{link}", "NVLinks that are down."),
    _counter("gpu.nvlink.errors", "{error}", "Errors of NVLink, all links together."),
    _counter("gpu.nvlink.replays", "{error}", "Replays of NVLink, all links together."),
    _counter("gpu.nvlink.recoveries", "{error}", "Times that an NVLink recovered from an error."),
    *_rates("gpu.c2c", "the link between chips of a module"),
    _counter("gpu.c2c.errors", "{error}", "Errors of the link between chips of a module."),
    replace(
        _metric(
            "gpu.fabric.state", "", "Registration with the NVLink fabric: 1 not started, 2 in progress, 3 completed."
        ),
        over=Aggregate.MIN,
    ),
    replace(
        _metric(
            "gpu.recovery.action",
            "",
            "Action that the device needs: 0 none, 1 reset, 2 reboot of the node, 3 drain of peer traffic, "
            "4 drain and reset, 5 recovery of IMEX, 6 bus reset, 7 reboot of the system.",
        ),
        over=Aggregate.MAX,
    ),
    _counter("gpu.xgmi.receive", "By", "Bytes read over XGMI, all links together.", title="XGMI traffic received"),
    _counter("gpu.xgmi.transmit", "By", "Bytes written over XGMI, all links together.", title="XGMI traffic sent"),
    _ratio("npu.vector.active", text="Share of time in which the vector cores worked (Ascend)."),
    _ratio("npu.cpu.utilization", text="Share of time in which the device's own CPUs for kernels worked (Ascend)."),
    _metric("npu.temperature.memory", "Cel", "Memory temperature.", minimum=-60.0),
    _metric("npu.clock.core", "Hz", "Clock of the cores."),
    _metric("npu.clock.core.limit", "Hz", "Rated clock of the cores.", views=Display.HIDDEN),
    _metric("npu.clock.memory", "Hz", "Clock of the memory."),
    _metric("npu.voltage", "V", "Supply voltage."),
    replace(
        _metric("npu.health", "", "Worst active alarm: 0 none, 1 general, 2 important, 3 urgent (Ascend)."),
        over=Aggregate.MAX,
        parts=Aggregate.MAX,
    ),
    _metric("npu.faults", "{fault}", "Faults that the device reports now (Ascend)."),
    _ratio(
        "npu.power.utilization",
        text="Power as a share of the device's maximum power, mean of the last minute (AWS Neuron).",
    ),
    _counter(
        "npu.executions.failed",
        "{execution}",
        "Executions that ended with a device fault; the driver counts them when the process ends (AWS Neuron).",
    ),
    _counter("npu.ecc.corrected", "{error}", "Memory errors that were corrected."),
    _counter("npu.ecc.uncorrected", "{error}", "Memory errors that could not be corrected."),
    _metric("npu.pages.isolated", "{page}", "Memory pages that are no longer used because of errors."),
    _metric("npu.network.health", "", "Result of the device's own test of its network: 0 is good (Ascend)."),
    _metric("npu.link.up", "", "1 while the link of the network port is up."),
    _metric("npu.link.speed", "By/s", "Speed of the network port.", views=Display.HIDDEN),
    _counter("npu.link.changes", "{change}", "Times that the link of the network port went up or down."),
    _counter("npu.network.receive", "By", "Bytes received by the network port.", title="NPU network traffic received"),
    _counter("npu.network.transmit", "By", "Bytes sent by the network port.", title="NPU network traffic sent"),
    _counter("npu.network.errors", "{packet}", "Packets with errors at the network port."),
    _counter("npu.network.retries", "{packet}", "Packets that RoCE sent again."),
    _counter("npu.network.congestion", "{packet}", "Notifications of congestion that RoCE received."),
    _counter("npu.network.pauses", "{packet}", "Pause frames of priorities (PFC) received."),
)

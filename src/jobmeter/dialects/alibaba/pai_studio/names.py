"""PaiStudio's names for metrics, units and types, and ours; requests that its operations share."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated

from msgspec import Meta, field

from jobmeter.dialects.alibaba.common.operation import AlibabaRequest
from jobmeter.dialects.base import clamp_negative, round_digits, round_up
from jobmeter.model.catalog import map_dialect_names
from jobmeter.model.time import MINUTE

NAME = "pai-studio"
DEFAULT_STEP_MS = 5 * MINUTE

TIME_TEXT = "UTC, ISO 8601 (`2020-11-08T16:00:00Z`)."
INSTANCE_METRICS = map_dialect_names(NAME)
"""The metric of each MetricType of ListTrainingJobInstanceMetrics."""

NODE_METRICS = map_dialect_names(f"{NAME}-nodes")
"""The metric of each MetricType of GetNodeMetrics."""

# Metrics of the replicas on a node, for a node without samples of its own.
_INSTEAD: Mapping[str, str] = {
    "node.cpu.utilization": "cpu.utilization",
    "node.memory.utilization": "memory.utilization",
    "node.network.receive": "network.receive",
    "node.network.transmit": "network.transmit",
    "node.disk.read": "disk.read",
    "node.disk.write": "disk.write",
    "gpu.utilization": "npu.utilization",
    "gpu.memory.utilization": "npu.memory.utilization",
}

READY = "Ready"
"""The status of every existing group, machine group or quota."""
GIB = 2**30
_KB = 1024
_MODEL = re.compile(r"[A-Z]{1,2}\d{1,4}[A-Z]{0,2}")
_TYPES: Mapping[str, str] = {"TFJob": "TensorFlow"}


class StudioPageRequest(AlibabaRequest, frozen=True, kw_only=True):
    """A request for a page of a list."""

    page_number: Annotated[int, "From 1.", Meta(ge=1, le=10**6)] = 1
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 100

    @property
    def page(self) -> tuple[int, int]:
        """The offset of the page, and its size."""
        return (self.page_number - 1) * self.page_size, self.page_size


Group = Annotated[str, "The resource group, as job and node records name it."]


class GroupRequest(AlibabaRequest, frozen=True, kw_only=True):
    """A request about a resource group."""

    resource_group_id: Group = field(name="ResourceGroupID")


def list_node_metrics(metric_type: str) -> tuple[str, ...]:
    """Return our metrics of a MetricType of GetNodeMetrics, in order of preference; empty for an unknown one."""
    folded = {name.casefold(): metric.name for name, metric in NODE_METRICS.items()}
    name = folded.get(metric_type.casefold())
    return () if name is None else (name, _INSTEAD[name])


def format_number(value: float) -> str:
    """Format a number as plain decimal text, ``59`` or ``0.0021``: 12 significant digits, no exponent."""
    number = round_digits(value)
    return format(Decimal(int(number)) if number == int(number) else Decimal(repr(number)), "f")


def format_percent(ratio: float) -> str:
    """Format a ratio as a percentage."""
    return format_number(clamp_negative(ratio) * 100.0)


def format_megabytes(rate: float) -> str:
    """Format bytes a second as MB/s."""
    return format_number(rate * 1e-6)


def convert_kilobytes(size: float) -> int:
    """Convert bytes to KB of 1,024 bytes."""
    return round_up(size / _KB)


def parse_device_model(name: str) -> str:
    """Return the model of a device: ``A100`` of ``NVIDIA A100-SXM4-80GB``; a name without a model stays unchanged."""
    found = (part for part in re.split(r"[^A-Za-z0-9]+", name) if _MODEL.fullmatch(part))
    return next(found, name)


def join_device_models(names: Iterable[str]) -> str:
    """Return the known models of devices, each once, separated by commas."""
    return ",".join(dict.fromkeys(parse_device_model(name) for name in names if name))


def format_gibibytes(size: float) -> str:
    """Format bytes as GiB."""
    return format_number(size / GIB)


def shorten_job_type(kind: str) -> str:
    """Return the short name of a job type: ``PyTorch`` of ``PyTorchJob``."""
    return _TYPES.get(kind, kind.removesuffix("Job"))

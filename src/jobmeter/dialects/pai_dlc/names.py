"""PAI-DLC's names for metrics, units and fields, and ours."""

from collections.abc import Mapping
from types import MappingProxyType

from jobmeter.model.catalog import by_dialect_name

NAME = "pai-dlc"
VERSION = "2020-12-03"

METRICS = by_dialect_name(NAME)
"""The metric of each MetricType."""

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "job": "JobId",
        "job_id": "JobId",
        "metric": "MetricType",
        "metrics": "MetricType",
        "start": "StartTime",
        "end": "EndTime",
        "step": "TimeStep",
        "range": "StartTime",
        "name": "DisplayName",
        "type": "JobType",
        "command": "UserCommand",
        "workspace": "WorkspaceId",
        "resource_group": "ResourceId",
        "labels": "Tags",
        "conditions": "Tags",
    }
)
"""Their name of a field that one of our own errors names."""

NOT_FOUND: Mapping[str, str] = MappingProxyType(
    {
        "job": "InvalidJobId.NotFound",
        "pod": "InvalidPodId.NotFound",
        "metric": "InvalidMetricName.NotFound",
        "namespace": "InvalidNamespace.NotFound",
    }
)
"""Their code for a missing object, by kind."""

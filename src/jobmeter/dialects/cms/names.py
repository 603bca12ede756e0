"""CloudMonitor's names for fields, and its codes for missing objects.

Its metrics are in ``dialects.alibaba.cloudmonitor``.
"""

from collections.abc import Mapping
from types import MappingProxyType

NAME = "cms"
VERSION = "2019-01-01"

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "job": "Dimensions",
        "job_id": "Dimensions",
        "project": "Dimensions",
        "metric": "MetricName",
        "metrics": "MetricName",
        "start": "StartTime",
        "end": "EndTime",
        "step": "Period",
        "range": "StartTime",
    }
)
"""Their name of a field that one of our own errors names."""

NOT_FOUND: Mapping[str, str] = MappingProxyType(
    {"job": "ResourceNotFound", "metric": "ResourceNotFound", "namespace": "ResourceNotFound"}
)
"""Their code for a missing object, by kind."""

"""PAI-DLC's names for metrics, units and fields, and ours."""

from collections.abc import Mapping
from types import MappingProxyType

from jobmeter.dialects.base import rounded
from jobmeter.model.catalog import CATALOG, by_dialect_name

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
"""Their code for what is not there, by kind."""

# Utilisations are percent (the sample answer of
# https://www.alibabacloud.com/help/en/pai/developer-reference/api-pai-dlc-2020-12-03-getjobmetrics is 23.45). The page
# gives rates no unit; PaiStudio's ListTrainingJobInstanceMetrics documents MB/s for the same metric names.
_FACTORS: Mapping[str, float] = MappingProxyType({"1": 100.0, "By/s": 1e-6})


def in_their_unit(metric: str, value: float) -> float:
    """A value of one of our metrics as percent (0 to 100) or MB/s (10^6 bytes a second), to 12 significant digits."""
    return rounded(value * _FACTORS[CATALOG[metric].answer_unit])

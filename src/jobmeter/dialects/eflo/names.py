"""eflo-controller's names for fields, and its codes for missing objects."""

from collections.abc import Mapping
from types import MappingProxyType

NAME = "eflo"
VERSION = "2022-12-15"

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "node": "NodeId",
        "nodes": "NodeIds",
        "cluster": "ClusterId",
        "task": "DiagnosticId",
        "query": "Query",
        "start": "StartTime",
        "end": "EndTime",
        "logs": "AiJobLogInfo",
        "after": "NextToken",
        "type": "DiagnosticType",
        "project": "ClusterId",
    }
)
"""Their name of a field that one of our own errors names."""

NOT_FOUND: Mapping[str, str] = MappingProxyType(
    {"node": "ResourceNotFound", "task": "ResourceNotFound", "job": "ResourceNotFound"}
)
"""Their code for a missing object, by kind."""

"""Labels of what no table maps, by the rules that Prometheus has for it.

https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/#metric-attributes
"""

import re
from collections.abc import Mapping

from jobmeter.ingest.otel.owner import OWN
from jobmeter.wire.otlp.written import Described

_DESCRIPTIVE = re.compile(
    r"(?:telemetry\."
    r"|process\.(?:command|creation\.|executable\.|interactive$|owner$|parent_pid$|runtime\.|title$|working_directory$)"
    r"|os\.|host\.(?:arch|cpu\.|image\.|ip$|mac$|type$)|container\.(?:command|image\.)|webengine\."
    r"|k8s\.(?:pod|node|namespace|deployment|job|cronjob|statefulset|daemonset|replicaset|container)"
    r"\.(?:labels?|annotations?|start_time|status)).*"
)
"""Attributes of a resource that tell how it is made, not which one it is."""
_WRONG = re.compile(r"[^A-Za-z0-9_.]")
_SCOPE = "otel_scope_"
_RESOURCE = "resource_"
_NAMED_HERE = {"job": "attribute_job"}
"""An attribute whose name means something else here."""


def labels(described: Described, used: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """The labels: attributes of the data point, what identifies the resource (but for ``used``), and the scope."""
    texts = {name: value for name, value in described.attributes.items() if name not in OWN}
    for name, value in described.resource.items():
        if name in used or _DESCRIPTIVE.fullmatch(name) or texts.get(name) == value:
            continue
        texts[_RESOURCE + name if name in texts else name] = value
    name, version, attributes = described.scope
    scope = {"name": name, "version": version, **attributes}
    texts.update({_SCOPE + key: value for key, value in scope.items() if value})
    return legal(texts)


def legal(texts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The same under names that labels may have; values that share one then are joined, as Prometheus does."""
    found: dict[str, str] = {}
    for key in sorted(texts):
        name = _WRONG.sub("_", _NAMED_HERE.get(key, key))
        if name[:1].isdigit():
            name = f"key_{name}"
        elif name[:1] == ".":
            name = f"_{name[1:]}"
        found[name] = f"{found[name]};{texts[key]}" if name in found else texts[key]
    return tuple(sorted(found.items()))

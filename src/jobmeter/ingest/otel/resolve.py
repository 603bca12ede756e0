"""Resolves a series of OpenTelemetry: its owner and its metric."""

import re
from collections.abc import Mapping

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters.resolve import EXTERNAL, ResolvedSeries, resolve_bounds
from jobmeter.ingest.otel import RULES
from jobmeter.ingest.otel.attributes import add_common_names
from jobmeter.ingest.otel.owner import OWN, POD, ResourceOwner, find_resource_owner
from jobmeter.ingest.rule import RuleTarget, TranslationRule
from jobmeter.model.catalog import CATALOG, Kind, MetricScope
from jobmeter.model.series import Series, is_name
from jobmeter.wire.otlp.written import Described
from jobmeter.wire.otlp.written import WrittenKind as Sent

_APP = "app."
_GPU = re.compile(r"(?i:(?:(?:nvidia|gpu)[-_]?)?)(\d{1,3})")
_WRONG = re.compile(r"[^A-Za-z0-9._:-]")
_HARDWARE, _HARDWARE_ID, _IS_GPU = "hw.", "hw.id", re.compile(r"hw\.gpu\..*")
_CONTAINERS = ("container.name", "container.id")
_DESCRIPTIVE = re.compile(
    r"(?:telemetry\."
    r"|process\.(?:command|creation\.|executable\.|interactive$|owner$|parent_pid$|runtime\.|title$|working_directory$)"
    r"|os\.|host\.(?:arch|cpu\.|image\.|ip$|mac$|type$)|container\.(?:command|image\.)|webengine\."
    r"|k8s\.(?:pod|node|namespace|deployment|job|cronjob|statefulset|daemonset|replicaset|container)"
    r"\.(?:labels?|annotations?|start_time|status)).*"
)
"""Resource attributes that describe a resource without identifying it."""
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_.]")
_SCOPE = "otel_scope_"
_RESOURCE = "resource_"
_NAMED_HERE = {"job": "attribute_job"}
"""An attribute whose name has another meaning in Jobmeter."""


def resolve(described: Described, project: str) -> ResolvedSeries:
    """Resolve a series. Raises InvalidRequestError naming the invalid field."""
    if not described.name:
        raise InvalidRequestError("a metric has no name", "metric")
    own = {name: value for name, value in described.attributes.items() if name in OWN}
    whose = find_resource_owner({**described.resource, **own})
    whose = whose._replace(device=whose.device or _gpu(described))
    series = _map_metric(described, whose, project) or _find_catalogued(described, whose, project)
    return resolve_bounds(series or _make_external_series(described, whose, project), described.name)


def _map_metric(described: Described, whose: ResourceOwner, project: str) -> Series | None:
    """Return the series of a metric in the tables. None if no rule fits, or if the owner is unknown."""
    rules = RULES.get(described.name, ())
    if not rules:
        return None
    attributes = add_common_names({**described.resource, **described.attributes})
    rule = next((rule for rule in rules if rule.fits(attributes)), None)
    if rule is None or not _has_same_kind(rule.metric, described) or not _is_named(rule, whose):
        return None
    found = {ours: attributes[theirs] for theirs, ours in rule.keep.items() if theirs in attributes}
    if rule.subject is RuleTarget.POD and not whose.job:
        found |= _label_foreign_container(described.resource)
    if rule.subject is RuleTarget.NODE:
        whose = whose._replace(job="", replica="", attempt=0, device="")
    elif rule.subject is RuleTarget.POD:
        whose = whose._replace(device="")
    return _series(rule.metric, project, whose, tuple(sorted((*found.items(), *rule.fixed))))


def _has_same_kind(ours: str, described: Described) -> bool:
    return (CATALOG[ours].kind is Kind.COUNTER) is (described.kind is Sent.COUNTER)


def _is_named(rule: TranslationRule, whose: ResourceOwner) -> bool:
    if rule.subject is RuleTarget.POD:
        return bool(whose.job or whose.node)
    return bool(whose.node and (whose.device or rule.subject is RuleTarget.NODE))


def _label_foreign_container(resource: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that distinguish a pod or container of no job from others on the same machine."""
    if resource.get(POD):
        return {"pod": resource[POD]}
    return next(({"container": resource[name]} for name in _CONTAINERS if resource.get(name)), {})


def _gpu(described: Described) -> str:
    """Return the GPU that ``hw.id`` names: by its number, else by the name itself; empty for other hardware."""
    attributes = {**described.resource, **described.attributes}
    hardware = described.name.startswith(_HARDWARE) and attributes.get("hw.type") == "gpu"
    if not (hardware or _IS_GPU.fullmatch(described.name)):
        return ""
    name = attributes.get(_HARDWARE_ID, "")
    numbered = _GPU.fullmatch(name)
    return f"gpu{int(numbered[1])}" if numbered else name if is_name(name) else ""


def _find_catalogued(described: Described, whose: ResourceOwner, project: str) -> Series | None:
    """Return the series of a metric with the catalogue's own name, unit and kind, if its owner is known; else None."""
    metric = CATALOG.get(described.name)
    if metric is None or not _is_same_unit(metric.unit, described.unit) or not _has_same_kind(metric.name, described):
        return None
    if not (whose.job if metric.scope is MetricScope.REPLICA else whose.node):
        return None
    if metric.scope is MetricScope.DEVICE and not whose.device:
        return None
    own = {name: value for name, value in described.attributes.items() if name not in OWN}
    return _series(metric.name, project, whose, _make_legal(own))


def _is_same_unit(unit: str, sent: str) -> bool:
    """Compare units. A plain number has no unit here and may have unit 1 in OpenTelemetry (UCUM)."""
    return sent == unit or (not unit and sent == "1")


def _make_external_series(described: Described, whose: ResourceOwner, project: str) -> Series:
    """Return the series under the metric's own name, below ``external.`` unless a program calls it ``app.<name>``."""
    name = _WRONG.sub("_", described.name)
    metric = name if name.startswith(_APP) else EXTERNAL + name
    return _series(metric, project, whose, _labels(described, whose.used))


def _series(metric: str, project: str, whose: ResourceOwner, found: tuple[tuple[str, str], ...]) -> Series:
    cluster, node, device, job, replica, attempt, _ = whose
    return Series(metric, project, cluster, node, device, job, replica, attempt, found)


def _labels(described: Described, used: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return the labels: data point attributes, identifying resource attributes (except ``used``), and the scope.

    The names follow
    https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/#metric-attributes
    """
    texts = {name: value for name, value in described.attributes.items() if name not in OWN}
    for name, value in described.resource.items():
        if name in used or _DESCRIPTIVE.fullmatch(name) or texts.get(name) == value:
            continue
        texts[_RESOURCE + name if name in texts else name] = value
    name, version, attributes = described.scope
    scope = {"name": name, "version": version, **attributes}
    texts.update({_SCOPE + key: value for key, value in scope.items() if value})
    return _make_legal(texts)


def _make_legal(texts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Rename attributes to legal label names. Values whose names become equal are joined, as Prometheus does."""
    found: dict[str, str] = {}
    for key in sorted(texts):
        name = _NOT_IN_LABELS.sub("_", _NAMED_HERE.get(key, key))
        if name[:1].isdigit():
            name = f"key_{name}"
        elif name[:1] == ".":
            name = f"_{name[1:]}"
        found[name] = f"{found[name]};{texts[key]}" if name in found else texts[key]
    return tuple(sorted(found.items()))

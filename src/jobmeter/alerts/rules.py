"""Prometheus' rule files: https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

from jobmeter.alerts.duration import read_duration
from jobmeter.alerts.template import Template, TemplateError, parse_template
from jobmeter.alerts.yaml_file import Field, load_file, load_text
from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.alert import ALERT_NAME
from jobmeter.model.time import MINUTE
from jobmeter.promql.nodes import NAME, Node, Subquery, Text, VectorSelector
from jobmeter.promql.parse import parse

MOST_RULES = 1_000
"""Most rules of a server."""
MOST_LABELS = 32
"""Most labels, and most annotations, of a rule."""
SHIPPED = "jobmeter.rules.yml"
"""Rules that are evaluated by default."""
_INTERVAL_MS = MINUTE
_SHORTEST_MS, _LONGEST_MS = 1_000, 86_400_000
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_GROUP_FIELDS = ("name", "interval", "limit", "labels", "rules")
_RULE_FIELDS = ("alert", "record", "expr", "for", "keep_firing_for", "labels", "annotations")
_NOT_IN_GROUPS = {
    "query_offset": "query_offset is not supported: samples are complete when a group is evaluated",
    "partial_response_strategy": "partial_response_strategy belongs to Thanos and is not supported",
}


class AlertRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: an alert, or with ``record`` the name of a new series. ``id`` is unique in the server."""

    id: str
    name: str
    record: bool
    query: str
    node: Node
    hold_ms: int = 0
    """Time for which the expression must return a series before its alert fires."""
    keep_ms: int = 0
    """Time for which an alert stays firing after its series is gone."""
    labels: dict[str, Template]
    annotations: dict[str, Template]
    texts: dict[str, dict[str, str]]
    """Labels and annotations as written."""


class RuleGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that are evaluated one after the other. ``limit`` bounds the series of each rule; 0 means the default."""

    name: str
    file: str
    interval_ms: int
    limit: int
    rules: tuple[AlertRule, ...]


def load_rules(paths: Sequence[str], *, shipped: bool = True) -> tuple[RuleGroup, ...]:
    """Read rule files, and before them the shipped rules. Raises ConfigurationError with file, line and field."""
    found = list(_read_shipped()) if shipped else []
    found += [group for path in paths for group in _groups(path, load_file(path))]
    count = sum(len(group.rules) for group in found)
    if count > MOST_RULES:
        raise ConfigurationError(f"the rule files have {count} rules; the limit is {MOST_RULES}")
    return tuple(found)


@cache
def _read_shipped() -> tuple[RuleGroup, ...]:
    return tuple(_groups(SHIPPED, load_text(SHIPPED, files("jobmeter.alerts").joinpath(SHIPPED).read_bytes())))


def _groups(file: str, content: Field) -> list[RuleGroup]:
    listed = content.read_fields(("groups",))
    found: list[RuleGroup] = []
    for entry in listed["groups"].read_items() if "groups" in listed else ():
        group = _group(file, entry)
        if any(other.name == group.name for other in found):
            entry.fail(f'the group "{group.name}" is defined twice in this file')
        found.append(group)
    return found


def _group(file: str, entry: Field) -> RuleGroup:
    fields = entry.read_fields(_GROUP_FIELDS, _NOT_IN_GROUPS)
    if "name" not in fields or not (name := fields["name"].read_text(200)):
        entry.fail("a group needs a name")
    interval = read_duration(fields["interval"]) if "interval" in fields else _INTERVAL_MS
    if not _SHORTEST_MS <= interval <= _LONGEST_MS:
        fields["interval"].fail("the interval must be from 1s to 1d")
    common = _templates(fields["labels"], labels=True) if "labels" in fields else {}
    common_texts = fields["labels"].read_texts(MOST_LABELS) if "labels" in fields else {}
    counts: Counter[str] = Counter()
    rules = []
    for one in fields["rules"].read_items() if "rules" in fields else ():
        rule = _rule(one, common, common_texts)
        counts[rule.name] += 1
        number = counts[rule.name]
        rules.append(msgspec.structs.replace(rule, id=f"{file}/{name}/{rule.name}" + (f"/{number}" * (number > 1))))
    limit = fields["limit"].read_number(0, 1_000_000) if "limit" in fields else 0
    return RuleGroup(name=name, file=file, interval_ms=interval, limit=limit, rules=tuple(rules))


def _rule(entry: Field, common: dict[str, Template], common_texts: dict[str, str]) -> AlertRule:
    fields = entry.read_fields(_RULE_FIELDS)
    if ("alert" in fields) == ("record" in fields):
        entry.fail("a rule needs either alert or record")
    record = "record" in fields
    named = fields["record" if record else "alert"]
    name = named.read_text(200)
    if not name or (record and not _METRIC.fullmatch(name)):
        named.fail(f"{name!r} is not a valid name")
    for only in ("for", "keep_firing_for", "annotations") if record else ():
        if only in fields:
            fields[only].fail(f"a recording rule has no {only}")
    if "expr" not in fields:
        entry.fail("a rule needs an expr")
    texts = {kind: fields[kind].read_texts(MOST_LABELS) if kind in fields else {} for kind in ("labels", "annotations")}
    labels = _templates(fields["labels"], labels=True, plain=record) if "labels" in fields else {}
    return AlertRule(
        id="",
        name=name,
        record=record,
        query=fields["expr"].read_text().strip(),
        node=_expression(fields["expr"]),
        hold_ms=read_duration(fields["for"]) if "for" in fields else 0,
        keep_ms=read_duration(fields["keep_firing_for"]) if "keep_firing_for" in fields else 0,
        labels=common | labels,
        annotations=_templates(fields["annotations"]) if "annotations" in fields else {},
        texts={**texts, "labels": common_texts | texts["labels"]},
    )


def _expression(field: Field) -> Node:
    try:
        node = parse(field.read_text())
    except InvalidRequestError as error:
        field.fail(error.message)
    if isinstance(node, Text | Subquery) or (isinstance(node, VectorSelector) and node.range_ms):
        field.fail("the expression must give a number for each series, not a range or a text")
    return node


def _templates(field: Field, *, labels: bool = False, plain: bool = False) -> dict[str, Template]:
    found: dict[str, Template] = {}
    pairs = list(field.read_pairs())
    if len(pairs) > MOST_LABELS:
        field.fail(f"it has {len(pairs)} entries; the limit is {MOST_LABELS}")
    for name, value in pairs:
        if not _LABEL.fullmatch(name) or (labels and name in {NAME, ALERT_NAME}):
            value.fail(f"{name!r} is not allowed as a name here")
        if plain:
            found[name] = Template((value.read_text(),))
            continue
        try:
            found[name] = parse_template(value.read_text())
        except TemplateError as error:
            value.fail(str(error))
    return found

"""Tests of the catalogue's integrity: existing sources of derivations, unique names, and plausible limits."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.catalog import (
    CATALOG,
    METRICS,
    Aggregate,
    Display,
    Kind,
    MetricGroup,
    MetricScope,
    NumberFormat,
    find,
    map_dialect_names,
)

REPLICA = {
    "cpu": ("usage", "limit", "utilization"),
    "memory": ("usage", "limit", "utilization"),
    "network": ("receive", "transmit"),
    "disk": ("read", "write"),
    "storage.ephemeral": ("usage", "limit", "utilization"),
    "storage.cache": ("usage", "limit", "utilization"),
}
DEVICE = (
    "utilization",
    "memory.usage",
    "memory.limit",
    "memory.utilization",
    "sm.active",
    "tensor.active",
    "dram.active",
    "power",
    "energy",
    "temperature",
)
CORE = [f"{prefix}.{name}" for prefix, own in REPLICA.items() for name in own]
CORE += [f"{prefix}.{name}" for prefix in ("gpu", "npu") for name in DEVICE]
COUNTERS = {"cpu.time", "network.receive", "network.transmit", "disk.read", "disk.write", "gpu.energy", "npu.energy"}
metrics = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


@pytest.mark.parametrize("name", CORE)
def test_the_core_names_are_there(name):
    assert find(name) is not None
    assert (CATALOG[name].kind is Kind.COUNTER) == (name in COUNTERS)


def test_names_are_unique():
    assert len(CATALOG) == len(METRICS)


@metrics
def test_every_row_is_whole(metric):
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9._:-]{0,199}", metric.name)
    assert metric.text.endswith(".")
    assert metric.minimum is None or metric.maximum is None or metric.minimum < metric.maximum
    if metric.unit == "1":
        # It is shown in percent, so a load of 4.2 would appear as 420 %.
        assert metric.kind is Kind.GAUGE
        assert metric.maximum is not None, "only a ratio has the unit 1; a plain number has none"
    if metric.kind is Kind.COUNTER:
        assert metric.answer_unit
        assert metric.minimum == 0.0
    if metric.over is Aggregate.RATIO:
        assert metric.ratio is not None
    if metric.ratio is not None:
        usage, limit = (CATALOG[name] for name in metric.ratio)
        assert usage.unit == limit.unit
        assert metric.unit == "1"
        assert {usage.scope, limit.scope} == {metric.scope}
    if metric.difference is not None:
        whole, rest = (CATALOG[name] for name in metric.difference)
        assert whole.unit == rest.unit == metric.unit
        assert whole.scope == rest.scope == metric.scope
    if metric.rate_of:
        counter = CATALOG[metric.rate_of]
        assert counter.kind is Kind.COUNTER
        assert counter.answer_unit == metric.answer_unit


@metrics
def test_a_ratio_and_a_plain_number_have_different_formats(metric):
    by_unit = {"1": NumberFormat.RATIO, "": NumberFormat.NUMBER}
    assert metric.format is by_unit.get(metric.answer_unit, NumberFormat.QUANTITY)


def test_a_load_and_a_flag_are_plain_numbers():
    numbers = ["node.load1", "gpu.state", "gpu.remapped.rows.pending", "agent.collect.success"]
    assert {CATALOG[name].format for name in numbers} == {NumberFormat.NUMBER}
    assert {CATALOG[name].format for name in ("cpu.utilization", "pressure.io")} == {NumberFormat.RATIO}


@metrics
def test_metrics_of_a_group_have_different_titles(metric):
    assert metric.title[0].isupper() or metric.title[0].isdigit()
    assert metric.title.strip() == metric.title
    beside = [one for one in METRICS if one.group is metric.group and one.views & (Display.FIRST | Display.CHART)]
    assert [one.name for one in beside if one.title == metric.title] in ([], [metric.name])
    if metric.group in {MetricGroup.NODE, MetricGroup.AGENT}:
        assert not metric.views & ~Display.NODE, "only metrics of jobs have charts of jobs"


def test_columns_have_different_headings():
    columns = [metric.column for metric in METRICS if metric.column]
    assert len(set(columns)) == len(columns)


@given(st.sampled_from(["app.", "external."]), st.from_regex(r"[a-z]{1,9}([._][a-z]{1,9}){0,3}", fullmatch=True))
def test_a_metric_of_a_program_is_titled_by_its_name(prefix, name):
    found = find(prefix + name)
    assert found is not None
    assert (found.group, found.format) == (MetricGroup.APPLICATION, NumberFormat.NUMBER)
    assert found.title.casefold() == name.replace(".", " ").replace("_", " ")


AMOUNTS = {
    "By", "By/s", "{core}", "W", "J", "{process}", "{thread}", "{error}", "{row}", "{file}", "{event}", "{operation}",
}  # fmt: skip


@metrics
def test_amounts_of_the_members_of_a_node_add_up(metric):
    if metric.scope not in {MetricScope.REPLICA, MetricScope.DEVICE} or metric.name.startswith(
        ("flink.", "storage.cache.")
    ):
        assert metric.on_node is None, "a node has one, or they share it"
    elif metric.name == "memory.peak":
        assert metric.on_node is Aggregate.MAX
    else:
        assert (metric.on_node is Aggregate.SUM) == (metric.unit in AMOUNTS or metric.name == "cpu.time")


def test_a_dialect_gives_each_of_its_names_once():
    for dialect in {dialect for metric in METRICS for dialect in metric.names}:
        named = [metric for metric in METRICS if dialect in metric.names]
        assert len(map_dialect_names(dialect)) == len(named)


def test_flink_has_the_vendor_s_forty_names():
    assert len([name for name in CATALOG if name.startswith("flink.")]) == 40


@given(st.text(max_size=20))
def test_only_open_prefixes_are_open(name):
    metric = find(name)
    if metric is not None and name not in CATALOG:
        assert name.startswith(("app.", "external."))
    opened = find(f"app.{name}")
    assert (opened is None) == (name.endswith(".") or not name)
    if opened is not None:
        assert (opened.kind, opened.scope, opened.minimum) == (Kind.GAUGE, MetricScope.REPLICA, None)

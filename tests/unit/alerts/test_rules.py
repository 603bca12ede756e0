"""Tests of Prometheus' rule files: accepted unchanged, or refused with line and field."""

import pytest

from jobmeter.alerts.duration import read_duration
from jobmeter.alerts.rules import MOST_RULES, load_rules
from jobmeter.alerts.yaml_file import load_text
from jobmeter.errors import ConfigurationError

GOOD = """
groups:
  - name: node
    interval: 30s
    limit: 10
    labels: {team: infra}
    rules:
      - record: instance:cpu:rate5m
        expr: rate(node_cpu_seconds_total[5m])
        labels: {level: instance}
      - alert: High
        expr: instance:cpu:rate5m > 0.9
        for: 1h30m
        keep_firing_for: 5m
        labels: {severity: page}
        annotations:
          summary: "{{ $labels.instance }} is at {{ $value | humanizePercentage }}"
      - alert: High
        expr: instance:cpu:rate5m > 0.95
"""


def load(tmp_path, text):
    path = tmp_path / "rules.yml"
    path.write_text(text)
    return load_rules([str(path)], shipped=False)


def test_a_file_is_read(tmp_path):
    (group,) = load(tmp_path, GOOD)
    record, high, higher = group.rules
    assert (group.name, group.interval_ms, group.limit) == ("node", 30_000, 10)
    assert (record.record, record.name, set(record.labels)) == (True, "instance:cpu:rate5m", {"team", "level"})
    assert (high.hold_ms, high.keep_ms) == (5_400_000, 300_000)
    assert high.labels["severity"].render({}, 1) == "page"
    assert high.texts["labels"] == {"team": "infra", "severity": "page"}
    assert high.annotations["summary"].render({"instance": "a"}, 0.97) == "a is at 97%"
    assert len({record.id, high.id, higher.id}) == 3


def test_the_shipped_rules_are_read():
    names = [rule.name for group in load_rules([]) for rule in group.rules]
    assert {"JobFailed", "JobOutOfMemory", "CriticalFinding", "GpuIdle", "GpuIdleLong"} < set(names)
    assert {"GpuMissing", "NodeDown", "AgentGap", "ServerDiskFull"} < set(names)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("groups: 1", ":1: groups: a list is needed"),
        ("group: []", ":1: group: this field is unknown"),
        ("groups:\n- rules: []", ":2: groups[0]: a group needs a name"),
        ("groups:\n- name: a\n- name: a", ':3: groups[1]: the group "a" is defined twice'),
        ("groups:\n- name: a\n  interval: 5x", ":3: groups[0].interval: '5x' is not a duration"),
        ("groups:\n- name: a\n  interval: 0s", ":3: groups[0].interval: the interval must be from"),
        ("groups:\n- name: a\n  rules:\n  - expr: up", ":4: groups[0].rules[0]: a rule needs either alert or record"),
        ("groups:\n- name: a\n  rules:\n  - alert: A", ":4: groups[0].rules[0]: a rule needs an expr"),
        ("groups:\n- name: a\n  rules:\n  - alert: A\n    expr: up >", ":5: groups[0].rules[0].expr: parse error"),
        ("groups:\n- name: a\n  rules:\n  - alert: A\n    expr: up[5m]", ":5: groups[0].rules[0].expr: the expression"),
        ("groups:\n- name: a\n  rules:\n  - record: a-b\n    expr: up", ":4: groups[0].rules[0].record: 'a-b' is not"),
        ("groups:\n- name: a\n  rules:\n  - record: b\n    expr: up\n    for: 5m", ":6: groups[0].rules[0].for: a rec"),
        ("groups:\n- name: a\n  rules:\n  - alert: A\n    expr: up\n    fro: 5m", ":6: groups[0].rules[0].fro: this f"),
        ("groups:\n- name: a\n  rules:\n  - alert: A\n    expr: up\n    expr: up", ":6: groups[0].rules[0].expr: this"),
        (
            "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: up\n    labels: {a-b: c}",
            ":6: groups[0].rules[0].labels.a-b: 'a-b' is not allowed",
        ),
        (
            "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: up\n    annotations:\n      s: '{{ if 1 }}'",
            ":7: groups[0].rules[0].annotations.s: {{ if }} is not supported",
        ),
        ("groups: [", "it is not valid YAML"),
        ("a: &a [*a]", "it has more than 200000 values"),
        ("groups: &a [" + "[" * 500, "it is not valid YAML"),
    ],
)
def test_errors_name_line_and_field(tmp_path, text, problem):
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, text)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "rules.yml"))


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.yml: it cannot be read"):
        load_rules([str(tmp_path / "none.yml")])


def test_the_number_of_rules_is_limited(tmp_path):
    rules = "".join(f"\n  - {{alert: A{number}, expr: up}}" for number in range(MOST_RULES + 1))
    with pytest.raises(ConfigurationError, match=f"the limit is {MOST_RULES}"):
        load(tmp_path, "groups:\n- name: a\n  rules:" + rules)


@pytest.mark.parametrize(("text", "length"), [("1d2h", 93_600_000), ("500ms", 500), ("0", 0), ("1w", 604_800_000)])
def test_durations(text, length):
    assert read_duration(load_text("x", text.encode())) == length


@pytest.mark.parametrize("text", ["", "5", "m", "5m1h", "-5m", "1.5h", "9999999y"])
def test_texts_that_are_no_durations(text):
    with pytest.raises(ConfigurationError):
        read_duration(load_text("x", f"'{text}'".encode()))

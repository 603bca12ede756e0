"""Tests of the templates of labels and annotations."""

import json
import math
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.needs import needs

from jobmeter.alerts.go_text import humanize, humanize_1024, humanize_duration, humanize_percentage, humanize_timestamp
from jobmeter.alerts.template import MOST_RENDERED, TemplateError, parse_template

LABELS = {"job_id": "train-1", "node": "n1", "empty": ""}
TEXTS = [
    "plain {text}",
    "{{ $labels.job_id }} on {{ .Labels.node }}",
    "{{$value}} {{ .Value }}",
    '{{ $labels.missing }}|{{ index $labels "node" }}',
    "a {{- $labels.node -}} b",
    "{{/* a comment */}}x",
    "{{ $value | humanize }} {{ humanize $value }}",
    "{{ $value | humanize1024 }}B",
    "{{ $value | humanizeDuration }}",
    "{{ $value | humanizePercentage }}",
    '{{ printf "%.2f|%8.1f|%-8.1f|%e|%g|%08.3f|%+.1f" $value $value $value $value $value $value $value }}',
    '{{ printf "%s|%10s|%-10s|%q" $labels.job_id $labels.node $labels.node $labels.node }}',
    '{{ printf "%v|%.3s" $value $labels.job_id }}',
    '{{ printf "%d|%5d|%x|100%%" 42 42 255 }}',
    "{{ $labels.job_id | toUpper | toLower | title }}",
    '{{ printf "%.1f" $value | printf "<%s>" }}',
    "{{ ($value) | humanize }}",
    "{{ `raw \\n` }}",
]
VALUES = [
    0.0,
    1.0,
    -1.0,
    0.25,
    12.345678,
    999.0,
    1000.0,
    123456.0,
    1234567.0,
    1e15,
    1.5e-7,
    3600.0,
    93784.5,
    -61.0,
    0.0001,
]


def test_texts_agree_with_prometheus(tmp_path):
    """Render each template for each value with promtool, and compare."""
    needs("promtool")
    rules = [
        {
            "alert": f"T{number}V{place}",
            "expr": f"up * 0 + {value!r}",
            "annotations": {"text": text},
        }
        for number, text in enumerate(TEXTS)
        for place, value in enumerate(VALUES)
    ]
    expected = [
        {
            "eval_time": "0m",
            "alertname": f"T{number}V{place}",
            "exp_alerts": [
                {
                    "exp_labels": {k: v for k, v in LABELS.items() if v},
                    "exp_annotations": {"text": parse_template(text).render(LABELS, value)},
                }
            ],
        }
        for number, text in enumerate(TEXTS)
        for place, value in enumerate(VALUES)
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    series = {"series": 'up{job_id="train-1",node="n1"}', "values": "1"}
    tests = {"interval": "1m", "input_series": [series], "alert_rule_test": expected}
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [tests]}))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ if $value }}x{{ end }}", "if }} is not supported"),
        ('{{ with query "up" }}x{{ end }}', "does not run queries"),
        ('{{ range query "up" }}x{{ end }}', "does not run queries"),
        ("{{ with $labels.x }}x{{ end }}", "with }} is not supported"),
        ('{{ template "x" }}', "not supported"),
        ('{{ define "x" }}', "not supported"),
        ('{{ query "up" | first | value }}', "does not run queries"),
        ("{{ $externalURL }}", "$externalURL is unknown"),
        ("{{ $value", "not closed"),
        ("{{ humanize }}", "one argument"),
        ("{{ humanize $value $value }}", "one argument"),
        ('{{ exec "rm" }}', "exec is not known"),
        ("{{ $value $value }}", "form that is not supported"),
        ("{{ }}", "form that is not supported"),
        ("{{ printf }}", "needs a format"),
        ("{{ (humanize $value }}", "bracket"),
        ("{{ " + "(" * 30 + "1" + ")" * 30 + " }}", "brackets"),
        ("{{ $value := 1 }}", "form that is not supported"),
        ("{{ $value" + " | toLower" * 3_000 + " }}", "pipes"),
        ("{{ humanize 9223372036854775808 }}", "64 bits"),
        ("{{ humanize -" + "9" * 10_000 + " }}", "64 bits"),
    ],
)
def test_other_forms_are_refused(text, problem):
    with pytest.raises(TemplateError, match=problem.replace("$", r"\$").replace("}", r"\}")):
        parse_template(text)


@given(st.text(max_size=60), st.text(max_size=20), st.floats())
def test_any_text_is_parsed_or_refused(text, label, value):
    try:
        found = parse_template("{{ " + text + " }}").render({"x": label}, value)
    except TemplateError:
        return
    assert len(found) <= MOST_RENDERED


def test_the_greatest_whole_numbers_are_rendered():
    assert parse_template("{{ -9223372036854775808 | humanize }}").render({}, 0.0) == "-9.223E"


@given(st.floats())
def test_each_number_has_a_form(value):
    for formatter in (humanize, humanize_1024, humanize_duration, humanize_percentage, humanize_timestamp):
        assert formatter(value)
    assert parse_template("{{ $value }}").render({}, value)
    if math.isfinite(value):
        assert float(parse_template("{{ $value }}").render({}, value)) == value


def test_labels_are_no_templates():
    assert parse_template("{{ $labels.x }}").render({"x": "{{ $value }}"}, 1.0) == "{{ $value }}"

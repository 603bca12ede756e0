"""Tests of the alerts and the dashboard about servers in deploy/: their metrics exist, and their tools accept them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jobmeter.alerts.rules import load_rules
from jobmeter.model.answers import SchedulerStatus
from jobmeter.model.time import SystemClock
from jobmeter.server.figures import iterate_scheduler_metrics, store_metrics
from jobmeter.server.telemetry import Telemetry
from jobmeter.store.base import StoreStatistics

PROMTOOL = shutil.which("promtool") or ""
DEPLOY = Path(__file__).parents[3] / "deploy"
RULES, DASHBOARD = DEPLOY / "prometheus/jobmeter-server.yaml", DEPLOY / "grafana/jobmeter-server.json"
_NAME = re.compile(r"\b((?:jobmeter|process)_\w+|up)\b(?=[\[{, )]|$)")


def expressions():
    """Yield every expression of the rules and the dashboard, with its place."""
    for group in load_rules([str(RULES)], shipped=False):
        yield from ((rule.name, rule.query) for rule in group.rules)
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


@pytest.fixture
def exported(server):
    """Return the names of the metrics of a server, including those that only some servers have."""
    others = Telemetry(SystemClock())
    journal = dict.fromkeys(("rows", "bytes", "flushes", "failures"), 1)
    others.register(lambda: store_metrics(StoreStatistics(rows={}, bytes={}, journal=journal)))
    others.register(lambda: iterate_scheduler_metrics([SchedulerStatus(kind="slurm")]))
    text = server.raw("GET", "/metrics").body.decode() + others.render().decode()
    families = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    return {f"{name}_bucket" if kind == "histogram" else name for name, kind in families}


def test_every_metric_that_alerts_and_dashboard_read_is_exported(exported):
    # Prometheus itself writes the metric up.
    read = {name for _, text in expressions() for name in _NAME.findall(text)} - {"up"}
    assert len(read) > 20
    assert sorted(read - exported) == []


def test_labels_that_alerts_compare_are_those_of_a_scrape(server):
    """An alert on a label that no series has would never fire."""
    assert server.call("GET", "/jobs").status == 200
    scraped = set(re.findall(r'[{,](\w+)="', server.raw("GET", "/metrics").body.decode()))
    scraped |= {"job", "instance"}
    compared = {name for _, text in expressions() for name in re.findall(r"[{,]\s*(\w+)(?==|!=|=~)", text)}
    assert compared <= scraped | {"reason"}


def test_panels_do_not_overlap():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    cells = [
        (column, row)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian: apt-get install prometheus)")
def test_promtool_accepts_the_alerts():
    checked = subprocess.run([PROMTOOL, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_process_is_measured_by_the_standard_names(server):
    text = server.raw("GET", "/metrics").body.decode()
    found = dict(re.findall(r"^(process_\w+) (\S+)$", text, re.MULTILINE))
    assert set(found) == {
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }
    assert float(found["process_resident_memory_bytes"]) > 2**20
    assert 0 < float(found["process_open_fds"]) <= float(found["process_max_fds"])

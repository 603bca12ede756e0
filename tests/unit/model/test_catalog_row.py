"""Tests that a single catalogue row makes a metric visible to people everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROW = """    _metric(
        "cpu.frequency",
        "Hz",
        "Clock of the cores that the replica uses.",
        title="Clock of the cores",
        phrase="clock of its cores",
        column="Clock",
        views=Display.FIRST | Display.RANKS | Display.CORE,
    ),
"""
PROGRAM = """
import json, runpy, sys
from click.testing import CliRunner
from jobmeter.cli.main import cli
from jobmeter.cli.resource_columns import COLUMNS
from jobmeter.diagnose.wording import find_title
from jobmeter.query.defaults import CORE_METRICS, SUMMARY_METRICS
from jobmeter.server.native.router import ENDPOINTS
import msgspec

docs = runpy.run_path("docs/generate.py")
endpoint = msgspec.to_builtins(next(one for one in ENDPOINTS if one.name == "getCatalog").work(None))
print(json.dumps({
    "terminal": CliRunner().invoke(cli, ["catalog"], env={"COLUMNS": "300"}).stdout,
    "entry": json.loads(CliRunner().invoke(cli, ["catalog", "--metric", "cpu.frequency", "--json"]).stdout),
    "columns": COLUMNS,
    "sentence": find_title("cpu.frequency"),
    "defaults": [CORE_METRICS, SUMMARY_METRICS],
    "endpoint": endpoint["metrics"],
    "reference": docs["catalog_page"](),
    "page": json.loads(docs["page_catalog"]()),
}))
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return the outputs of a copy of the program whose catalogue has one more row."""
    copy = tmp_path_factory.mktemp("source") / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "page"))
    rows = copy / "jobmeter" / "model" / "catalog" / "replica.py"
    before, end = rows.read_text().rsplit(")", 1)
    rows.write_text(f"{before}{ROW}){end}")
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def named(rows):
    return next(row for row in rows if row["name"] == "cpu.frequency")


def test_the_terminal_has_the_new_metric_with_its_title(outputs):
    line = next(line for line in outputs["terminal"].splitlines() if line.startswith("cpu.frequency "))
    assert "Clock of the cores" in line
    assert outputs["entry"][0]["title"] == "Clock of the cores"
    assert ["clock", "cpu.frequency"] in outputs["columns"]


def test_the_endpoint_has_it_with_title_group_and_format(outputs):
    row = named(outputs["endpoint"])
    assert (row["title"], row["group"], row["format"], row["unit"]) == ("Clock of the cores", "cpu", "quantity", "Hz")


def test_the_page_has_it_in_its_group_and_places(outputs):
    assert named(outputs["page"]["metrics"]) == {
        "name": "cpu.frequency",
        "title": "Clock of the cores",
        "group": "cpu",
        "unit": "Hz",
        "column": "Clock",
        "views": ["first", "ranks", "core"],
    }


def test_questions_sentences_and_the_reference_have_it(outputs):
    assert all("cpu.frequency" in names for names in outputs["defaults"])
    assert outputs["sentence"] == "clock of its cores"
    assert "| `cpu.frequency` | Clock of the cores | Hz |" in outputs["reference"]

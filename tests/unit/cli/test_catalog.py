import json

from click.testing import CliRunner

from jobmeter.cli.main import cli
from jobmeter.model import catalog


def test_json_has_every_metric_with_its_names():
    result = CliRunner().invoke(cli, ["catalog", "--json"])
    listed = {entry["name"]: entry for entry in json.loads(result.stdout)}
    assert list(listed) == [metric.name for metric in catalog.METRICS]
    assert listed["gpu.utilization"]["names"]["pai-dlc"] == "GpuCoreUsage"
    assert listed["network.receive"]["read_unit"] == "By/s"
    assert listed["cpu.utilization"]["ratio"] == ["cpu.usage", "cpu.limit"]


def test_the_table_names_every_metric():
    text = CliRunner().invoke(cli, ["catalog"]).stdout
    for metric in catalog.METRICS:
        assert metric.name in text


def test_one_metric_in_full():
    text = CliRunner().invoke(cli, ["catalog", "--metric", "memory.utilization"]).stdout
    assert "memory.usage / memory.limit" in text
    assert "in pai-dlc" in text
    assert "from -0.05 to 1.5" in text


def test_an_open_name_is_found():
    assert "Reported by a program." in CliRunner().invoke(cli, ["catalog", "--metric", "app.loss"]).stdout


def test_an_unknown_name_suggests_others():
    result = CliRunner().invoke(cli, ["catalog", "--metric", "utilization"])
    assert "did you mean" in str(result.exception)

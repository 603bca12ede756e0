"""Tests of the comparison with nvidia-smi, over the fake library and a fake nvidia-smi."""

import json

import pytest
from tests.gpu_check import FIELDS, check

SAID = {
    "memory.total": 139 * 1024,
    "memory.used": 60 * 1024 + 10,
    "power.draw": 440.2,
    "enforced.power.limit": 700,
    "temperature.gpu": 60,
    "temperature.memory": "[N/A]",
    "clocks.sm": 1965,
    "clocks.mem": 3201,
    "clocks.max.sm": 1980,
    "utilization.gpu": 80,
    "pcie.link.gen.current": 5,
    "pcie.link.width.current": 16,
    "ecc.errors.uncorrected.volatile.total": 0,
    "ecc.errors.corrected.volatile.total": 2,
    "pstate": "P0",
    "fan.speed": 30,
    "utilization.memory": 41,
    "utilization.encoder": 0,
    "utilization.decoder": 0,
    "pcie.link.gen.max": 5,
    "pcie.link.width.max": 16,
    "ecc.errors.uncorrected.volatile.sram": 3,
    "ecc.errors.corrected.volatile.sram": 3,
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "No",
    "retired_pages.single_bit_ecc.count": "[N/A]",
    "retired_pages.double_bit.count": "[N/A]",
    "retired_pages.pending": "[N/A]",
    "remapped_rows.correctable": 1,
    "remapped_rows.uncorrectable": 0,
    "remapped_rows.pending": "No",
    "remapped_rows.failure": "No",
    "remapped_rows.histogram.max": 382,
    "remapped_rows.histogram.high": 1,
    "remapped_rows.histogram.partial": 1,
    "remapped_rows.histogram.low": 0,
    "remapped_rows.histogram.none": 0,
    "temperature.gpu.tlimit": 26,
    "gpu_recovery_action": "None",
    "fabric.state": "Completed",
    "clocks_event_reasons_counters.sw_power_cap": 2_000_000,
    **{
        f"clocks_event_reasons_counters.{name}": "[N/A]"
        for name in ("sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
    },
}
"""Fields of an H200 as nvidia-smi prints them."""
TOOL = """#!/bin/sh
case "$1" in
--help-query-gpu) printf '"%s"\\n' {names} ;;
--query-gpu=uuid,{fields}) echo '{row}' ;;
--query-compute-apps=*) printf '{apps}' ;;
*) echo "Field is not a valid field to query."; exit 2 ;;
esac
"""


@pytest.fixture
def tool(tmp_path, make_driver):
    driver = make_driver(1)
    driver.install()
    driver.devices[0].run((7, 2**30))

    def made(lacks=(), apps="{uuid}, 7", **changed):
        uuid = driver.devices[0].uuid
        given = {name: value for name, value in {**SAID, **changed}.items() if name not in lacks}
        fields = [one.field for one in FIELDS if one.field in given]
        row = ", ".join([uuid, *(str(given[name]) for name in fields)])
        path = tmp_path / "nvidia-smi"
        form = {"names": " ".join(given), "fields": ",".join(fields), "row": row, "apps": apps.format(uuid=uuid)}
        path.write_text(TOOL.format(**form))
        path.chmod(0o755)
        return str(path)

    return made


def test_every_field_is_in_the_table_of_the_test():
    assert {one.field for one in FIELDS} - {"compute-apps"} == {*SAID}


def test_readings_that_agree(tool, tmp_path, capsys):
    assert check(tool(), 0.0, "true", tmp_path / "r.json") == 0
    printed = capsys.readouterr().out
    assert "1 GPUs, 36 readings compared, 0 differ" in printed
    assert "gpu.energy" in printed
    recorded = json.loads((tmp_path / "r.json").read_text())
    assert recorded["readings"][0]["gpu.temperature gpu0"] == 61


def test_fields_that_a_version_lacks_are_left_out(tool, tmp_path, capsys):
    lacks = ("fabric.state", "gpu_recovery_action")
    assert check(tool(lacks), 0.0, "", tmp_path / "r.json") == 0
    assert "1 GPUs, 35 readings compared, 0 differ" in capsys.readouterr().out


def test_a_process_that_nvidia_smi_alone_lists_differs(tool, tmp_path, capsys):
    assert check(tool(apps="{uuid}, 7\\n{uuid}, 8\\n"), 0.0, "", tmp_path / "r.json") == 1
    assert "gpu0 gpu.processes: 1, nvidia-smi's compute-apps says 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "value"),
    [("pcie.link.width.current", 8), ("temperature.gpu", 75), ("power.draw", 90), ("remapped_rows.histogram.max", 381)],
)
def test_a_reading_that_differs(tool, tmp_path, capsys, field, value):
    assert check(tool(**{field: value}), 0.0, "", tmp_path / "r.json") == 1
    assert f"nvidia-smi's {field} says {value}" in capsys.readouterr().out


def test_a_machine_without_a_gpu(tmp_path, capsys):
    assert check(None, 0.0, "", tmp_path / "r.json") == 2
    assert "Run this on a machine with an NVIDIA GPU" in capsys.readouterr().out
    failing = tmp_path / "nvidia-smi"
    failing.write_text("#!/bin/sh\necho 'no devices were found'\nexit 6\n")
    failing.chmod(0o755)
    assert check(str(failing), 0.0, "", tmp_path / "r.json") == 2
    assert "Nothing was compared: nvidia-smi failed: no devices" in capsys.readouterr().out

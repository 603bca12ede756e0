"""Comparison of readings with nvidia-smi: over the fake library, and a fake nvidia-smi."""

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
}


@pytest.fixture
def tool(tmp_path, make_driver):
    make_driver(1).install()

    def made(**changed):
        row = ", ".join(str({**SAID, **changed}[one.field]) for one in FIELDS)
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\necho '{row}'\n")
        path.chmod(0o755)
        return str(path)

    return made


def test_readings_that_agree(tool, tmp_path, capsys):
    assert check(tool(), 0.0, "true", tmp_path / "r.json") == 0
    assert "1 GPUs, 13 readings compared, 0 differ" in capsys.readouterr().out
    recorded = json.loads((tmp_path / "r.json").read_text())
    assert recorded["readings"][0]["gpu.temperature gpu0"] == 61


@pytest.mark.parametrize(
    ("field", "value"), [("pcie.link.width.current", 8), ("temperature.gpu", 75), ("power.draw", 90)]
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

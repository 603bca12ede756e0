"""Golden tests of the NVIDIA collector: recorded outputs of nvidia-smi, replayed by the fake NVML and collected.

``nvidia-smi.json`` holds the recordings with sources and licence. ``nvidia-smi.expected.json`` holds the collected
values of each recording. After an intended change ``python -m tests.unit.collect.accelerators.nvidia.test_recordings``
writes the outputs again; read the difference.
"""

import json
import re
import tempfile
from pathlib import Path

import pytest
from tests.gpu_check import FIELDS, PROCESSES, WORDS, number_of
from tests.support.nvml import Call, FakeNvml
from tests.unit.collect.gpus import Bench

FOLDER = Path(__file__).parents[2] / "recorded"
RECORDED = json.loads((FOLDER / "nvidia-smi.json").read_text())["recordings"]
EXPECTED = FOLDER / "nvidia-smi.expected.json"
NOT_SUPPORTED = 3
MIB = 2**20
SETTINGS: dict[Call, dict[str, tuple[str, ...]]] = {
    Call.UTILIZATION: {"utilization": ("utilization.gpu", "utilization.memory")},
    Call.ENCODER: {"encoder": ("utilization.encoder",)},
    Call.DECODER: {"decoder": ("utilization.decoder",)},
    Call.MEMORY_V2: {"total": ("memory.total",), "used": ("memory.used",)},
    Call.POWER: {"power": ("power.draw",)},
    Call.POWER_LIMIT: {"power_limit": ("enforced.power.limit",)},
    Call.TEMPERATURE: {"temperature": ("temperature.gpu",)},
    Call.MARGIN: {"margin": ("temperature.gpu.tlimit",)},
    Call.CLOCK: {"clock": ("clocks.sm", "clocks.mem")},
    Call.MAX_CLOCK: {"max_clock": ("clocks.max.sm",)},
    Call.P_STATE: {"p_state": ("pstate",)},
    Call.FAN: {"fan": ("fan.speed",)},
    Call.ECC: {"ecc": ("ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total")},
    Call.SRAM: {
        "sram": (
            "ecc.errors.corrected.volatile.sram",
            "ecc.errors.uncorrected.volatile.sram.parity",
            "ecc.errors.uncorrected.volatile.sram.secded",
            "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
        )
    },
    Call.REMAPPED: {
        "remapped": tuple(f"remapped_rows.{name}" for name in ("correctable", "uncorrectable", "pending", "failure"))
    },
    Call.SPARE_ROWS: {
        "spare": tuple(f"remapped_rows.histogram.{name}" for name in ("max", "high", "partial", "low", "none"))
    },
    Call.LINK: {"link": ("pcie.link.gen.current", "pcie.link.width.current")},
    Call.MAX_LINK: {"max_link": ("pcie.link.gen.max", "pcie.link.width.max")},
    Call.FABRIC: {"fabric": ("fabric.state",)},
}
"""For each call of NVML: the fake's fields, and the columns of nvidia-smi with their values."""
SCALES = {"memory": MIB, "power": 1_000, "enforced": 1_000}
"""NVML units per unit of nvidia-smi, by the first word of the column."""
FIELD_NUMBERS = {
    74: "clocks_event_reasons_counters.sw_power_cap",
    76: "clocks_event_reasons_counters.sync_boost",
    269: "clocks_event_reasons_counters.sw_thermal_slowdown",
    270: "clocks_event_reasons_counters.hw_thermal_slowdown",
    271: "clocks_event_reasons_counters.hw_power_brake_slowdown",
    82: "temperature.memory",
    29: "retired_pages.single_bit_ecc.count",
    30: "retired_pages.double_bit.count",
    31: "retired_pages.pending",
    230: "gpu_recovery_action",
}
PLAIN = (29, 30, 31, 82, 230)
"""Fields that nvidia-smi prints in NVML's unit."""
NOT_RECORDED = (Call.ENERGY, Call.REPLAYS, Call.SAMPLED, Call.LINK_STATE, Call.PROCESS_UTILIZATION)


def number(row, column):
    """Return the number in a column, in NVML's unit; None if the GPU does not report the value."""
    text = row.get(column, "")
    if text in WORDS:
        return int(WORDS[text])
    found = re.match(r"P?(-?\d+(?:\.\d+)?)", text)
    return round(float(found[1]) * SCALES.get(column.partition(".")[0], 1)) if found else None


def prepare(device, recording):
    """Set a GPU of the fake library to the recorded values."""
    row = recording["row"]
    device.set(
        name=row["name"], pci=row.get("pci.bus_id", "00000000:01:00.0"), uuid=row["uuid"], serial=row.get("serial", "")
    )
    device.set(gpm_supported=0, reserved=0)
    device.fail(NOT_SUPPORTED, *NOT_RECORDED)
    for call, members in SETTINGS.items():
        values = {name: tuple(number(row, column) for column in columns) for name, columns in members.items()}
        if None in [value for each in values.values() for value in each]:
            device.fail(NOT_SUPPORTED, call)
        else:
            device.set(**{name: each if len(each) > 1 else each[0] for name, each in values.items()})
    fields = {
        (field, 0): value * (1 if field in PLAIN else 1_000)  # nvidia-smi prints microseconds, NVML has nanoseconds
        for field, column in FIELD_NUMBERS.items()
        if (value := number(row, column)) is not None
    }
    device.set_fields(fields)
    instances = recording["instances"]
    if instances:
        slices = [int(name.partition("g.")[0][-1]) for _, _, name, _, _ in instances]
        device.split(*[(one[0], one[1], of) for one, of in zip(instances, slices, strict=True)])
        device.hold(*[(used * MIB, total * MIB) for *_, used, total in instances])
    device.run(*[(pid, used * MIB) for pid, used, _ in recording["processes"]])
    groups = [group for group, *_ in instances]
    device.run_in(*[groups.index(group) for _, _, group in recording["processes"] if group is not None])


def measured(driver, recording):
    """Return the collected values of the recorded GPU, by device and metric."""
    prepare(driver.devices[0], recording)
    look = Bench(driver).look()
    found: dict[str, dict[str, float]] = {}
    for (metric, device, _, _), value in sorted(look.items()):
        found.setdefault(device, {})[metric] = round(value, 6)
    return found


@pytest.fixture
def gpu(make_driver):
    driver = make_driver(1)
    driver.install()
    return driver


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_gpu_gives_its_golden_output(gpu, name):
    found = measured(gpu, RECORDED[name])
    assert found == json.loads(EXPECTED.read_text())[name]
    whole, row = found["gpu0"], RECORDED[name]["row"]
    for one in FIELDS:  # the comparison with nvidia-smi that a real machine runs, without tolerances
        shown = number_of(re.sub(r"(?<=\d) \S+$", "", row.get(one.field, "")))
        if one.field == PROCESSES:
            continue
        if shown is None:
            assert one.metric not in whole, one.field
        elif one.metric in whole:
            assert whole[one.metric] == pytest.approx(shown * one.scale), one.field
    processes = sum(values.get("gpu.processes", 0) for values in found.values())
    assert processes == len(RECORDED[name]["processes"])
    assert set(found) == {"gpu0", *instances_of(RECORDED[name])}


def instances_of(recording):
    """Return the names of the MIG instances by nvidia-smi's numbers."""
    return {f"gpu0:{group}{f':{place}' if place else ''}" for group, place, *_ in recording["instances"]}


def test_the_recordings_have_every_kind_of_gpu():
    kinds = {name.rpartition(" ")[0] or name for name in RECORDED}
    assert len(kinds) == 20
    assert sum(bool(one["instances"]) for one in RECORDED.values()) == 5
    assert {len(one["instances"]) for one in RECORDED.values()} == {0, 4, 5}


if __name__ == "__main__":
    import os

    outputs = {}
    for recorded, one in RECORDED.items():
        with tempfile.TemporaryDirectory() as folder:
            fake = FakeNvml(Path(folder), 1)
            os.environ.update(fake.environment)
            fake.install()
            outputs[recorded] = measured(fake, one)
            fake.close()
    EXPECTED.write_text(json.dumps(outputs, indent=1) + "\n")

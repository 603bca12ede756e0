"""Golden tests of the AMD collector: recorded outputs of rocm-smi, turned into the driver's files and collected.

``rocm-smi.json`` holds the recordings with source and licence. ``rocm-smi.expected.json`` holds the collected values of
each recording. After an intended change ``python -m tests.unit.collect.accelerators.amd.test_recordings`` writes the
outputs again; read the difference.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.unit.collect.accelerators.amd.test_amd import AmdNode
from tests.unit.collect.trees import plant

FOLDER = Path(__file__).parents[2] / "recorded"
RECORDED = json.loads((FOLDER / "rocm-smi.json").read_text())["recordings"]
EXPECTED = FOLDER / "rocm-smi.expected.json"
VALUES = {
    "GPU use (%)": ("gpu_busy_percent", 1, "gpu.utilization", 0.01),
    "GPU memory use (%)": ("mem_busy_percent", 1, "gpu.memory.copy.utilization", 0.01),
    "GPU Memory Read/Write Activity (%)": ("mem_busy_percent", 1, "gpu.memory.copy.utilization", 0.01),
    "VRAM Total Memory (B)": ("mem_info_vram_total", 1, "gpu.memory.limit", 1),
    "VRAM Total Used Memory (B)": ("mem_info_vram_used", 1, "gpu.memory.usage", 1),
    "PCIe Replay Count": ("pcie_replay_count", 1, "gpu.pcie.replay", 1),
    "Temperature (Sensor edge) (C)": ("hwmon/hwmon1/temp1_input", 1_000, "gpu.temperature", 1),
    "Temperature (Sensor junction) (C)": ("hwmon/hwmon1/temp2_input", 1_000, "gpu.temperature.hotspot", 1),
    "Temperature (Sensor memory) (C)": ("hwmon/hwmon1/temp3_input", 1_000, "gpu.temperature.memory", 1),
    "sclk clock speed:": ("hwmon/hwmon1/freq1_input", 10**6, "gpu.clock.sm", 10**6),
    "mclk clock speed:": ("hwmon/hwmon1/freq2_input", 10**6, "gpu.clock.memory", 10**6),
    "Average Graphics Package Power (W)": ("hwmon/hwmon1/power1_average", 10**6, "gpu.power", 1),
    "Max Graphics Package Power (W)": ("hwmon/hwmon1/power1_cap", 10**6, "gpu.power.limit", 1),
}
"""For each value of rocm-smi: file, file units per unit of rocm-smi, metric, and metric units per unit of rocm-smi."""
LABELS = {"temp1": "edge", "temp2": "junction", "temp3": "mem", "freq1": "sclk", "freq2": "mclk"}


def number(card, name):
    """Return the number in a recorded value; None if the card does not report the value."""
    found = re.match(r"\(?(\d+(?:\.\d+)?)(?:Mhz\))?$", card.get(name, ""))
    return float(found[1]) if found else None


def files_of(card):
    """Return the files of a card in its folder."""
    found = {"vendor": "0x1002", "device": card.get("GPU ID") or card.get("Device ID", "")}
    found["uevent"] = f"DRIVER=amdgpu\nPCI_SLOT_NAME={card['PCI Bus'].lower()}\n"
    unique, serial = card.get("Unique ID", "N/A"), card.get("Serial Number", "N/A")
    found["unique_id"] = "" if unique == "N/A" else f"{int(unique, 16):016x}\n"
    found["serial_number"] = "" if serial in {"N/A", "0"} else f"{serial}\n"
    for name, (file, scale, *_) in VALUES.items():
        if (value := number(card, name)) is not None:
            found[file] = f"{round(value * scale)}\n"
            sensor = re.fullmatch(r"(hwmon/hwmon1/(\w+\d))_input", file)
            found |= {f"{sensor[1]}_label": f"{LABELS[sensor[2]]}\n"} if sensor else {}
    if link := re.search(r"\(([\d.]+)GT/s x(\d+)\)", card.get("pcie clock level", "")):
        found |= {"current_link_speed": f"{link[1]} GT/s PCIe\n", "current_link_width": f"{link[2]}\n"}
    return found


def measured(root, recording):
    """Return the collected values by device and metric, and the devices."""
    for at, card in enumerate(recording["cards"]):
        tree = {f"sys/class/drm/card{at}/device/{name}": text for name, text in files_of(card).items()}
        plant(root, tree, {"sys/module/amdgpu/version": recording["driver"]})
    node = AmdNode(root, cards=0)
    found: dict[str, dict[str, Any]] = {}
    for (metric, device, _), value in sorted(node.look().items()):
        found.setdefault(device, {})[metric] = round(value, 6)
    for device in node.collector.devices:
        found[node.collector.device_name(device.index)] |= {"uuid": device.uuid, "pci": device.pci}
    node.collector.release()
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_card_gives_its_golden_output(tmp_path, name):
    found = measured(tmp_path, RECORDED[name])
    assert found == json.loads(EXPECTED.read_text())[name]
    cards = sorted(RECORDED[name]["cards"], key=lambda card: card["PCI Bus"].lower())
    for at, card in enumerate(cards):
        values = found[f"gpu{at}"]
        said: dict[str, float] = {}
        for one, (_, _, metric, scale) in VALUES.items():
            if (value := number(card, one)) is not None:
                said[metric] = value * scale
        assert {metric: values.get(metric) for metric in said} == pytest.approx(said)
        assert not {metric for _, _, metric, _ in VALUES.values()} - said.keys() & values.keys()


if __name__ == "__main__":
    outputs = {}
    for recorded, one in RECORDED.items():
        with tempfile.TemporaryDirectory() as folder:
            outputs[recorded] = measured(Path(folder), one)
    EXPECTED.write_text(json.dumps(outputs, indent=1) + "\n")

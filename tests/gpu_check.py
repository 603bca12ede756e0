"""Compares readings of NVIDIA GPUs with nvidia-smi, and records both: `make test-gpu`.

``python -m tests.gpu_check --load COMMAND`` compares while a command computes. The status is 0 if all readings agree, 1
if one differs, and 2 without a GPU or without a reading to compare.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobmeter.collect.accelerators.collector import AcceleratorCollector
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.accelerators.nvidia.vendor import VENDOR
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.discover.member import Member, Process
from jobmeter.collect.machine import Machine
from jobmeter.model.time import SystemClock

_SECONDS = 60.0
WORDS = {
    "No": 0.0,
    "Yes": 1.0,
    "Not Started": 1.0,
    "In Progress": 2.0,
    "Completed": 3.0,
    "None": 0.0,
    "Reset": 1.0,
    "Reboot": 2.0,
    "Drain P2P": 3.0,
    "Drain and Reset": 4.0,
    **{f"P{number}": float(number) for number in range(16)},
}
"""Numbers for the words of nvidia-smi: flags, states of the fabric, recovery actions, and P-states."""
PROCESSES = "compute-apps"
"""Field that this module adds: the number of processes that nvidia-smi lists on the GPU."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Field of nvidia-smi, its metric, and the factor ``scale`` between them.

    Readings agree if they differ by at most ``most`` or by that share.
    """

    field: str
    metric: str
    scale: float = 1.0
    share: float = 0.0
    most: float = 0.0


FIELDS = (
    Compared("memory.total", "gpu.memory.limit", 2.0**20, most=2.0**20),
    Compared("memory.used", "gpu.memory.usage", 2.0**20, share=0.05, most=64 * 2.0**20),
    Compared("power.draw", "gpu.power", share=0.3, most=30),
    Compared("enforced.power.limit", "gpu.power.limit", most=1),
    Compared("temperature.gpu", "gpu.temperature", most=5),
    Compared("temperature.memory", "gpu.temperature.memory", most=5),
    Compared("clocks.sm", "gpu.clock.sm", 1e6, share=0.25, most=100e6),
    Compared("clocks.mem", "gpu.clock.memory", 1e6, share=0.25, most=100e6),
    Compared("clocks.max.sm", "gpu.clock.sm.limit", 1e6, most=1),
    Compared("pstate", "gpu.performance.state", most=2),
    Compared("fan.speed", "gpu.fan", 0.01, most=0.1),
    Compared("utilization.gpu", "gpu.utilization", 0.01, most=0.3),
    Compared("utilization.memory", "gpu.memory.copy.utilization", 0.01, most=0.3),
    Compared("utilization.encoder", "gpu.encoder.utilization", 0.01, most=0.3),
    Compared("utilization.decoder", "gpu.decoder.utilization", 0.01, most=0.3),
    Compared("pcie.link.gen.current", "gpu.pcie.generation"),
    Compared("pcie.link.width.current", "gpu.pcie.width"),
    Compared("pcie.link.gen.max", "gpu.pcie.generation.limit"),
    Compared("pcie.link.width.max", "gpu.pcie.width.limit"),
    Compared("ecc.errors.uncorrected.volatile.total", "gpu.ecc.uncorrected"),
    Compared("ecc.errors.corrected.volatile.total", "gpu.ecc.corrected"),
    Compared("ecc.errors.uncorrected.volatile.sram", "gpu.ecc.sram.uncorrected"),
    Compared("ecc.errors.corrected.volatile.sram", "gpu.ecc.sram.corrected"),
    Compared("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded", "gpu.ecc.sram.exceeded"),
    Compared("retired_pages.single_bit_ecc.count", "gpu.retired.pages.correctable"),
    Compared("retired_pages.double_bit.count", "gpu.retired.pages.uncorrectable"),
    Compared("retired_pages.pending", "gpu.retired.pages.pending"),
    Compared("remapped_rows.correctable", "gpu.remapped.rows.correctable"),
    Compared("remapped_rows.uncorrectable", "gpu.remapped.rows.uncorrectable"),
    Compared("remapped_rows.pending", "gpu.remapped.rows.pending"),
    Compared("remapped_rows.failure", "gpu.remapped.rows.failed"),
    Compared("remapped_rows.histogram.max", "gpu.remapped.spare.all"),
    Compared("remapped_rows.histogram.high", "gpu.remapped.spare.most"),
    Compared("remapped_rows.histogram.partial", "gpu.remapped.spare.part"),
    Compared("remapped_rows.histogram.low", "gpu.remapped.spare.few"),
    Compared("remapped_rows.histogram.none", "gpu.remapped.spare.none"),
    Compared("temperature.gpu.tlimit", "gpu.temperature.margin", most=5),
    Compared("gpu_recovery_action", "gpu.recovery.action"),
    Compared("fabric.state", "gpu.fabric.state"),
    *(
        Compared(f"clocks_event_reasons_counters.{field}", f"gpu.throttle.{metric}", 1e-6, share=0.05, most=2)
        for field, metric in (
            ("sw_power_cap", "power"),
            ("sync_boost", "sync"),
            ("sw_thermal_slowdown", "thermal.software"),
            ("hw_thermal_slowdown", "thermal.hardware"),
            ("hw_power_brake_slowdown", "power.brake"),
        )
    ),
    Compared(PROCESSES, "gpu.processes"),
)
"""Readings that both sides provide."""


class _NoJobs:
    """No processes of jobs."""

    def find_member(self, pid: int) -> Member | None:
        return None

    def list_members(self) -> list[Member]:
        return []

    def list_ended(self) -> list[Process]:
        return []


def _ask(tool: str, *words: str) -> list[list[str]]:
    """Return the cells of each line that nvidia-smi prints. Raises OSError if it fails."""
    done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise OSError(f"nvidia-smi failed: {(done.stderr or done.stdout).strip()[:500]}")
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def read_tool(tool: str) -> list[dict[str, str]]:
    """Return nvidia-smi's fields of each GPU in its order, without fields that its version lacks.

    Raises OSError if it fails.
    """
    offered = {name for line in _ask(tool, "--help-query-gpu") for name in re.findall(r'"([^"]+)"', ",".join(line))}
    fields = [one.field for one in FIELDS if one.field in offered]
    form = "--format=csv,noheader,nounits"
    rows = _ask(tool, f"--query-gpu={','.join(['uuid', *fields])}", form)
    users = [row[0] for row in _ask(tool, "--query-compute-apps=gpu_uuid,pid", form)]
    return [{**dict(zip(fields, row[1:], strict=True)), PROCESSES: str(users.count(row[0]))} for row in rows]


def number_of(text: str) -> float | None:
    """Return the number of a cell; None if nvidia-smi does not know the value."""
    if text in WORDS:
        return WORDS[text]
    try:
        return float(text)
    except ValueError:
        return None


def differences(tool: Sequence[Mapping[str, str]], own: Mapping[tuple[str, str], float]) -> tuple[list[str], int]:
    """Return a line for each differing reading, and the number of comparisons. ``own`` is by metric and device."""
    found: list[str] = []
    count = 0
    for index, row in enumerate(tool):
        for one in FIELDS:
            shown, value = number_of(row.get(one.field, "")), own.get((one.metric, f"gpu{index}"))
            if shown is None or value is None:
                continue
            expected = shown * one.scale
            count += 1
            if abs(value - expected) > max(one.most, one.share * abs(expected)):
                found.append(f"gpu{index} {one.metric}: {value:g}, nvidia-smi's {one.field} says {expected:g}")
    return found, count


def _measured(seconds: float) -> list[dict[tuple[str, str], float]]:
    """Read all GPUs every second, and return all readings."""
    clock = SystemClock()
    driver = VENDOR.open(clock, Machine(), 30.0)
    names = DeviceNames((VENDOR,), Machine()).get_vendor_names(VENDOR)
    collector = AcceleratorCollector(NodeIdentity("here"), names, driver, _NoJobs(), patience=10.0)
    looks: list[dict[tuple[str, str], float]] = []
    end = clock.monotonic() + seconds
    while not looks or clock.monotonic() < end:
        samples = collector.collect(clock.now_ms())
        looks.append({(one.series.metric, one.series.device): one.value for one in samples})
        if clock.monotonic() < end:
            threading.Event().wait(1)
    collector.release()
    return looks


def check(tool: str | None, seconds: float, load: str, recording: Path) -> int:
    """Compare, print, and return the status."""
    if tool is None:
        print("No nvidia-smi is here, so nothing was compared. Run this on a machine with an NVIDIA GPU.")
        return 2
    running = subprocess.Popen(shlex.split(load)) if load else None
    try:
        looks = _measured(seconds)
        rows = read_tool(tool)
        looks += _measured(0.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"Nothing was compared: {error}")
        return 2
    finally:
        if running:
            running.terminate()
            running.wait()
    own = {**looks[0], **looks[-2], **looks[-1]} if len(looks) > 1 else looks[0]
    found, count = differences(rows, own)
    written = [{f"{metric} {device}": value for (metric, device), value in look.items()} for look in looks]
    recording.write_text(json.dumps({"nvidia-smi": rows, "readings": written}, indent=1))
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(rows)} GPUs, {count} readings compared, {len(found)} differ; the recording is {recording}")
    alone = sorted({metric for metric, _ in own} - {one.metric for one in FIELDS})
    print(f"Without a counterpart in nvidia-smi's table: {', '.join(alone)}")
    return 1 if found else 0 if count else 2


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Compare the readings of NVIDIA's GPUs with nvidia-smi.")
    parser.add_argument("--load", default="", help="command that computes on the GPUs meanwhile")
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    parser.add_argument("--recording", type=Path, default=Path("build/gpu-recording.json"))
    given = parser.parse_args()
    given.recording.parent.mkdir(parents=True, exist_ok=True)
    return check(shutil.which("nvidia-smi"), given.seconds, given.load, given.recording)


if __name__ == "__main__":
    sys.exit(main())

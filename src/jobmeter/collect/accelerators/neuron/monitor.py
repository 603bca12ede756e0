"""Reports of the program ``neuron-monitor``: cores and memory in use by process. No file in /sys has these values.

Fields and configuration:
https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html
"""

import logging
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import TypeVar

import msgspec
from msgspec import Struct

from jobmeter.collect.accelerators.device import DeviceProcess
from jobmeter.collect.backoff import Backoff
from jobmeter.model.time import Clock

PROGRAM = Path("/opt/aws/neuron/bin/neuron-monitor")
VALID_SECONDS = 30.0
"""Age in seconds up to which a report is used: six periods."""
_LONGEST = 4 * 2**20
_ENDS_SECONDS = 5.0
_SILENT_SECONDS = 60.0
"""Seconds without a line after which the reader ends the program as hanging."""
_CONFIGURATION = {
    "period": "5s",
    "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": "neuroncore_counters"}, {"type": "memory_used"}]}],
    "system_metrics": [{"type": "neuron_hw_counters"}],
}
V = TypeVar("V")
_log = logging.getLogger(__name__)


class _CoreUse(Struct):
    neuroncore_utilization: float | None = None


class _CoreCounters(Struct):
    neuroncores_in_use: dict[int, _CoreUse] | None = None
    error: str = ""


class _Breakdown(Struct):
    neuroncore_memory_usage: dict[int, dict[str, int]] | None = None


class _UsedBytes(Struct):
    usage_breakdown: _Breakdown | None = None


class _MemoryUsed(Struct):
    neuron_runtime_used_bytes: _UsedBytes | None = None
    error: str = ""


class _Groups(Struct):
    neuroncore_counters: _CoreCounters | None = None
    memory_used: _MemoryUsed | None = None


class _Application(Struct):
    pid: int
    error: str = ""
    report: _Groups = msgspec.field(default_factory=_Groups)

    @property
    def busy(self) -> Mapping[int, float] | None:
        """Percent of time in use by core; None if unknown."""
        counters = self.report.neuroncore_counters
        if counters is None or counters.error or self.error:
            return None
        used = counters.neuroncores_in_use or {}
        return {
            core: use.neuroncore_utilization for core, use in used.items() if use.neuroncore_utilization is not None
        }

    @property
    def memory(self) -> Mapping[int, int] | None:
        """Bytes of device memory by core; None if unknown."""
        group = self.report.memory_used
        if group is None or group.error or self.error:
            return None
        used = group.neuron_runtime_used_bytes
        breakdown = used.usage_breakdown if used else None
        if breakdown is None or breakdown.neuroncore_memory_usage is None:
            return None
        return {core: sum(parts.values()) for core, parts in breakdown.neuroncore_memory_usage.items()}


class _EccCounts(Struct):
    neuron_device_index: int
    mem_ecc_corrected: int | None = None
    sram_ecc_corrected: int | None = None


class _HardwareCounters(Struct):
    neuron_devices: list[_EccCounts] | None = None
    error: str = ""


class _SystemData(Struct):
    neuron_hw_counters: _HardwareCounters | None = None


class _HardwareInfo(Struct):
    neuron_device_memory_size: int = 0
    neuroncore_per_device_count: int = 0


class MonitorReport(Struct):
    """Report of ``neuron-monitor``. Cores are numbered across the node; each device has the same number of cores."""

    neuron_runtime_data: list[_Application] | None = None
    system_data: _SystemData | None = None
    neuron_hardware_info: _HardwareInfo | None = None

    @property
    def cores(self) -> int:
        """Logical cores of each device; 0 if unknown."""
        return self.neuron_hardware_info.neuroncore_per_device_count if self.neuron_hardware_info else 0

    @property
    def memory(self) -> int:
        """Bytes of memory of each device; 0 if unknown."""
        return self.neuron_hardware_info.neuron_device_memory_size if self.neuron_hardware_info else 0

    def list_processes(self, device: int) -> list[DeviceProcess]:
        """Return the processes that use cores or memory of a device."""
        found = []
        for one in self.neuron_runtime_data or ():
            memory = sum(self._select_cores(device, one.memory or {}).values())
            if memory or self._select_cores(device, one.busy or {}):
                found.append(DeviceProcess(one.pid, None if one.memory is None else memory))
        return found

    def read_shares(self, device: int) -> Mapping[int, float] | None:
        """Return the percent of a device's core time by process; None if the share of any process is unknown."""
        found: dict[int, float] = {}
        for one in self.neuron_runtime_data or ():
            if one.busy is None or not self.cores:
                return None
            if mine := self._select_cores(device, one.busy):
                found[one.pid] = sum(mine.values()) / self.cores
        return found

    def count_corrected(self, device: int) -> int | None:
        """Return the corrected memory errors of a device; None if unknown."""
        counters = self.system_data and self.system_data.neuron_hw_counters
        rows = (counters.neuron_devices or []) if counters and not counters.error else []
        for row in rows:
            counts = (row.mem_ecc_corrected, row.sram_ecc_corrected)
            if row.neuron_device_index == device:
                return None if None in counts else sum(count for count in counts if count is not None)
        return None

    def _select_cores(self, device: int, by_core: Mapping[int, V]) -> Mapping[int, V]:
        return {core: value for core, value in by_core.items() if self.cores and core // self.cores == device}


_DECODER = msgspec.json.Decoder(MonitorReport)


class MonitorReader:
    """Keeps the program running, and has its newest report. ``update`` and ``close`` are for one thread.

    An ended program is started again after growing pauses; a hanging one is ended.
    """

    def __init__(self, clock: Clock, program: Path = PROGRAM) -> None:
        self._clock = clock
        self._program = program
        self._retry = Backoff()
        self._running: subprocess.Popen[bytes] | None = None
        self._newest: tuple[float, MonitorReport] | None = None
        self._heard = 0.0
        self._is_bad = False

    def update(self, now_ms: int | None) -> None:
        """Start the program if it does not run."""
        self._retry.tick(now_ms)
        if self.report is not None:
            self._retry.note_success()
        if self._running is not None and not self.running:
            self._running = None
            self._retry.note_failure()
        if self._running is not None and self._clock.monotonic() - self._heard > _SILENT_SECONDS:
            self._running.kill()
        if self._running is None and self._retry.due and self._program.exists():
            self._start()

    @property
    def running(self) -> bool:
        """True while the program runs."""
        return self._running is not None and self._running.poll() is None

    @property
    def report(self) -> MonitorReport | None:
        """Newest report; None if it is older than ``VALID_SECONDS``."""
        if self._newest is None or self._clock.monotonic() - self._newest[0] > VALID_SECONDS:
            return None
        return self._newest[1]

    def close(self) -> bool:
        """End the program, because it has the devices open. False while a call of the driver blocks it."""
        self._newest = None
        if self._running is not None:
            self._running.kill()
            try:
                self._running.wait(_ENDS_SECONDS)
            except subprocess.TimeoutExpired:
                return False
            self._running = None
        return True

    def _start(self) -> None:
        settings = os.memfd_create("neuron-monitor.conf")
        try:
            os.write(settings, msgspec.json.encode(_CONFIGURATION))
            command: Sequence[str] = (str(self._program), "-c", f"/proc/self/fd/{settings}")
            self._running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(settings,),
            )
        except OSError as error:
            self._retry.note_failure()
            _log.warning("%s cannot be started: %s", self._program, error)
            return
        finally:
            os.close(settings)
        self._heard = self._clock.monotonic()
        Thread(target=self._follow, args=(self._running,), name="neuron-monitor", daemon=True).start()

    def _follow(self, running: "subprocess.Popen[bytes]") -> None:
        """Read reports in a thread until the program ends. Lines beyond the bound and incomplete ones are dropped."""
        if running.stdout is None:
            return
        whole = True
        with running.stdout as output:
            while line := output.readline(_LONGEST):
                ends = line.endswith(b"\n")
                if whole and ends:
                    self._take(running, line)
                whole = ends

    def _take(self, running: "subprocess.Popen[bytes]", line: bytes) -> None:
        if running is not self._running:
            return
        self._heard = self._clock.monotonic()
        try:
            report = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if not self._is_bad:
                _log.warning("a report of %s is left out: %s", self._program, error)
            self._is_bad = True
            return
        self._newest = self._heard, report

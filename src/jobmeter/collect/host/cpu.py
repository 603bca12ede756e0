"""CPU time by mode, CPUs online, processes that run or wait, and load: /proc/stat and /proc/loadavg."""

import os

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Samples
from jobmeter.model.sample import Sample

_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_PROCESSES = {b"procs_running": "node.processes.running", b"procs_blocked": "node.processes.blocked"}


class CpuCollector:
    """Collector of CPU time and processes.

    A mode's time never falls: the kernel's iowait and idle sometimes step back a tick.
    """

    name = "host.cpu"
    metrics = ("node.cpu.time", "node.cpu.count", *_PROCESSES.values())

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc", ticks_per_second: int = 0) -> None:
        self._place = place
        self._path = f"{proc_root}/stat"
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._highest = dict.fromkeys(_MODES, 0)

    def collect(self, now_ms: int) -> Samples:
        """Read /proc/stat."""
        text = files.read_required(self._path)
        samples: Samples = []
        count = 0
        for line in text.splitlines():
            words = line.split()
            if not words:
                continue
            if words[0] == b"cpu":
                samples += self._sample_times(now_ms, words[1:])
            elif words[0].startswith(b"cpu"):
                count += 1
            elif words[0] in _PROCESSES:
                samples.append(Sample(self._place.make_node_series(_PROCESSES[words[0]]), now_ms, float(words[1])))
        samples.append(Sample(self._place.make_node_series("node.cpu.count"), now_ms, float(count)))
        return samples

    def _sample_times(self, now_ms: int, ticks: list[bytes]) -> Samples:
        samples = []
        for mode, text in zip(_MODES, ticks, strict=False):
            self._highest[mode] = highest = max(self._highest[mode], int(text))
            series = self._place.make_node_series("node.cpu.time", (("mode", mode),))
            samples.append(Sample(series, now_ms, highest / self._ticks))
        return samples

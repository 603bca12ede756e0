"""CPU time by mode, CPUs online, and processes that run or wait: /proc/stat."""

import os
from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.host.base import NodeCollector, NodeReading

_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_PROCESSES = {b"procs_running": "node.processes.running", b"procs_blocked": "node.processes.blocked"}


class CpuCollector(NodeCollector):
    """Collector of CPU time and processes.

    The kernel's iowait and idle sometimes step back a tick; the time of a mode never falls.
    """

    name = "host.cpu"
    metrics = ("node.cpu.time", "node.cpu.count", *_PROCESSES.values())

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc", ticks_per_second: int = 0) -> None:
        super().__init__(place, proc_root)
        self._ticks = ticks_per_second or os.sysconf("SC_CLK_TCK")
        self._highest = dict.fromkeys(_MODES, 0)

    def _read(self) -> Iterator[NodeReading]:
        count = 0
        for line in files.read_required(f"{self._proc}/stat").splitlines():
            words = line.split()
            if not words:
                continue
            if words[0] == b"cpu":
                for mode, text in zip(_MODES, words[1:], strict=False):
                    self._highest[mode] = highest = max(self._highest[mode], int(text))
                    yield "node.cpu.time", (("mode", mode),), highest / self._ticks
            elif words[0].startswith(b"cpu"):
                count += 1
            elif words[0] in _PROCESSES:
                yield _PROCESSES[words[0]], (), int(words[1])
        yield "node.cpu.count", (), count

"""Network ports of NPUs, by the program ``hccn_tool`` once a minute in a thread, because each call takes long.

Outputs: https://github.com/Ascend/mind-cluster (``hccn_tool_test.go``).
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from jobmeter.collect.call_thread import CallThread
from jobmeter.model.time import Clock

TOOL = Path("/usr/local/Ascend/driver/tools/hccn_tool")
_EVERY = 60.0
_SECONDS = 5.0
"""Time limit in seconds of one call."""
_LONGEST = 65_536
_LINK = re.compile(r"link status:\s*(UP|DOWN)", re.IGNORECASE)
_SPEED = re.compile(r"Speed:\s*(\d+)\s*Mb/s", re.IGNORECASE)
_CHANGES = re.compile(r"link (?:up|down) count\s*:\s*(\d+)", re.IGNORECASE)
_COUNT = re.compile(r"^\s*(\w+)\s*:\s*(\d+)\s*$", re.MULTILINE)
_COUNTS: Mapping[str, Sequence[str]] = {
    "npu.network.receive": ("mac_rx_total_oct_num",),
    "npu.network.transmit": ("mac_tx_total_oct_num",),
    "npu.network.errors": ("roce_rx_err_pkt_num", "roce_tx_err_pkt_num", "mac_rx_bad_pkt_num"),
    "npu.network.retries": ("roce_new_pkt_rty_num",),
    "npu.network.congestion": ("roce_rx_cnp_pkt_num",),
    "npu.network.pauses": ("mac_rx_pfc_pkt_num",),
}
METRICS = ("npu.link.up", "npu.link.speed", "npu.link.changes", *_COUNTS)


class NetworkReader:
    """Reads the ports of all NPUs. For one thread; ``take_values`` is for any thread."""

    def __init__(self, clock: Clock, tool: Path = TOOL) -> None:
        self._clock = clock
        self._tool = tool
        self._calls: CallThread[dict[int, Mapping[str, float]]] = CallThread("ascend network")
        self._begun: float | None = None
        self._is_new = False
        self._found: dict[int, Mapping[str, float]] = {}

    def update(self, numbers: Sequence[int]) -> None:
        """Take the values of the last reading, and begin the next one if it is due."""
        if self._calls.busy or not self._tool.exists():
            return
        if self._is_new:
            self._found, self._is_new = dict(self._calls.get_result()), False
        now = self._clock.monotonic()
        if numbers and (self._begun is None or now - self._begun >= _EVERY):
            self._calls.begin(partial(_read_ports, self._tool, numbers))
            self._begun, self._is_new = now, True

    def take_values(self, number: int) -> Mapping[str, float]:
        """Return the values of a port once; empty until the next reading."""
        return self._found.pop(number, {})

    def wait(self, seconds: float) -> None:
        """Wait for the reading in progress."""
        self._calls.wait(seconds)

    def close(self) -> None:
        """End the thread."""
        self._calls.close()


def _read_ports(tool: Path, numbers: Sequence[int]) -> dict[int, Mapping[str, float]]:
    return {number: parse(*(_output(tool, number, what) for what in _QUESTIONS)) for number in numbers}


_QUESTIONS = ("-link", "-speed", "-link_stat", "-stat")


def _output(tool: Path, number: int, what: str) -> str:
    """Return the output of one call; empty if it fails or takes too long."""
    try:
        done = subprocess.run(
            [str(tool), "-i", str(number), what, "-g"], capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout[:_LONGEST].decode(errors="replace")


def parse(link: str, speed: str, changes: str, counts: str) -> dict[str, float]:
    """Return the metrics in the outputs of ``-link``, ``-speed``, ``-link_stat`` and ``-stat``; unknown ones absent."""
    found: dict[str, float] = {}
    if state := _LINK.search(link):
        found["npu.link.up"] = float(state[1].upper() == "UP")
    if rate := _SPEED.search(speed):
        found["npu.link.speed"] = int(rate[1]) * 1e6 / 8
    if numbers := _CHANGES.findall(changes):
        found["npu.link.changes"] = float(sum(map(int, numbers)))
    counted = {name: int(number) for name, number in _COUNT.findall(counts)}
    for metric, names in _COUNTS.items():
        if own := [counted[name] for name in names if name in counted]:
            found[metric] = float(sum(own))
    return found

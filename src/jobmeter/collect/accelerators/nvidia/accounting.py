"""Accounting of NVML: the use of a GPU by each process, which the driver remembers after the process has ended.

An administrator turns it on (``nvidia-smi -am 1``); the agent never does. Of processes with one number the driver
remembers the last. https://docs.nvidia.com/deploy/nvml-api/group__nvmlAccountingStats.html.
"""

from collections.abc import Callable, Collection
from typing import Any

from jobmeter.collect.accelerators.device import EndedUse
from jobmeter.collect.accelerators.nvidia import codes
from jobmeter.collect.accelerators.nvidia.readings import NvmlError

_UNKNOWN_SHARE = 2**32 - 1
_MICRO, _MILLI = 1e-6, 1e-3


def read_ended_uses(module: Any, call: Callable[..., Any], pids: Collection[int]) -> list[EndedUse]:  # noqa: ANN401
    """Return the use by these processes if they have ended. Empty while the accounting is off.

    ``call`` calls a function of the module for the GPU. Raises NvmlError if the GPU has no accounting.
    """
    if not call(module.nvmlDeviceGetAccountingMode):
        return []
    found = []
    for pid in sorted({*pids}.intersection(call(module.nvmlDeviceGetAccountingPids))):
        try:
            stats = call(module.nvmlDeviceGetAccountingStats, pid)
        except NvmlError as error:
            if error.code == codes.NOT_FOUND:  # newer processes have replaced it since
                continue
            raise
        if not stats.isRunning:
            busy = None if stats.gpuUtilization == _UNKNOWN_SHARE else float(stats.gpuUtilization)
            found.append(EndedUse(pid, int(stats.startTime) * _MICRO, int(stats.time) * _MILLI, busy))
    return found

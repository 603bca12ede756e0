"""Checks of a node by name, each in its own thread, so that a hanging check affects no others."""

from collections.abc import Callable, Mapping, Sequence
from threading import Thread

from jobmeter.collect.checks import system
from jobmeter.collect.nvidia.api import DeviceLostError, NotSupportedError, NvmlDevice, Reading
from jobmeter.model.device import DeviceState
from jobmeter.model.task import Check, CheckStatus

PATIENCE = 8.0
"""Seconds that one check may take."""
HOT = 90
_SKEW = 1.0


class NodeChecks:
    """Runs the requested checks. A check that still hangs is not started again.

    ``difference`` returns the lead in seconds of the wall clock over the samples' time.
    """

    def __init__(
        self, gpus: Callable[[], Sequence[NvmlDevice]], difference: Callable[[], float], patience: float = PATIENCE
    ) -> None:
        self._patience = patience
        self._running: dict[str, Thread] = {}
        self.checks: Mapping[str, Callable[[], list[Check]]] = {
            "disks": system.check_disks,
            "links": system.check_links,
            "gpus": lambda: check_gpus(gpus()),
            "clock": lambda: check_clock(difference()),
            "tasks": system.check_tasks,
            "kernel_log": system.check_kernel_log,
            "memory": system.check_memory,
        }

    def make(self, names: Sequence[str]) -> list[Check]:
        """Run the checks of those names and return their results; unknown names are ignored."""
        return [found for name in dict.fromkeys(names) if name in self.checks for found in self._one(name)]

    def _one(self, name: str) -> list[Check]:
        before = self._running.get(name)
        if before is not None and before.is_alive():
            return [Check(name, CheckStatus.WARNING, "the check of an earlier task still hangs")]
        found: list[Check] = []

        def work() -> None:
            try:
                found.extend(self.checks[name]())
            except Exception as error:  # noqa: BLE001 - a check may fail in any way and must not take others along
                found.append(Check(name, CheckStatus.UNAVAILABLE, f"the check failed: {error}"[:1_000]))

        thread = self._running[name] = Thread(target=work, name=f"check {name}", daemon=True)
        thread.start()
        thread.join(self._patience)
        if thread.is_alive():
            return [Check(name, CheckStatus.WARNING, f"the check did not come back within {self._patience:.0f} s")]
        return found


def check_clock(offset: float) -> list[Check]:
    """Check the wall clock against the sample clock, by its lead in seconds."""
    status = CheckStatus.WARNING if abs(offset) > _SKEW else CheckStatus.OK
    text = f"the wall clock is {offset:+.3f} s from the time of samples"
    return [Check("clock", status, text, {"offset_seconds": round(offset, 3)})]


def check_gpus(gpus: Sequence[NvmlDevice]) -> list[Check]:
    """Check GPUs by NVML: memory errors, pending or failed remappings of rows, and temperatures."""
    return [_gpu(device) for device in gpus] or [Check("gpus", CheckStatus.UNAVAILABLE, "NVML shows no GPU")]


def _gpu(device: NvmlDevice) -> Check:
    name, values, bad, warned = f"gpu{device.index}", {}, [], []
    if device.state is not DeviceState.MEASURED:
        because = f" ({device.reason})" if device.reason else ""
        status = CheckStatus.WARNING if device.state.usable else CheckStatus.CRITICAL
        return Check("gpus", status, f"{name} is not measured: {device.state}{because}")
    try:
        if (ecc := _given(device, Reading.ECC_ERRORS)) is not None:
            values["ecc_uncorrected"] = float(ecc[1])
            bad += [f"{ecc[1]} memory errors were not corrected"] if ecc[1] else []
        if (rows := _given(device, Reading.REMAPPED_ROWS)) is not None:
            bad += ["remapping a memory row failed"] if rows[3] else []
            warned += ["a remapping waits for a reset"] if rows[2] else []
        if (heat := _given(device, Reading.TEMPERATURE)) is not None:
            values["temperature"] = float(heat[0])
            warned += [f"its temperature is {heat[0]} °C"] if heat[0] >= HOT else []
    except DeviceLostError:
        return Check("gpus", CheckStatus.CRITICAL, f"{name} is lost: it does not answer")
    status = CheckStatus.CRITICAL if bad else CheckStatus.WARNING if warned else CheckStatus.OK
    text = f"{name} ({device.name}): {'; '.join([*bad, *warned]) or 'answers, without errors'}"
    return Check("gpus", status, text, values)


def _given(device: NvmlDevice, reading: Reading) -> Sequence[int] | None:
    try:
        return device.read(reading)
    except NotSupportedError:
        return None

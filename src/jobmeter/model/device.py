"""The state of a device: whether it is measured, and why not."""

from enum import StrEnum


class DeviceState(StrEnum):
    """State of the measurement of a device: measured, or the reason why not.

    Its ``code`` is the value of the metric ``gpu.state``.

    The order is that of the codes, which are public: a new state goes to the end.
    """

    MEASURED = "measured"
    NO_PERMISSION = "no permission"
    """The agent may not open it: a control group, a container with some of the devices, or the rights of its file."""
    LIBRARY_MISSING = "library missing"
    """The kernel has the driver, and its library is not there."""
    LIBRARY_MISMATCH = "library mismatch"
    """The library is of another version than the kernel's driver: one of them was replaced."""
    DRIVER_NOT_LOADED = "driver not loaded"
    HANGS = "hangs"
    """A call to it does not return."""
    RESET_REQUIRED = "reset required"
    LOST = "lost"
    """It fell off the bus, or the driver cannot reach it."""

    @property
    def code(self) -> int:
        """The number that stands for it: 0 measured, 7 lost."""
        return _CODES[self]

    @property
    def usable(self) -> bool:
        """False where no job can compute on it. Of one that only the agent cannot reach it is True."""
        return self not in {self.DRIVER_NOT_LOADED, self.HANGS, self.RESET_REQUIRED, self.LOST}


STATES = tuple(DeviceState)
"""The states by their codes."""
_CODES = {state: code for code, state in enumerate(STATES)}

"""Tests of several devices at once whose calls run in threads."""

from jobmeter.collect.accelerators.device import Accelerator, close_all
from jobmeter.model.time import SystemClock


class ReturningDevice(Accelerator):
    """Device whose call is running while ``busy`` says so: one entry for each query, then the call has returned."""

    def __init__(self, busy: list[bool]) -> None:
        super().__init__(0, SystemClock(), "test ")
        self._answers = iter(busy)
        self._open = True

    @property
    def attached(self) -> bool:
        return self._open

    @property
    def busy(self) -> bool:
        return next(self._answers, False)

    def detach(self) -> None:
        self._open = False


def test_a_device_that_keeps_its_handle_is_not_closed():
    devices = [ReturningDevice([]), ReturningDevice([True])]
    assert not close_all(devices)
    assert [one.attached for one in devices] == [False, True]
    assert close_all(devices)
    assert not any(one.attached for one in devices)

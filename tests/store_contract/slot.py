"""Slots: a unique job and time for each test, so that tests can share a store without emptying it."""

import itertools

from jobmeter.model.series import Series, compute_job_key
from jobmeter.model.time import DAY, TimeRange, parse_time

_FIRST_DAY = parse_time("2030-01-01")
_slots = itertools.count()


class Slot:
    """Job name and two days that no other test uses."""

    def __init__(self) -> None:
        self.number = next(_slots)
        self.start = _FIRST_DAY + self.number * 4 * DAY
        self.job = f"job-{self.number}"
        self.span = TimeRange(self.start, self.start + 2 * DAY)

    @property
    def key(self) -> int:
        """Key of the job."""
        return compute_job_key("default", self.job)

    def gauge(self, replica: str = "worker-0") -> Series:
        """Build a gauge of the job."""
        return Series("gpu.power", job=self.job, replica=replica)

    def counter(self, replica: str = "worker-0") -> Series:
        """Build a counter of the job."""
        return Series("cpu.time", job=self.job, replica=replica)

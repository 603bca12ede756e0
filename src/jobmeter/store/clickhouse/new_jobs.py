"""Descriptors of jobs that began lately, so that questions about them need not wait for the engine."""

from collections.abc import Iterator, Sequence

import numpy as np

from jobmeter.kernel.number_table import NumberTable
from jobmeter.model.batch import Uint64s
from jobmeter.model.series import Series
from jobmeter.store.base import SeriesSelector
from jobmeter.store.clickhouse.descriptors import Descriptors, select

_MOST_SERIES = 1 << 16


class NewJobs:
    """Jobs without descriptors in the engine, and all their descriptors since. Not safe for several threads."""

    def __init__(self, stored: Uint64s) -> None:
        """``stored`` are the keys of all jobs that have descriptors already."""
        self._stored = NumberTable()
        self._new: dict[int, list[Descriptors]] = {}
        self._series = 0
        self.close(stored)

    def add(self, written: Descriptors) -> None:
        """Add descriptors that are durable. Beyond the bound all jobs are closed."""
        jobs = np.unique(written.job)
        for job in jobs[self._stored.find(jobs) < 0].tolist():
            self._new.setdefault(job, []).append(written)
            self._series += len(written.ids)
        if self._series > _MOST_SERIES:
            self.close_all()

    def close(self, jobs: Uint64s) -> None:
        """Drop the descriptors of some jobs: the list of the engine alone is complete."""
        self._stored.put(jobs, np.zeros(len(jobs), np.int64))
        for job in jobs.tolist() if self._new else ():
            self._series -= sum(len(one.ids) for one in self._new.pop(job, ()))

    def close_all(self) -> None:
        """Drop the descriptors of all jobs."""
        self.close(np.fromiter(self._new, np.uint64))

    def find(self, selector: SeriesSelector) -> Iterator[Series] | None:
        """Return the series that match, in part more than once. None unless all selected jobs are new."""
        if selector.jobs is None or not all(job in self._new for job in selector.jobs):
            return None
        lists: Sequence[Descriptors] = [one for job in selector.jobs for one in self._new[job]]
        return select(lists, selector)

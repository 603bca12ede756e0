"""Registries with few jobs that behave as with many."""

import threading

from jobmeter.model.job import JobFilter
from jobmeter.registry.base import Registry
from jobmeter.registry.sql import SqlRegistry


def settle(registry: Registry) -> None:
    """Until listings are answered from columns. The caller has made ``listings.LARGE`` small."""
    assert isinstance(registry, SqlRegistry)
    registry.jobs(JobFilter(limit=0), 0)
    pause = threading.Event()
    for _ in range(1000):
        if registry.ready:
            return
        pause.wait(0.01)
    raise AssertionError("the columns were not read within ten seconds")

"""What tests of registries share."""

import threading

from jobmeter.model.job import JobFilter
from jobmeter.registry.base import Observation, Registry
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


def seen(first_ms: int, last_ms: int, **names: object) -> Observation:
    """That samples of a replica on a node were seen from one moment to another; names may be others, or empty."""
    given = {"project": "default", "job": "j", "replica": "w", "attempt": 0, "cluster": "", "node": "n", "device": ""}
    return Observation(**{**given, **names}, first_ms=first_ms, last_ms=last_ms)  # type: ignore[arg-type]

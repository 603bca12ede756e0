"""Registry of the kinds of schedulers: only this module names them."""

from importlib import import_module

from jobmeter.collect.scheduler.base import SchedulerKind

SUMMARIES = {
    "slurm": "Jobs of a Slurm cluster.",
    "flink": "Jobs of a Flink cluster, and Flink's metrics.",
    "kubernetes": "Jobs of a Kubernetes cluster.",
}
"""Summary of each kind by name: kind ``x`` is ``KIND`` of ``jobmeter.collect.scheduler.x.kind``."""


def find_scheduler_kind(name: str) -> SchedulerKind:
    """Return the kind of that name, imported on demand."""
    kind: SchedulerKind = import_module(f"jobmeter.collect.scheduler.{name}.kind").KIND
    return kind

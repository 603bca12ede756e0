"""The kinds of schedulers: the only place that names them."""

from importlib import import_module

from jobmeter.collect.scheduler.base import Kind

SUMMARIES = {
    "slurm": "Jobs of a Slurm cluster.",
    "flink": "Jobs of a Flink cluster, and what Flink measures of them.",
    "kubernetes": "Jobs of a Kubernetes cluster.",
}
"""The purpose of each kind by name: kind ``x`` is ``KIND`` of ``jobmeter.collect.scheduler.x.kind``."""


def scheduler_kind(name: str) -> Kind:
    """The kind of that name, imported on demand. Raises KeyError for an unknown name."""
    if name not in SUMMARIES:
        raise KeyError(name)
    kind: Kind = import_module(f"jobmeter.collect.scheduler.{name}.kind").KIND
    return kind

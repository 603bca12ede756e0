"""Which schedulers there are: the only place that names them."""

from importlib import import_module

from jobmeter.collect.scheduler.base import Kind

SUMMARIES = {"slurm": "Jobs of a Slurm cluster."}
"""By name, what each is for: kind ``x`` is ``KIND`` of ``jobmeter.collect.scheduler.x.kind``."""


def scheduler_kind(name: str) -> Kind:
    """The kind of that name, loaded when it is asked for. Raises KeyError for a name that is none."""
    if name not in SUMMARIES:
        raise KeyError(name)
    kind: Kind = import_module(f"jobmeter.collect.scheduler.{name}.kind").KIND
    return kind

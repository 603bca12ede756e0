"""Settings in which jobs differ."""

from collections.abc import Sequence

import msgspec

from jobmeter.model.catalog import find
from jobmeter.model.job import Job
from jobmeter.model.quantity import format_quantity

_SETTINGS = ("type", "user", "project", "resource_group", "workspace", "command")


class ComparedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Setting of compared jobs: a text for each job in their order, empty if a job lacks the setting."""

    name: str
    texts: list[str] = []
    equal: bool = False


def compare_settings(jobs: Sequence[Job]) -> list[ComparedSetting]:
    """Return every setting of any of the jobs: facts of the record, type of machine, labels, and limits."""
    stated = [
        {
            **{name.replace("_", " "): str(getattr(job, name)) for name in _SETTINGS},
            "instance type": "" if job.instance_type is None else job.instance_type.name or job.instance_type.id,
            **{f"label {name}": text for name, text in job.labels.items()},
            **{name: format_quantity(value, _unit(name)) for name, value in job.limits.items()},
        }
        for job in jobs
    ]
    names = dict.fromkeys(name for one in stated for name, text in one.items() if text)
    found = [(name, [one.get(name, "") for one in stated]) for name in names]
    return [ComparedSetting(name=name, texts=texts, equal=len(set(texts)) == 1) for name, texts in found]


def _unit(metric: str) -> str:
    found = find(metric)
    return found.unit if found else ""

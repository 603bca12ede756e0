"""The resource groups of jobs: their rows, grouped by project and name."""

import numpy as np

from jobmeter.model.job import JobGroup
from jobmeter.registry.columns.select import Rows
from jobmeter.registry.columns.table import JobTable

_KEY = ("project", "resource_group", "workspace")


def job_groups(table: JobTable, rows: Rows) -> list[JobGroup]:
    """Return the groups that these rows name. See ``Registry.job_groups``."""
    columns = [table.texts[name] for name in _KEY]
    code = np.zeros(len(rows), np.int64)
    for column in columns:
        code = code * len(column.values) + column.numbers(table.count)[rows]
    _, first, place, counts = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    created, updated = (table.sort_values(name, rows) for name in ("created_sort", "updated"))
    least, most = created[first], updated[first]
    np.minimum.at(least, place, created)
    np.maximum.at(most, place, updated)
    texts = [[column.values[number] for number in column.numbers(table.count)[rows[first]]] for column in columns]
    found: dict[tuple[str, str], list[JobGroup]] = {}
    for project, name, workspace, *rest in zip(*texts, counts.tolist(), least.tolist(), most.tolist(), strict=True):
        one = JobGroup(
            name=name,
            project=project,
            workspaces=(workspace,) if workspace else (),
            jobs=rest[0],
            created=rest[1],
            updated=rest[2],
        )
        found.setdefault((project, name), []).append(one)
    return [_join_parts(parts) for _, parts in sorted(found.items())]


def _join_parts(parts: list[JobGroup]) -> JobGroup:
    """Join the parts of a group, which are one for each workspace."""
    return JobGroup(
        name=parts[0].name,
        project=parts[0].project,
        jobs=sum(one.jobs for one in parts),
        workspaces=tuple(sorted({workspace for one in parts for workspace in one.workspaces})),
        created=min(one.created for one in parts),
        updated=max(one.updated for one in parts),
    )

"""Every job as a row of columns: added, changed, removed, and found by its key."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobmeter.registry.columns.dictionary_column import DictionaryColumn, Mask
from jobmeter.registry.columns.fields import Fields
from jobmeter.registry.columns.names import NameColumn
from jobmeter.registry.columns.vector import ColumnVector

TEXTS = ("project", "type", "user", "resource_group", "workspace", "status")
LONG = ("command", "error")
"""Texts that are stored while their distinct values are few and short enough."""
NAMES = ("id", "name")
TIMES = ("created_sort", "start_sort", "end_sort", "updated", "last_sample")
SAMPLED_COLUMNS = ("project", "id", "status", *TIMES)
"""Columns of an existing job that samples alone can change."""
MOST_LONG_BYTES = 64 << 20
_SPARE = 10_000
"""Unused texts that are tolerated before all columns are read again."""
UNKNOWN = -(2**63)
"""The ``last_sample`` of a job without samples."""

Key = tuple[str, str]


class JobRow(NamedTuple):
    """The stored fields of one job: the columns of ``jobs`` with these names, texts of fields as JSON."""

    project: str
    id: str
    name: str
    type: str
    user: str
    resource_group: str
    workspace: str
    status: str
    command: str
    error: str
    labels: str | None
    extra: str | None
    created_sort: int
    start_sort: int
    end_sort: int
    updated: int
    last_sample: int | None


class JobTable:
    """The columns of all jobs. For one thread at a time."""

    def __init__(self, rows: int = 0) -> None:
        """``rows`` is the number of jobs to make room for."""
        self.count = 0
        """Number of rows, including rows of deleted jobs."""
        self.texts = {name: DictionaryColumn("", rows) for name in (*TEXTS, *LONG)}
        self.names = {name: NameColumn(rows) for name in NAMES}
        self.times: dict[str, ColumnVector[np.int64]] = {name: ColumnVector(np.int64, rows) for name in TIMES}
        self.fields = Fields(rows)
        self._there: ColumnVector[np.bool_] = ColumnVector(np.bool_, rows)
        self._free: list[int] = []
        # By the number of an id: the first of its rows, from 1. Further rows, of other projects, are in the dictionary.
        self._firsts: ColumnVector[np.int32] = ColumnVector(np.int32, rows)
        self._further: dict[int, list[int]] = {}

    @property
    def there(self) -> Mask:
        """Mark the rows that belong to a job."""
        return self._there.get_first(self.count)

    def put(self, jobs: Sequence[JobRow]) -> None:
        """Set the rows of these jobs to their current values."""
        numbers = {name: self.names[name].add(getattr(job, name) for job in jobs) for name in NAMES}
        for job in jobs:
            row = self._row_for(numbers["id"][job.id], job.project)
            self.names["id"].set(row, numbers["id"][job.id])
            self.names["name"].set(row, numbers["name"][job.name])
            self._set(row, job)

    def load(self, jobs: Sequence[Sequence[Any]]) -> None:
        """Add jobs to a new table, each as the values of ``JobRow``; ``end_load`` ends the load."""
        columns = dict(zip(JobRow._fields, zip(*jobs, strict=True), strict=True))
        first = self.count
        numbers = [self.names["id"].take(job) for job in columns["id"]]
        for number in numbers:
            self._allocate_row(number)
        self.names["id"].put(first, numbers)
        self.names["name"].put(first, list(map(self.names["name"].take, columns["name"])))
        for name in (*TEXTS, *LONG):
            self.texts[name].put(first, columns[name] if self.stores(name) else [""] * len(jobs))
        for name in TIMES:
            self.times[name].put(first, [UNKNOWN if value is None else value for value in columns[name]])
        self.fields.put(first, columns["labels"], columns["extra"])

    def end_load(self) -> None:
        """End the load of all jobs."""
        for names in self.names.values():
            names.end_load()

    def put_sampled(self, sampled: Iterable[Sequence[Any]]) -> list[Key]:
        """Update ``SAMPLED_COLUMNS`` of these jobs. Return the keys of unknown jobs."""
        missing = []
        status, times = self.texts["status"], [self.times[name] for name in TIMES]
        for project, job, state, *values in sampled:
            row = self.find_row(project, job)
            if row is None:
                missing.append((project, job))
                continue
            status.set(row, state)
            for column, value in zip(times, values, strict=True):
                column[row] = UNKNOWN if value is None else value
        return missing

    def drop(self, keys: Iterable[Key]) -> None:
        """Remove these jobs; unknown jobs are skipped."""
        for project, job in keys:
            row = self.find_row(project, job)
            if row is None:
                continue
            number = int(self.names["id"].get_numbers(self.count)[row])
            rest = [other for other in self._rows_of(number) if other != row]
            self._firsts[number] = rest[0] + 1 if rest else 0
            self._further.pop(number, None)
            if rest[1:]:
                self._further[number] = rest[1:]
            self._there[row] = False
            self._free.append(row)

    def find_row(self, project: str, job: str) -> int | None:
        """Return the row of a job; None for an unknown job."""
        number = self.names["id"].find_number(job)
        if number is None:
            return None
        projects = self.texts["project"]
        return next((row for row in self._rows_of(number) if projects.get_text(row) == project), None)

    def list_keys(self, rows: NDArray[np.int32]) -> list[Key]:
        """Return project and id of each row."""
        projects = self.texts["project"]
        numbers = projects.get_numbers(self.count)[rows].tolist()
        return list(
            zip(
                [projects.values[number] for number in numbers],
                self.names["id"].get_row_texts(rows, self.count),
                strict=True,
            )
        )

    @property
    def wasteful(self) -> bool:
        """Return True if most stored texts of some column belong to no job any more."""
        most = 2 * (self.count - len(self._free)) + _SPARE
        counts = [*map(len, self.names.values()), *(len(self.texts[name].values) for name in TEXTS)]
        return max(counts) > most

    def stores(self, name: str) -> bool:
        """Return False for a text of ``LONG`` that took too much memory."""
        return name not in LONG or self.texts[name].size <= MOST_LONG_BYTES

    def sort_values(self, name: str, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the sort keys of rows, for any of the columns except ``LONG``."""
        if name in self.times:
            return self.times[name].get_first(self.count)[rows]
        column = self.get_column(name)
        return column.rank_numbers()[column.get_numbers(self.count)[rows]]

    def get_column(self, name: str) -> DictionaryColumn[str] | NameColumn:
        """Return the column of a text."""
        return self.names[name] if name in self.names else self.texts[name]

    def _row_for(self, number: int, project: str) -> int:
        projects = self.texts["project"]
        for row in self._rows_of(number):
            if projects.get_text(row) == project:
                return row
        return self._allocate_row(number)

    def _allocate_row(self, number: int) -> int:
        row = self._free.pop() if self._free else self.count
        self.count = max(self.count, row + 1)
        if not self._firsts.get_first(number + 1)[number]:
            self._firsts[number] = row + 1
        else:
            self._further.setdefault(number, []).append(row)
        self._there[row] = True
        return row

    def _rows_of(self, number: int) -> list[int]:
        first = int(self._firsts.get_first(number + 1)[number])
        if not first:
            return []
        return [first - 1, *self._further.get(number, ())]

    def _set(self, row: int, job: JobRow) -> None:
        for name in (*TEXTS, *LONG):
            # A column that took too much memory is dropped for good, and stays empty.
            self.texts[name].set(row, getattr(job, name) if self.stores(name) else "")
        for name in TIMES:
            value = getattr(job, name)
            self.times[name][row] = UNKNOWN if value is None else value
        self.fields.set(row, job.labels, job.extra)

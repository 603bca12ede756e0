"""Who answers a listing: the columns in memory where there are many jobs, else the database."""

import itertools
import threading
from typing import TYPE_CHECKING

import sqlalchemy as sa

from jobmeter.model.job import JobFilter, JobPage, JobView
from jobmeter.model.time import TimeRange
from jobmeter.registry import listing
from jobmeter.registry.database import Database
from jobmeter.registry.groups import group_views
from jobmeter.registry.schema import jobs

if TYPE_CHECKING:
    from jobmeter.registry.columns.keep import Keeper

LARGE = 10_000
"""So many jobs have columns in memory, about 250 bytes each; the database lists fewer fast enough."""
LOOK_EVERY = 1_000
"""At one listing or write of so many it is looked whether there are that many by now."""


class Listings:
    """Listings of one registry. Safe to use from any thread."""

    def __init__(self, database: Database) -> None:
        """Nothing is read before the first listing or write: who manages keys needs no columns."""
        self._database = database
        self._lock = threading.Lock()
        self._calls = itertools.count()
        self._closed = False
        self._keeper: Keeper | None = None

    @property
    def ready(self) -> bool:
        """Whether listings are answered from memory now."""
        return self._keeper is not None and self._keeper.ready

    def jobs(self, question: JobFilter, now_ms: int) -> JobPage:
        """See ``Registry.jobs``."""
        listing.check(question, now_ms)
        if self._keeper is not None:
            page = self._keeper.jobs(question, now_ms)
            if page is not None:
                return page
        with self._database.read() as connection:
            page = listing.list_jobs(connection, question, now_ms)
            if self._keeper is None and (page.total >= LARGE or self._due()):
                self._look(connection)
        return page

    def group_jobs(
        self, projects: frozenset[str] | None, resource_group: str, span: TimeRange, now_ms: int
    ) -> list[JobView]:
        """See ``Registry.group_jobs``."""
        if self._keeper is not None:
            views = self._keeper.group_jobs(projects, resource_group, span, now_ms)
            if views is not None:
                return views
        with self._database.read() as connection:
            return group_views(connection, projects, resource_group, span, now_ms)

    def written(self) -> None:
        """Jobs were written."""
        if self._keeper is not None:
            self._keeper.written()
        elif self._due():
            with self._database.read() as connection:
                self._look(connection)

    def close(self) -> None:
        """End what runs in the background."""
        with self._lock:
            self._closed = True
        if self._keeper is not None:
            self._keeper.close()

    def _due(self) -> bool:
        return next(self._calls) % LOOK_EVERY == 0

    def _look(self, connection: sa.Connection) -> None:
        many = connection.execute(sa.select(sa.literal(1)).select_from(jobs).limit(1).offset(LARGE)).first()
        if many is None:
            return
        # NumPy is for those who have many jobs.
        from jobmeter.registry.columns.keep import Keeper  # noqa: PLC0415 - said above

        with self._lock:
            if self._keeper is None and not self._closed:
                self._keeper = Keeper(self._database)

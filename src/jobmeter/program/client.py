"""``jobmeter.Client``: the jobs of a server for programs and notebooks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from jobmeter.cli.local import connect
from jobmeter.cli.output import duration, moment
from jobmeter.cli.resource_columns import began, ended
from jobmeter.client.api import PAGE, Api
from jobmeter.client.bodies import Comparison
from jobmeter.client.searches import JobSearch
from jobmeter.model import job as model
from jobmeter.model.time import Clock, SystemClock, parse_duration
from jobmeter.program import html
from jobmeter.program.frames import Columns, Table
from jobmeter.program.job import Job
from jobmeter.program.retry import RetryingTransport

_FIELDS = ("id", "name", "type", "state", "project", "user", "created", "start", "end", "exit_code", "error")


class Jobs(list[model.Job], Table):
    """List of jobs, newest first; ``total`` is the number of all matches."""

    total: int = 0

    def columns(self) -> Columns:
        """Return the columns of a table of jobs; times are epoch milliseconds."""
        columns = {name: [getattr(job, name) for job in self] for name in _FIELDS}
        return {**columns, "state": [str(job.state) for job in self]}

    def _repr_html_(self) -> str:
        rows = [[html.text(text) for text in _row(job)] for job in self[:_SHOWN]]
        shown = html.table(("id", "name", "type", "state", "user", "start", "duration"), rows)
        return f"<p>{min(len(self), _SHOWN)} of {self.total} jobs</p>{shown}"


_SHOWN = 100


class Client:
    """Client of a Jobmeter server. Thread-safe.

    ``server`` and ``key`` default to ``JOBMETER_SERVER`` and ``JOBMETER_KEY``, else to the server that runs on the data
    folder, with its key. If no server runs there, ``start`` starts one. Every method raises an error of
    ``jobmeter.errors`` with a sentence that describes the problem.
    """

    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        project: str | None = None,
        data: str | Path | None = None,
        start: bool = True,
        retries: int = 3,
        clock: Clock | None = None,
    ) -> None:
        """``project`` restricts queries to one project. ``retries`` is the number of retries of a query."""
        found = connect(server, key, None if data is None else Path(data), start)
        found.close()
        self.project = project
        self.api = Api(RetryingTransport(found.server, found.key, retries=retries))
        self._clock = clock or SystemClock()

    def jobs(
        self,
        *,
        state: str | Sequence[str] = (),
        type: str | Sequence[str] = (),  # noqa: A002 - the field is called so
        user: str | Sequence[str] = (),
        name: str = "",
        since: str | None = None,
        limit: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Jobs:
        """List all matching jobs, newest first.

        ``name`` is a part of the name or the id. ``since`` is the largest age of creation (``7d``). ``progress`` is
        called page by page with the number received and the number of matches.
        """
        created_from = self._clock.now_ms() - parse_duration(since, "since") if since else None
        found = Jobs()
        while limit is None or len(found) < limit:
            search = JobSearch(
                states=_several(state),
                types=_several(type),
                users=_several(user),
                name=name,
                project=self.project,
                created_from=created_from,
                limit=PAGE if limit is None else min(PAGE, limit - len(found)),
                offset=len(found),
            )
            page = self.api.jobs(search)
            found.extend(page.jobs)
            found.total = page.total
            if progress is not None:
                progress(len(found), page.total if limit is None else min(limit, page.total))
            if not page.jobs or len(found) >= page.total:
                break
        return found

    def job(self, name: str = "last") -> Job:
        """Find a job by id, name or unique prefix of an id; ``last`` is the newest. Raises NotFoundError."""
        found = self.api.find(name, self.project)
        return Job(self.api, self.api.job(found.id, found.project))

    def compare(self, *names: str, metrics: Sequence[str] = (), step: str | None = None) -> Comparison:
        """Compare jobs side by side, aligned at their starts; ``metrics`` adds their values over time."""
        found = [self.api.find(name, self.project).id for name in names]
        return self.api.compare(found, metrics, step, self.project)

    def nodes(self) -> list[model.Node]:
        """List the machines that agents run on."""
        return self.api.nodes(self.project)

    def close(self) -> None:
        """Close the connections."""
        self.api.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.api.transport.server}>"


def _several(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else tuple(value)


def _row(job: model.Job) -> tuple[str, ...]:
    start, end = began(job), ended(job)
    length = None if start is None or end is None else max(end - start, 0)
    return job.id, job.name, job.type, str(job.state), job.user, moment(start), duration(length)

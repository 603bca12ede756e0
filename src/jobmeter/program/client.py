"""``jobmeter.Client``: the jobs of a server for programs and notebooks. It retries queries after temporary failures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from jobmeter.cli.local import connect
from jobmeter.cli.output import format_count, format_duration, format_time
from jobmeter.client.api import PAGE, Api
from jobmeter.client.searches import JobSearch
from jobmeter.model import job as model
from jobmeter.model.time import Clock, SystemClock, parse_duration
from jobmeter.program import html
from jobmeter.program.comparison import JobComparison, compare_jobs
from jobmeter.program.frames import Columns, RecordList, Table
from jobmeter.program.job import JobHandle, find_job
from jobmeter.program.retry import RetryingTransport

_FIELDS = ("id", "name", "type", "state", "project", "user", "created", "start", "end", "exit_code", "error")
_SHOWN = 100


class Jobs(list[JobHandle], Table):
    """List of jobs, newest first; ``total`` is the number of all matches."""

    total: int = 0

    def columns(self) -> Columns:
        """Return the columns of a table of jobs; times are epoch ms, a finding is the sentence of the worst one."""
        columns = {name: [getattr(job, name) for job in self] for name in _FIELDS}
        found = [job.worst_finding.sentence if job.worst_finding else "" for job in self]
        return {**columns, "state": [str(job.state) for job in self], "finding": found}

    def __repr__(self) -> str:
        lines = [f"{job.id}  {job.name}  {job.state}" for job in self[:_FEW]]
        more = [f"... {len(self) - _FEW} more"] if len(self) > _FEW else []
        return "\n".join([f"<{len(self)} of {format_count(self.total, 'job')}>", *lines, *more])

    def _repr_html_(self) -> str:
        rows = [[html.escape_text(text) for text in _row(job)] for job in self[:_SHOWN]]
        shown = html.build_table(("id", "name", "type", "state", "user", "start", "duration", "finding"), rows)
        return f"<p>{min(len(self), _SHOWN)} of {self.total} jobs</p>{shown}"


_FEW = 20


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
        found, known, offset = Jobs(), set[tuple[str, str]](), 0
        while limit is None or len(found) < limit:
            search = JobSearch(
                states=_to_sequence(state),
                types=_to_sequence(type),
                users=_to_sequence(user),
                name=name,
                project=self.project,
                created_from=created_from,
                limit=PAGE if limit is None else min(PAGE, limit),
                offset=offset,
            )
            page = self.api.list_jobs(search)
            worst = {(one.project, one.id): one for one in page.findings or ()}
            # A job that was created meanwhile moves the last jobs of a page to the next page.
            fresh = {key: job for job in page.jobs if (key := (job.project, job.id)) not in known}
            known.update(fresh)
            found.extend(JobHandle(self.api, job, worst.get(key)) for key, job in fresh.items())
            found.total = page.total
            offset += len(page.jobs)
            if progress is not None:
                most = page.total if limit is None else min(limit, page.total)
                progress(min(len(found), most), most)
            if not fresh or offset >= page.total:
                break
        del found[len(found) if limit is None else limit :]
        return found

    def job(self, name: str = "last") -> JobHandle:
        """Find a job by id, name or unique prefix of an id; ``last`` is the newest. Raises NotFoundError."""
        return find_job(self.api, name, self.project)

    def compare(self, *jobs: str | JobHandle, metrics: Sequence[str] = (), step: str | None = None) -> JobComparison:
        """Compare jobs, or jobs of these names, aligned at their starts; ``metrics`` adds their values over time."""
        return compare_jobs(self.api, self.project, jobs, metrics, step)

    def nodes(self) -> RecordList[model.Node]:
        """List the machines that agents run on."""
        return RecordList(model.Node, self.api.list_nodes(self.project))

    def close(self) -> None:
        """Close the connections."""
        self.api.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.api.transport.server}>"


def _to_sequence(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else tuple(value)


def _row(job: JobHandle) -> tuple[str, ...]:
    length = None if job.start is None or job.end is None else max(job.end - job.start, 0)
    found = job.worst_finding.sentence if job.worst_finding else ""
    return job.id, job.name, job.type, str(job.state), job.user, format_time(job.start), format_duration(length), found

"""``jobmeter.AsyncClient``: ``Client`` for programs with an event loop; each call runs on a thread."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

from jobmeter.client.bodies import LogEntry, TimelineMoment
from jobmeter.model import job as model
from jobmeter.model.annotation import JobNote, JobTag
from jobmeter.model.answers import LatestValue, Shared
from jobmeter.model.event import Event
from jobmeter.model.job_answers import JobSummary
from jobmeter.program.client import Client, Jobs
from jobmeter.program.comparison import JobComparison
from jobmeter.program.frames import RecordList
from jobmeter.program.job import Findings, JobHandle, Phases, Quality
from jobmeter.program.metrics import Metrics


class AsyncJob:
    """Asynchronous ``JobHandle``: its queries are awaited."""

    def __init__(self, job: JobHandle) -> None:
        self.job, self.record = job, job.record
        self.id, self.name, self.project, self.state = job.id, job.name, job.project, job.state

    @property
    def summary(self) -> JobSummary:
        """Usage over its life."""
        return self.job.summary

    async def refresh(self) -> "AsyncJob":
        """Read the job again."""
        return AsyncJob(await asyncio.to_thread(self.job.refresh))

    async def wait(self, timeout: str | float | None = None, **how: Any) -> "AsyncJob":  # noqa: ANN401, ASYNC109
        """Wait until the job has ended; see ``JobHandle.wait``. A wait that is cancelled leaves no thread behind."""
        polls = self.job.polls(timeout, **how)
        job, left = await asyncio.to_thread(next, polls)
        # A thread that slept would outlive a cancelled wait, and keep other calls from the few threads of the loop.
        while left:
            await asyncio.sleep(left)
            job, left = await asyncio.to_thread(next, polls)
        await asyncio.to_thread(getattr, job, "detail")
        return AsyncJob(job)

    async def metrics(self, *names: str, **how: Any) -> Metrics:  # noqa: ANN401 - the fields of MetricSearch
        """Read its usage over time; see ``JobHandle.metrics``."""
        return await asyncio.to_thread(self.job.metrics, *names, **how)

    async def latest(self, *names: str, by: str = "replica") -> RecordList[LatestValue]:
        """Read the newest values; see ``JobHandle.latest``."""
        return await asyncio.to_thread(self.job.latest, *names, by=by)

    async def logs(self, **which: Any) -> AsyncIterator[LogEntry]:  # noqa: ANN401 - the fields of LogSearch
        """Iterate over its log lines as they arrive; see ``JobHandle.logs``."""
        lines = iter(self.job.logs(**which))
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            yield line

    async def events(self, **which: Any) -> RecordList[Event]:  # noqa: ANN401 - the fields of EventSearch
        """Read its events; see ``JobHandle.events``."""
        return await asyncio.to_thread(self.job.events, **which)

    async def findings(self) -> Findings:
        """Read its findings; see ``JobHandle.findings``."""
        return await asyncio.to_thread(self.job.findings)

    async def timeline(self, *kinds: str, limit: int = 1_000) -> RecordList[TimelineMoment]:
        """Read its history; see ``JobHandle.timeline``."""
        return await asyncio.to_thread(self.job.timeline, *kinds, limit=limit)

    async def quality(self) -> Quality:
        """Read the quality of its samples; see ``JobHandle.quality``."""
        return await asyncio.to_thread(self.job.quality)

    async def phases(self) -> Phases:
        """Read its phases; see ``JobHandle.phases``."""
        return await asyncio.to_thread(self.job.phases)

    async def compare(self, *others: str, metrics: Sequence[str] = (), step: str | None = None) -> JobComparison:
        """Compare it with other jobs; see ``JobHandle.compare``."""
        return await asyncio.to_thread(self.job.compare, *others, metrics=metrics, step=step)

    async def tags(self) -> RecordList[JobTag]:
        """Read its tags; see ``JobHandle.tags``."""
        return await asyncio.to_thread(self.job.tags)

    async def tag(self, *tags: str, remove: Sequence[str] = (), author: str = "") -> RecordList[JobTag]:
        """Add and remove tags; see ``JobHandle.tag``."""
        return await asyncio.to_thread(self.job.tag, *tags, remove=remove, author=author)

    async def notes(self) -> RecordList[JobNote]:
        """Read its notes; see ``JobHandle.notes``."""
        return await asyncio.to_thread(self.job.notes)

    async def note(self, text: str, at: int | str | None = None, *, author: str = "") -> JobNote:
        """Write a note; see ``JobHandle.note``."""
        return await asyncio.to_thread(self.job.note, text, at, author=author)

    async def delete_note(self, note: JobNote | str) -> None:
        """Delete a note; see ``JobHandle.delete_note``."""
        await asyncio.to_thread(self.job.delete_note, note)

    async def share(self, expires: str | None = None) -> Shared:
        """Create a token for its metrics; see ``JobHandle.share``."""
        return await asyncio.to_thread(self.job.share, expires)

    def __repr__(self) -> str:
        return repr(self.job)

    def _repr_html_(self) -> str:
        return self.job._repr_html_()


class AsyncClient:
    """Asynchronous ``Client`` with equal arguments; ``async with`` opens and closes it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of Client
        self._arguments, self._options = arguments, options
        self._client: Client | None = None

    async def _open_client(self) -> Client:
        if self._client is None:
            self._client = await asyncio.to_thread(Client, *self._arguments, **self._options)
        return self._client

    async def jobs(self, **which: Any) -> Jobs:  # noqa: ANN401 - the arguments of Client.jobs
        """List the jobs that match; see ``Client.jobs``. Their own queries are not asynchronous, see ``AsyncJob``."""
        client = await self._open_client()
        return await asyncio.to_thread(client.jobs, **which)

    async def job(self, name: str = "last") -> AsyncJob:
        """Find a job; see ``Client.job``."""
        client = await self._open_client()
        return AsyncJob(await asyncio.to_thread(client.job, name))

    async def compare(self, *names: str, metrics: Sequence[str] = (), step: str | None = None) -> JobComparison:
        """Compare jobs side by side; see ``Client.compare``."""
        client = await self._open_client()
        return await asyncio.to_thread(client.compare, *names, metrics=metrics, step=step)

    async def nodes(self) -> RecordList[model.Node]:
        """List the machines that agents run on."""
        client = await self._open_client()
        return await asyncio.to_thread(client.nodes)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        await self._open_client()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

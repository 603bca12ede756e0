"""``jobmeter.AsyncClient``: ``Client`` for programs with an event loop; each call runs on a thread."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from jobmeter.client.bodies import LogEntry
from jobmeter.model.job_answers import JobSummary
from jobmeter.program.client import Client
from jobmeter.program.job import JobHandle

P = ParamSpec("P")
R = TypeVar("R")


def _run_on_thread(
    method: Callable[Concatenate[JobHandle, P], R],
) -> Callable[Concatenate["AsyncJob", P], Coroutine[Any, Any, R]]:
    """Make the asynchronous form of a method of ``JobHandle``, which has its arguments and its documentation."""

    @wraps(method)
    async def call(job: "AsyncJob", /, *arguments: P.args, **named: P.kwargs) -> R:
        return await asyncio.to_thread(method, job.job, *arguments, **named)

    return call


def _run_client_on_thread(
    method: Callable[Concatenate[Client, P], R],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, R]]:
    """Make the asynchronous form of a method of ``Client``."""

    @wraps(method)
    async def call(client: "AsyncClient", /, *arguments: P.args, **named: P.kwargs) -> R:
        return await asyncio.to_thread(method, await client.open_client(), *arguments, **named)

    return call


class AsyncJob:
    """Asynchronous ``JobHandle``: its queries are awaited."""

    metrics = _run_on_thread(JobHandle.metrics)
    latest = _run_on_thread(JobHandle.latest)
    events = _run_on_thread(JobHandle.events)
    findings = _run_on_thread(JobHandle.findings)
    timeline = _run_on_thread(JobHandle.timeline)
    quality = _run_on_thread(JobHandle.quality)
    phases = _run_on_thread(JobHandle.phases)
    compare = _run_on_thread(JobHandle.compare)
    tags = _run_on_thread(JobHandle.tags)
    tag = _run_on_thread(JobHandle.tag)
    notes = _run_on_thread(JobHandle.notes)
    note = _run_on_thread(JobHandle.note)
    delete_note = _run_on_thread(JobHandle.delete_note)
    share = _run_on_thread(JobHandle.share)

    def __init__(self, job: JobHandle) -> None:
        self.job, self.record = job, job.record
        self.id, self.name, self.project, self.state = job.id, job.name, job.project, job.state

    @property
    def summary(self) -> JobSummary:
        """Usage of the job over its life."""
        return self.job.summary

    async def refresh(self) -> "AsyncJob":
        """Read the job again."""
        return AsyncJob(await asyncio.to_thread(self.job.refresh))

    async def wait(self, timeout: str | float | None = None, **how: Any) -> "AsyncJob":  # noqa: ANN401, ASYNC109
        """Wait until the job has ended; see ``JobHandle.wait``. A wait that is cancelled leaves no thread behind."""
        polls = self.job.poll(timeout, **how)
        job, left = await asyncio.to_thread(next, polls)
        # A thread that slept would outlive a cancelled wait, and keep other calls from the few threads of the loop.
        while left:
            await asyncio.sleep(left)
            job, left = await asyncio.to_thread(next, polls)
        await asyncio.to_thread(getattr, job, "detail")
        return AsyncJob(job)

    async def logs(self, **which: Any) -> AsyncIterator[LogEntry]:  # noqa: ANN401 - the fields of LogSearch
        """Iterate over the job's log lines as they arrive; see ``JobHandle.logs``."""
        lines = iter(self.job.logs(**which))
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            yield line

    def __repr__(self) -> str:
        return repr(self.job)

    def _repr_html_(self) -> str:
        return self.job._repr_html_()


class AsyncClient:
    """Asynchronous ``Client`` with equal arguments; ``async with`` opens and closes it.

    The jobs that ``jobs`` returns are synchronous ``JobHandle`` objects; ``job`` returns an ``AsyncJob``.
    """

    jobs = _run_client_on_thread(Client.jobs)
    compare = _run_client_on_thread(Client.compare)
    nodes = _run_client_on_thread(Client.nodes)

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - those of Client
        self._arguments, self._options = arguments, options
        self._client: Client | None = None

    async def open_client(self) -> Client:
        """Open the connections unless they are open."""
        if self._client is None:
            self._client = await asyncio.to_thread(Client, *self._arguments, **self._options)
        return self._client

    async def job(self, name: str = "last") -> AsyncJob:
        """Find a job; see ``Client.job``."""
        client = await self.open_client()
        return AsyncJob(await asyncio.to_thread(client.job, name))

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        await self.open_client()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

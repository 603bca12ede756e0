"""Tests of ``JobHandle.wait`` with a manual clock."""

import asyncio
import math

import pytest

from jobmeter.client.api import Api
from jobmeter.client.transport import Transport
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import JobState
from jobmeter.model.job_answers import JobBody, JobDetail
from jobmeter.program.asynchronous import AsyncJob
from jobmeter.program.job import JobHandle


class Server(Api):
    """Job whose state changes with each query."""

    def __init__(self, *states):
        super().__init__(Transport("http://127.0.0.1:9"))
        self.states = list(states)
        self.now = 0.0
        self.whole_reads = 0

    def read_job(self, job, project=None, *, summary=True):
        assert (job, project) == ("a", "p")
        if summary:
            self.whole_reads += 1
            return JobDetail(job=JobBody(id=job, project=project))
        state = self.states.pop(0)
        if state is None:
            raise NotFoundError("there is no job a")
        return JobDetail(job=JobBody(id=job, project=project, state=state))

    def wait(self, **how):
        job = JobHandle(self, JobBody(id="a", project="p"))
        return job.wait(pause=self.pause, seconds=lambda: self.now, **how)

    def pause(self, seconds):
        assert seconds > 0
        self.now += seconds


def test_it_waits_through_the_queue_and_the_run_and_reports_progress():
    server, seen = Server(JobState.QUEUED, JobState.RUNNING, JobState.FAILED), []
    assert server.wait(progress=lambda job: seen.append(str(job.state))).state is JobState.FAILED
    assert seen == ["Queued", "Running", "Failed"]
    assert server.now == 10.0


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.STOPPED, JobState.UNKNOWN])
def test_an_ended_job_is_returned_at_once(state):
    server = Server(state)
    assert server.wait(timeout=0).state is state
    assert server.now == 0


@pytest.mark.parametrize("timeout", ["12s", 12, 12.0])
def test_a_job_that_runs_on_raises_after_the_timeout(timeout):
    server = Server(*[JobState.RUNNING] * 10)
    with pytest.raises(TimeoutError, match="job a is Running after 12"):
        server.wait(timeout=timeout)
    assert server.now == 12.0


def test_a_job_that_is_deleted_meanwhile_is_reported():
    with pytest.raises(NotFoundError):
        Server(JobState.RUNNING, None).wait()


@pytest.mark.parametrize("interval", [0, -1, math.nan])
def test_an_interval_that_is_no_time_is_refused(interval):
    with pytest.raises(InvalidRequestError, match=r"interval is .*: give a number of seconds above 0"):
        Server(JobState.RUNNING).wait(interval=interval)


def test_a_cancelled_wait_of_an_asynchronous_job_leaves_no_thread_that_waits():
    # The job continues: a thread that waits for its end would keep the event loop open.
    server = Server(*[JobState.RUNNING] * 2)

    async def cancel():
        read, loop = asyncio.Event(), asyncio.get_running_loop()
        job = AsyncJob(JobHandle(server, JobBody(id="a", project="p")))
        progress = lambda _: loop.call_soon_threadsafe(read.set)  # noqa: E731 - called on another thread
        waits = asyncio.create_task(job.wait(interval=3600, progress=progress))
        await read.wait()
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

    asyncio.run(cancel())
    assert len(server.states) == 1


def test_an_asynchronous_job_has_its_usage_at_its_end():
    server = Server(JobState.RUNNING, JobState.SUCCEEDED)

    async def wait():
        return await AsyncJob(JobHandle(server, JobBody(id="a", project="p"))).wait(interval=0.001)

    ended = asyncio.run(wait())
    assert (ended.state, server.states, server.whole_reads) == (JobState.SUCCEEDED, [], 1)
    assert ended.summary.metrics == []
    assert server.whole_reads == 1

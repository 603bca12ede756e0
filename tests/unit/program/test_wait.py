"""``Job.wait`` with the time of the test."""

import pytest

from jobmeter.client.api import Api
from jobmeter.client.bodies import JobDetail
from jobmeter.client.transport import Transport
from jobmeter.errors import NotFoundError
from jobmeter.model.job import Job as Record
from jobmeter.model.job import JobState
from jobmeter.program.job import Job


class Server(Api):
    """A job whose state changes with each query."""

    def __init__(self, *states):
        super().__init__(Transport("http://127.0.0.1:9"))
        self.states = list(states)
        self.now = 0.0

    def job(self, job, project=None, *, summary=True):
        assert (job, project, summary) == ("a", "p", False)
        state = self.states.pop(0)
        if state is None:
            raise NotFoundError("there is no job a")
        return JobDetail(job=Record(id=job, project=project, state=state))

    def wait(self, **how):
        job = Job(self, Record(id="a", project="p"))
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

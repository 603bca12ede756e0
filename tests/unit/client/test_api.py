import json

import pytest

from jobmeter.client.api import Api
from jobmeter.client.searches import JobSearch, MetricSearch
from jobmeter.client.transport import Response, Transport
from jobmeter.errors import JobmeterError
from jobmeter.model.job import JobState


class Recorded(Transport):
    """Transport that answers from a list."""

    def __init__(self, *answers: object) -> None:
        super().__init__("http://127.0.0.1:1")
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    def request(self, method, path, body=None, headers=None):
        self.asked.append((method, path))
        answer = self.answers.pop(0)
        return Response(200, {}, answer if isinstance(answer, bytes) else json.dumps(answer).encode())


def test_null_is_unknown():
    answer = {
        "jobs": [{"id": "a", "name": None, "limits": None, "state": "Failed", "start": None, "later": 1}],
        "total": 1,
    }
    [job] = Api(Recorded(answer)).list_jobs(JobSearch()).jobs
    assert (job.id, job.name, job.limits, job.state, job.start) == ("a", "", {}, JobState.FAILED, None)


def test_pages_are_fetched_as_they_are_needed():
    pages = [{"jobs": [{"id": str(n)} for n in range(start, start + 1000)], "total": 2500} for start in (0, 1000)]
    transport = Recorded(*pages, {"jobs": [{"id": "2000"}], "total": 2001})
    ids = [job.id for job, _ in Api(transport).iterate_jobs(JobSearch(states=("Running", "Failed")), 3000)]
    assert ids == [str(n) for n in range(2001)]
    assert [path.partition("?")[2] for _, path in transport.asked] == [
        "state=Running&state=Failed&limit=1000&findings=true",
        "state=Running&state=Failed&limit=1000&offset=1000&findings=true",
        "state=Running&state=Failed&limit=1000&offset=2000&findings=true",
    ]


def test_no_more_jobs_are_fetched_than_wanted():
    transport = Recorded({"jobs": [{"id": "0"}, {"id": "1"}], "total": 9})
    assert len(list(Api(transport).iterate_jobs(JobSearch(), 2))) == 2
    assert transport.asked == [("GET", "/api/jobmeter/v1/jobs?limit=2&findings=true")]


def test_points_keep_their_order_and_values():
    line = {"metric": "cpu.usage", "unit": "{core}", "rank": None, "points": [[5, 0.5], [6, 1]]}
    transport = Recorded({"job": "j", "lines": [line], "tiers": ["raw"]})
    answer = Api(transport).read_metrics("a b", MetricSearch(metrics=("cpu.usage",), since="1h"))
    assert answer.lines[0].points == [(5, 0.5), (6, 1.0)]
    assert transport.asked == [("GET", "/api/jobmeter/v1/jobs/a%20b/metrics?metric=cpu.usage&since=1h")]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"jobs": 5}'])
def test_an_answer_that_is_not_ours_is_reported(body):
    with pytest.raises(JobmeterError, match="cannot be read"):
        Api(Recorded(body)).list_jobs(JobSearch())

import pytest
from tests.unit.cli.conftest import FakeServer, server  # noqa: F401 - a fixture

from jobmeter.errors import NotFoundError, ThrottledError, UnavailableError
from jobmeter.program.retry import RetryingTransport


def refusal(status, code, **headers):
    return status, {"error": {"code": code, "message": code}, "request_id": "X"}, headers


def test_a_question_is_sent_again_as_late_as_the_server_says(server: FakeServer):  # noqa: F811
    answers = [refusal(429, "throttled", **{"Retry-After": "7"}), refusal(503, "unavailable"), (200, b"{}", {})]
    server.on("/jobs", lambda asked: answers.pop(0))
    waits: list[float] = []
    transport = RetryingTransport(server.url, wait=waits.append)
    assert transport.request("GET", "/api/jobmeter/v1/jobs").status == 200
    assert waits == [7.0, 1.0]
    transport.close()


@pytest.mark.parametrize(
    ("method", "answer", "error", "times"),
    [
        ("GET", refusal(503, "unavailable"), UnavailableError, 3),
        ("GET", refusal(404, "not_found"), NotFoundError, 1),
        ("POST", refusal(429, "throttled", **{"Retry-After": "99"}), ThrottledError, 1),
    ],
)
def test_errors_that_a_retry_cannot_fix_are_raised(server: FakeServer, method, answer, error, times):  # noqa: F811
    server.on("/jobs", lambda asked: answer, method)
    transport = RetryingTransport(server.url, retries=2, wait=lambda seconds: None)
    with pytest.raises(error):
        transport.request(method, "/api/jobmeter/v1/jobs", b"")
    assert len(server.asked) == times
    transport.close()

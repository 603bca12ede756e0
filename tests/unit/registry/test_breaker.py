"""Tests of the breaker: it closes when the database answers again, whatever happened before."""

import threading

import pytest
from sqlalchemy import exc
from tests.support.waiting import wait_until

from jobmeter.errors import UnavailableError
from jobmeter.registry import breaker
from jobmeter.registry.breaker import Breaker


def lost() -> exc.DBAPIError:
    return exc.OperationalError("SELECT 1", {}, Exception("the connection is gone"))


def is_open(one: Breaker) -> bool:
    try:
        one.check()
    except UnavailableError:
        return True
    return False


@pytest.mark.parametrize("error", [lost(), ValueError("a driver's bug"), OSError("no file"), RecursionError()])
def test_it_closes_after_errors_of_any_kind(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(breaker, "PROBE_SECONDS", 0.001)
    attempts, answers = list[int](), threading.Event()

    def probe() -> None:
        attempts.append(1)
        if not answers.is_set():
            raise error

    one = Breaker(probe)
    one.note(lost())
    wait_until(lambda: len(attempts) > 5)
    assert is_open(one)
    answers.set()
    wait_until(lambda: not is_open(one))
    one.close()
    # An unexpected error is logged, but not a thousand times.
    message = "the check of the registry's database failed"
    assert caplog.text.count(message) == (0 if isinstance(error, exc.SQLAlchemyError) else 1)

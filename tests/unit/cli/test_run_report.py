"""Tests of the problems that ``jobmeter run`` prints at its end."""

import pytest

from jobmeter.cli.run import _report
from jobmeter.collect.launch.figures import RunFigures
from jobmeter.collect.launch.result import Result
from jobmeter.model.job import JobState


@pytest.mark.parametrize(
    ("lost", "line"),
    [
        ({}, ""),
        (
            {"spool.full": 1200, "expired": 34, "odd": 1},
            (
                "jobmeter: 1,235 samples were lost\n"
                "jobmeter:   34 expired: they were older than the server's retention; raise that retention\n"
                "jobmeter:   1 odd: see the log of the server\n"
                "jobmeter:   1,200 spool.full: the server did not answer for too long; check the server\n"
            ),
        ),
    ],
    ids=["nothing", "samples"],
)
def test_lost_samples_are_reported_by_reason(lost, line, capsys):
    state, figures = JobState.SUCCEEDED, RunFigures()
    result = Result(status=0, state=state, reason="", start_ms=1, end_ms=2, figures=figures, undelivered="", lost=lost)
    _report(result, None)
    assert capsys.readouterr().err == line

"""Problems that ``jobmeter run`` prints at its end."""

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
            {"spool.full": 1200, "expired": 34},
            "jobmeter: 1,234 samples were lost (expired 34, spool.full 1,200); docs/how-to/run.md has the reasons\n",
        ),
    ],
    ids=["nothing", "samples"],
)
def test_the_end_counts_lost_samples_by_reason(lost, line, capsys):
    state, figures = JobState.SUCCEEDED, RunFigures()
    result = Result(status=0, state=state, reason="", start_ms=1, end_ms=2, figures=figures, undelivered="", lost=lost)
    _report(result, None)
    assert capsys.readouterr().err == line

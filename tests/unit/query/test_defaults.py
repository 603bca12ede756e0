"""Tests of default ranges and steps of queries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fakes import NOW

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Job, JobState
from jobmeter.model.steps import STEPS
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND, TimeRange, ceil_to, floor_to
from jobmeter.query.defaults import choose_range, choose_step, compute_life

RUNNING = Job(id="j", start=NOW - 5 * HOUR)
DONE = Job(id="j", state=JobState.SUCCEEDED, start=NOW - DAY, end=NOW - DAY + 90 * MINUTE)


@given(st.integers(0, NOW), st.integers(0, 400 * DAY))
def test_the_step_is_the_smallest_that_gives_at_most_240_buckets(start, length):
    span = TimeRange(start, start + length)
    step = choose_step(span)
    counts = {one: (ceil_to(span.end_ms, one) - floor_to(start, one)) // one for one in STEPS}
    assert step == min((one for one in STEPS if counts[one] <= 240), default=DAY)


@pytest.mark.parametrize(
    ("job", "given", "start", "end"),
    [
        pytest.param(RUNNING, {}, NOW + 1 - HOUR, NOW + 1, id="running: the last hour"),
        pytest.param(RUNNING, {"since": 5 * MINUTE}, NOW + 1 - 5 * MINUTE, NOW + 1, id="running, since"),
        pytest.param(RUNNING, {"start": NOW - 2 * HOUR}, NOW - 2 * HOUR, NOW + 1, id="running, start"),
        pytest.param(RUNNING, {"end": NOW - HOUR}, NOW - 2 * HOUR, NOW - HOUR, id="running, end"),
        pytest.param(DONE, {"step_ms": 7 * SECOND}, DONE.start, None, id="done, step"),
        pytest.param(DONE, {}, DONE.start, NOW - DAY + 90 * MINUTE + 30 * SECOND, id="done: its whole life"),
        pytest.param(DONE, {"end": NOW}, DONE.start, NOW, id="done, end"),
        pytest.param(DONE, {"start": 5, "end": 6}, 5, 6, id="both"),
        pytest.param(
            Job(id="j", state=JobState.FAILED, first_sample=NOW - HOUR, last_sample=NOW - 5 * MINUTE, created=1),
            {"step_ms": MINUTE},
            NOW - HOUR,
            NOW - 4 * MINUTE,
            id="unrecorded: its samples",
        ),
    ],
)
def test_ranges(job, given, start, end):
    span = choose_range(job, NOW, **given)
    assert span.start_ms == start
    if end is not None:
        assert span.end_ms == end
    else:
        assert span.end_ms % given["step_ms"] == 0
        assert 0 < span.end_ms - (job.end or 0) <= given["step_ms"]


@pytest.mark.parametrize(
    ("ago", "last_sample", "after"),
    [
        pytest.param(3 * SECOND, None, 3 * SECOND, id="its last samples may be stored and not yet reported: until now"),
        pytest.param(3 * SECOND, -8 * SECOND, 3 * SECOND, id="reported until before its end"),
        pytest.param(50 * SECOND, 2 * SECOND, 30 * SECOND, id="as late as a reading may be"),
        pytest.param(2 * MINUTE, 2 * SECOND, 2 * SECOND, id="until its last sample"),
        pytest.param(2 * MINUTE, 40 * SECOND, 0, id="a sample that is not its own any more"),
        pytest.param(2 * MINUTE, None, 0, id="without samples"),
        pytest.param(-5 * SECOND, None, 0, id="an end that the server's clock has yet to reach"),
    ],
)
def test_the_life_of_a_job_holds_its_last_samples(ago, last_sample, after):
    end = NOW - ago
    last = None if last_sample is None else end + last_sample
    job = Job(id="j", state=JobState.SUCCEEDED, start=NOW - HOUR, end=end, last_sample=last)
    assert compute_life(job, NOW) == TimeRange(NOW - HOUR, end + after + 1)


def test_an_end_before_the_start_is_refused_by_name():
    with pytest.raises(InvalidRequestError) as caught:
        choose_range(RUNNING, NOW, start=NOW, end=NOW - 1)
    assert caught.value.field == "end"

"""Tests of the newest time of a body, read without decoding the body."""

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.log import LogLine
from jobmeter.model.record import NodeRecord, Records
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.wire.native.encode import make_records_frame, make_samples_frame
from jobmeter.wire.native.logs import make_logs_frame
from jobmeter.wire.native.times import find_newest_time

TIMES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**42)), max_size=20)


@given(TIMES, TIMES)
def test_the_newest_time_is_that_of_the_samples_and_lines(samples, lines):
    body = make_samples_frame(Sample(Series("cpu.time", node=f"n{node}"), time_ms, 1.0) for node, time_ms in samples)
    body += make_records_frame(Records(nodes=[NodeRecord(name="n")]))
    if lines:
        body += make_logs_frame(LogLine(time_ns=ms * 10**6 + 5, text="x", job=f"j{job}") for job, ms in lines)
    assert find_newest_time(body) == max((ms for _, ms in [*samples, *lines]), default=0)


def test_a_body_without_times_has_none():
    assert find_newest_time(b"") == 0
    assert find_newest_time(make_records_frame(Records(nodes=[NodeRecord(name="n")]))) == 0

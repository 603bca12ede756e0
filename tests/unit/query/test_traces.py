"""Tests of questions about traces on the real engine."""

from datetime import UTC, datetime

import pytest

from jobmeter.access.principal import Scope
from jobmeter.model.retention import Retention
from jobmeter.model.span import Span
from jobmeter.model.time import SystemClock
from jobmeter.model.trace_filter import TraceFilter
from jobmeter.query.meter import Meter
from jobmeter.query.traces import list_traces
from jobmeter.settings import Limits

START = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * 10**9
FAR, LONG_AGO = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 10**9 for year in (9999, 1))


@pytest.fixture
def store(empty_store):
    span = Span(trace="a" * 32, span="b" * 16, start_ns=START, end_ns=START + 5)
    empty_store.spans.append([span], Retention(raw_days=9_999))
    return empty_store


@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ({"start_ns": LONG_AGO, "end_ns": FAR}, 1),
        ({"end_ns": FAR}, 1),
        ({"start_ns": FAR}, 0),
        ({"end_ns": LONG_AGO}, 0),
        ({"start_ns": START, "end_ns": START + 1}, 1),
        ({"end_ns": START}, 0),
    ],
)
def test_a_bound_beyond_what_64_bits_hold_is_no_bound(store, bounds, found):
    page = list_traces(store, TraceFilter(count=True, **bounds), Scope(None), Meter(SystemClock(), Limits()))
    assert (len(page.traces), page.total) == (found, found)

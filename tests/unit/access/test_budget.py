import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fakes import SetClock

from jobmeter.access.limit import Allowance, Budget, parse_budget
from jobmeter.errors import ConfigurationError, ThrottledError


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("", Budget()),
        ("rows=5", Budget(rows=5)),
        (
            " rows = 2000000 , seconds=600,concurrent=3,exports=1,",
            Budget(rows=2_000_000, seconds=600, concurrent=3, exports=1),
        ),
    ],
)
def test_a_budget_is_read(text, budget):
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["rows", "rows=", "rows=-1", "rows=0", "rows=1.5", "bytes=1", "rows=1,rows=2", "=3"])
def test_what_is_no_budget_is_named(text):
    with pytest.raises(ConfigurationError, match="query budget"):
        parse_budget(text)


def test_a_key_begins_while_anything_is_left_and_pays_by_waiting():
    clock = SetClock()
    allowance = Allowance(clock, 600, "stored rows")
    allowance.check("a")
    allowance.spend("a", 1_200)
    with pytest.raises(ThrottledError, match="600 stored rows a minute") as caught:
        allowance.check("a")
    assert caught.value.retry_after_ms == 60_100
    allowance.check("b")
    clock.time_ms += 60_000
    with pytest.raises(ThrottledError):
        allowance.check("a")
    clock.time_ms += 100
    allowance.check("a")


@given(st.lists(st.tuples(st.integers(0, 120_000), st.integers(0, 500)), max_size=30), st.integers(1, 1_000))
def test_after_the_stated_wait_a_key_may_always_begin(steps, a_minute):
    clock = SetClock()
    allowance = Allowance(clock, a_minute, "stored rows")
    spent = 0
    for pause, cost in steps:
        clock.time_ms += pause
        try:
            allowance.check("a")
        except ThrottledError as error:
            clock.time_ms += error.retry_after_ms
            allowance.check("a")
        allowance.spend("a", cost)
        spent += cost
    passed = (clock.time_ms - SetClock().time_ms) / 60_000
    # The bound is the income, one full minute at the beginning, and the excess of the last question.
    assert spent <= a_minute * (1 + passed) + 500


def test_what_is_not_limited_is_not_counted():
    allowance = Allowance(SetClock(), 0, "seconds")
    allowance.spend("a", 10**9)
    allowance.check("a")


def test_only_so_many_keys_are_remembered():
    allowance = Allowance(SetClock(), 10, "seconds", most=2)
    for key in ("a", "b", "c"):
        allowance.spend(key, 100)
    allowance.check("a")
    with pytest.raises(ThrottledError):
        allowance.check("c")

"""Tests of the usage meter: it counts each call once, despite failures of the registry."""

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.access.conftest import FixedClock

from jobmeter.access.months import Calendar
from jobmeter.access.usage import UsageMeter
from jobmeter.errors import UnavailableError
from jobmeter.model.usage import Usage


class Ledger:
    """Sum of counts, like the registry.

    ``failures`` are the outcomes of its calls: done, refused, or done without an answer.
    """

    def __init__(self, failures: Sequence[str] = ()) -> None:
        self.failures = list(failures)
        self.totals: Counter[tuple[str, str, str, str]] = Counter()
        self.failed: Counter[tuple[str, str, str, str]] = Counter()
        self._last: dict[str, int] = {}

    def add(self, writer: str, batch: int, rows: Sequence[Usage], now_ms: int) -> None:
        fate = self.failures.pop(0) if self.failures else ""
        if fate == "refused":
            raise UnavailableError("away")
        if batch > self._last.get(writer, 0):
            self._last[writer] = batch
            for row in rows:
                self.totals[row.month, row.account, row.api, row.operation] += row.calls
                self.failed[row.month, row.account, row.api, row.operation] += row.failed
        if fate == "unheard":
            raise UnavailableError("cut off after the commit")


CALLS = st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from([200, 404, 429, 500]))


@given(
    steps=st.lists(st.one_of(CALLS, st.just("flush")), max_size=60),
    failures=st.lists(st.sampled_from(["", "refused", "unheard"]), max_size=20),
)
def test_every_call_is_added_once_whatever_becomes_of_a_batch(steps: list[object], failures: list[str]) -> None:
    ledger, clock = Ledger(failures), FixedClock()
    meter = UsageMeter(ledger.add, clock, Calendar("UTC"))
    expected: Counter[tuple[str, str]] = Counter()
    for step in steps:
        if isinstance(step, tuple):
            account, operation, status = step
            meter.count(account, "api", operation, failed=status >= 400)
            expected[account, operation] += 1
        else:
            with suppress(UnavailableError):
                meter.flush()
    ledger.failures.clear()
    meter.flush()
    assert {(account, operation): count for (_, account, _, operation), count in ledger.totals.items()} == expected


def test_failures_are_calls_too() -> None:
    ledger, clock = Ledger(), FixedClock()
    meter = UsageMeter(ledger.add, clock, Calendar("UTC"))
    for failed in (False, False, True, True, True, False):
        meter.count("a", "api", "op", failed=failed)
    meter.flush()
    assert list(ledger.totals.values()) == [6]
    assert list(ledger.failed.values()) == [3]


def test_a_call_counts_in_the_month_in_which_it_is_answered() -> None:
    ledger, clock, calendar = Ledger(), FixedClock(), Calendar("Asia/Shanghai")
    clock.ms = calendar.parse_month("2026-11").end_ms - 1
    meter = UsageMeter(ledger.add, clock, calendar)
    meter.count("a", "api", "op", failed=False)
    clock.ms += 1
    meter.count("a", "api", "op", failed=False)
    clock.ms -= 1  # a clock that was set back
    meter.count("a", "api", "op", failed=False)
    meter.flush()
    assert {key[0]: count for key, count in ledger.totals.items()} == {"2026-11": 2, "2026-12": 1}


def test_threads_count_together() -> None:
    ledger, clock = Ledger(), FixedClock()
    meter = UsageMeter(ledger.add, clock, Calendar("UTC"))
    start = threading.Barrier(9)

    def work() -> None:
        start.wait()
        for _ in range(2_000):
            meter.count("a", "api", "op", failed=False)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    start.wait()
    for _ in range(20):
        meter.flush()
    for thread in threads:
        thread.join()
    meter.flush()
    assert list(ledger.totals.values()) == [16_000]


def test_it_retries_with_backoff_while_the_registry_is_away() -> None:
    meter = UsageMeter(Ledger(["refused"]).add, FixedClock(), Calendar("UTC"))
    meter.count("a", "api", "op", failed=False)
    with pytest.raises(UnavailableError):
        meter.round()
    assert meter.interval == 10
    meter.round()
    assert meter.interval == 1

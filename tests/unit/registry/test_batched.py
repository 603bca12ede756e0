"""Tests of batches: each call gets its own result, begins before its batch runs, and shares its error."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.waiting import wait_until

from jobmeter.registry.batched import Batched


def test_each_call_gets_its_result() -> None:
    doubled: Batched[int, int] = Batched(lambda numbers: [2 * number for number in numbers])
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(doubled, range(500))) == [2 * number for number in range(500)]


def test_calls_that_wait_for_a_batch_share_the_next_one() -> None:
    batches: list[int] = []
    running, go_on = threading.Event(), threading.Event()

    def work(numbers: Sequence[int]) -> Sequence[int]:
        batches.append(len(numbers))
        running.set()
        assert go_on.wait(10)
        return numbers

    batched: Batched[int, int] = Batched(work)
    with ThreadPoolExecutor(6) as threads:
        first = threads.submit(batched, 0)
        assert running.wait(10)
        others = [threads.submit(batched, number) for number in range(1, 6)]
        wait_until(lambda: batched.waiting == len(others))
        go_on.set()
        assert [one.result() for one in (first, *others)] == list(range(6))
    assert batches == [1, 5]


def test_an_error_concerns_its_batch_alone() -> None:
    def work(numbers: Sequence[int]) -> Sequence[int]:
        if 7 in numbers:
            raise ValueError("seven")
        return numbers

    batched: Batched[int, int] = Batched(work)
    with pytest.raises(ValueError, match="seven"):
        batched(7)
    assert batched(8) == 8

"""Tests of counts of calls in both databases."""

import threading

from jobmeter.model.usage import Usage
from jobmeter.registry.base import Registry


def calls(account: str, operation: str, count: int, failed: int = 0, month: str = "2026-11") -> Usage:
    return Usage(month=month, account=account, api="native", operation=operation, calls=count, failed=failed)


def test_servers_add_up(registry: Registry) -> None:
    registry.usage.add("one", 1, [calls("b", "x", 2, 1), calls("a", "y", 1)], 0)
    registry.usage.add("two", 1, [calls("a", "y", 5, 5), calls("b", "x", 1)], 0)
    registry.usage.add("one", 2, [calls("a", "y", 1), calls("a", "y", 9, month="2026-12")], 0)
    assert registry.usage.read_calls("2026-11") == [calls("a", "y", 7, 5), calls("b", "x", 3, 1)]
    assert registry.usage.read_calls("2026-12") == [calls("a", "y", 9, month="2026-12")]
    assert registry.usage.read_calls("2026-10") == []
    assert registry.usage.read_calls("2026-11", frozenset({"b", "c"})) == [calls("b", "x", 3, 1)]
    assert registry.usage.read_calls("2026-11", frozenset()) == []


def test_a_batch_that_comes_again_adds_nothing(registry: Registry) -> None:
    for _ in range(3):
        registry.usage.add("one", 1, [calls("a", "x", 2)], 0)
    registry.usage.add("one", 3, [calls("a", "x", 1)], 0)
    registry.usage.add("one", 2, [calls("a", "x", 100)], 0)
    assert registry.usage.read_calls("2026-11") == [calls("a", "x", 3)]


def test_what_is_noted_of_writers_goes_after_a_day(registry: Registry) -> None:
    day = 86_400_000
    registry.usage.add("old", 1, [calls("a", "x", 1)], 0)
    registry.usage.add("new", 1, [calls("a", "x", 1)], day + 1)
    registry.usage.add("new", 1, [calls("a", "x", 1)], day + 2)
    registry.usage.add("old", 1, [calls("a", "x", 1)], day + 3)  # as if the count were unknown
    assert registry.usage.read_calls("2026-11") == [calls("a", "x", 3)]


def test_many_at_one_time_lose_nothing(registry: Registry) -> None:
    names = [f"op{number}" for number in range(20)]
    start = threading.Barrier(6)

    def work(writer: str, order: list[str]) -> None:
        start.wait()
        for batch in range(1, 11):
            registry.usage.add(writer, batch, [calls("a", name, 1) for name in order], 0)

    threads = [
        threading.Thread(target=work, args=(str(number), names if number % 2 else names[::-1])) for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {row.operation: row.calls for row in registry.usage.read_calls("2026-11")} == dict.fromkeys(names, 60)

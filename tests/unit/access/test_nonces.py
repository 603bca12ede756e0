"""Tests of replay protection: remembered across restarts, and bounded without a gap."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.access.conftest import NOW_MS, FixedClock

from jobmeter.access.nonces import WINDOW_MS, NonceMemory
from jobmeter.errors import UnavailableError


@contextmanager
def full_disk(file: Path) -> Iterator[None]:
    """Limit files to the current size of this one, so that the next write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_request_counts_once(clock: FixedClock) -> None:
    memory = NonceMemory(clock)
    assert memory.remember("k", "n", NOW_MS)
    assert not memory.remember("k", "n", NOW_MS)
    assert memory.remember("other", "n", NOW_MS)
    assert memory.remember("k", "m", NOW_MS)


@pytest.mark.parametrize(
    ("age", "fresh"),
    [(0, True), (WINDOW_MS, True), (WINDOW_MS + 1, False), (-WINDOW_MS, True), (-WINDOW_MS - 1, False)],
)
def test_only_the_window_is_fresh(clock: FixedClock, tmp_path: Path, age: int, *, fresh: bool) -> None:
    memory = NonceMemory(clock, tmp_path / "nonces")
    assert memory.is_fresh(NOW_MS - age) == fresh
    memory.close()


def test_a_restart_forgets_nothing(clock: FixedClock, tmp_path: Path) -> None:
    for number in range(3):
        memory = NonceMemory(clock, tmp_path / "nonces")
        assert memory.is_fresh(NOW_MS - WINDOW_MS)
        assert memory.remember("k", f"n{number}", NOW_MS - 1000)
        assert not any(memory.remember("k", f"n{earlier}", NOW_MS - 1000) for earlier in range(number + 1))
        memory.close()
    assert (tmp_path / "nonces").stat().st_mode & 0o777 == 0o600


def test_a_half_written_entry_hides_no_other(clock: FixedClock, tmp_path: Path) -> None:
    file = tmp_path / "nonces"
    memory = NonceMemory(clock, file)
    memory.remember("k", "n", NOW_MS)
    memory.close()
    file.write_bytes(file.read_bytes() + b"12345")
    memory = NonceMemory(clock, file)
    assert not memory.remember("k", "n", NOW_MS)
    assert memory.remember("k", "m", NOW_MS)
    memory.close()
    memory = NonceMemory(clock, file)
    assert not memory.remember("k", "m", NOW_MS)
    memory.close()


@pytest.mark.parametrize("content", [b"", b"something else entirely"])
def test_a_file_without_content_opens_no_hole(clock: FixedClock, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "nonces").write_bytes(content)
    memory = NonceMemory(clock, tmp_path / "nonces")
    assert not memory.is_fresh(NOW_MS - 1000)
    assert memory.is_fresh(NOW_MS)
    memory.close()


def test_without_a_file_what_came_before_is_refused(clock: FixedClock) -> None:
    clock.ms += 900
    memory = NonceMemory(clock)
    assert memory.is_fresh(NOW_MS)
    assert not memory.is_fresh(NOW_MS - 1000)


def test_memory_is_bounded_and_what_is_dropped_becomes_stale(clock: FixedClock, tmp_path: Path) -> None:
    memory = NonceMemory(clock, tmp_path / "nonces", most=100)
    dates = [NOW_MS - 600_000 + 6_000 * number for number in range(150)]
    for number, date in enumerate(dates):
        clock.ms = max(NOW_MS, date)
        assert memory.remember("k", f"n{number}", date)
    replayed = [n for n, date in enumerate(dates) if memory.is_fresh(date) and memory.remember("k", f"n{n}", date)]
    assert replayed == []
    assert memory.is_fresh(clock.ms)
    memory.close()


def test_the_file_stays_small(clock: FixedClock, tmp_path: Path) -> None:
    file = tmp_path / "nonces"
    memory = NonceMemory(clock, file, most=1000)
    for number in range(150_000):
        if number % 1000 == 0:
            clock.ms += 60_000
        memory.remember("k", str(number), clock.ms)
    assert file.stat().st_size < 2_000_000
    memory.close()


def test_a_file_that_cannot_be_written_stops_no_request(clock: FixedClock, tmp_path: Path) -> None:
    file = tmp_path / "nonces"
    memory = NonceMemory(clock, file)
    memory.remember("k", "before", NOW_MS)
    with full_disk(file):
        assert memory.remember("k", "during", NOW_MS)
    assert not memory.remember("k", "during", NOW_MS)
    restarted = NonceMemory(FixedClock(), file)
    assert not restarted.is_fresh(NOW_MS - 1000), "what the file has missed must not be accepted again"
    restarted.close()


def test_the_file_is_taken_up_again(clock: FixedClock, tmp_path: Path) -> None:
    file = tmp_path / "nonces"
    memory = NonceMemory(clock, file)
    with full_disk(file):
        assert memory.remember("k", "during", NOW_MS)
    clock.ms += 11_000
    assert memory.remember("k", "after", clock.ms)
    memory.close()
    restarted = NonceMemory(clock, file)
    assert restarted.is_fresh(NOW_MS - 1000)
    assert not restarted.remember("k", "during", NOW_MS)
    assert not restarted.remember("k", "after", clock.ms)
    restarted.close()


def test_a_folder_that_is_none_is_named(clock: FixedClock, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="nonces"):
        NonceMemory(clock, tmp_path / "none" / "nonces")

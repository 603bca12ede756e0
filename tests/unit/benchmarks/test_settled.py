"""Tests of measuring stored bytes: only after all samples are in files that no longer change."""

from typing import Any, cast

import pytest
from benchmarks.contestant import Contestant, settled


class Writing:
    """Contestant whose files grow at each look. A size of -1 means that files still lack samples."""

    def __init__(self, name: str, *sizes: int) -> None:
        self.name = name
        self._sizes = list(sizes)

    def in_files(self, samples: int) -> bool:
        assert samples == 1_000
        if self._sizes[0] < 0:
            self._sizes.pop(0)
            return False
        return True

    def raw_bytes(self) -> int:
        return self._sizes.pop(0) if len(self._sizes) > 1 else self._sizes[0]


def _settled(monkeypatch: Any, *everybody: Writing) -> dict[str, int]:
    now = [0.0]
    monkeypatch.setattr("benchmarks.contestant.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr("benchmarks.contestant.time.monotonic", lambda: now[0])
    stored = dict.fromkeys(everybody, 1_000)
    return settled(cast("dict[Contestant, int]", stored), quiet=3.0, patience=20.0)


def test_bytes_are_counted_once_they_do_not_change(monkeypatch):
    assert _settled(monkeypatch, Writing("a", 5, 6, 7, 7, 7, 7, 7, 9), Writing("b", 1)) == {"a": 7, "b": 1}


def test_samples_that_are_in_memory_are_waited_for(monkeypatch):
    assert _settled(monkeypatch, Writing("a", -1, -1, -1, -1, -1, -1, 8), Writing("b", 1)) == {"a": 8, "b": 1}


@pytest.mark.parametrize("never", [[-1] * 100, list(range(100))])
def test_what_does_not_become_stable_in_time_is_left_out(monkeypatch, never):
    assert _settled(monkeypatch, Writing("b", 1), Writing("a", *never)) == {"b": 1}

"""When the bytes of contestants are counted."""

from typing import Any, cast

from benchmarks.contestant import Contestant, settled


class Writing:
    """One whose files grow as they are looked at."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = list(sizes)

    def raw_bytes(self) -> int:
        return self._sizes.pop(0) if len(self._sizes) > 1 else self._sizes[0]


def _settled(monkeypatch: Any, *everybody: Writing) -> list[int]:
    now = [0.0]
    monkeypatch.setattr("benchmarks.contestant.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr("benchmarks.contestant.time.monotonic", lambda: now[0])
    return settled(cast("list[Contestant]", list(everybody)), quiet=3.0, patience=20.0)


def test_bytes_are_counted_once_they_do_not_change(monkeypatch) -> None:
    assert _settled(monkeypatch, Writing(5, 6, 7, 7, 7, 7, 7, 9), Writing(1)) == [7, 1]


def test_who_has_written_nothing_yet_is_waited_for(monkeypatch) -> None:
    assert _settled(monkeypatch, Writing(0, 0, 0, 0, 0, 0, 0, 8), Writing(1)) == [8, 1]


def test_waiting_ends(monkeypatch) -> None:
    assert _settled(monkeypatch, Writing(0), Writing(1)) == [0, 1]

"""Tests of the loading of a peer, which ends when questions see all data."""

import pytest
from benchmarks.contestant import Contestant
from benchmarks.data import random_values
from benchmarks.peers import VictoriaMetrics

DATA = random_values(1_795_300_200_000, 1, "job")


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Load the data several times. Its parts in memory and in files take the listed sizes, one after the other."""
    monkeypatch.setattr("benchmarks.contestant.tempfile.mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(Contestant, "load", lambda self, data: 7.0)
    now = [0.0]
    monkeypatch.setattr("benchmarks.peers.time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr("benchmarks.peers.time.monotonic", lambda: now[0])

    def loaded(times: int, *shown: tuple[int, int]) -> int:
        ahead = list(shown)

        def metrics(_: VictoriaMetrics) -> str:
            memory, files = ahead.pop(0) if len(ahead) > 1 else ahead[0]
            return (
                f'vm_rows{{type="storage/inmemory"}} {memory}\nvm_rows{{type="storage/small"}} {files}\n'
                f'vm_rows{{type="indexdb/inmemory"}} 1000000\nvm_pending_rows{{type="storage"}} 0\n'
            )

        monkeypatch.setattr(VictoriaMetrics, "_metrics", metrics)
        peer = VictoriaMetrics()
        for _ in range(times):
            assert peer.load(DATA) == 7.0
        return len(ahead)

    return loaded


def test_what_is_missing_from_answers_is_waited_for(load):
    assert load(1, (0, 0), (100, 0), (DATA.samples - 1, 0), (100, DATA.samples - 100)) == 1


def test_an_earlier_load_is_no_part_of_the_next(load):
    assert load(2, (DATA.samples, 0), (DATA.samples, 0), (0, DATA.samples), (DATA.samples, DATA.samples)) == 1


def test_waiting_ends(load):
    with pytest.raises(RuntimeError, match=f"fewer than {DATA.samples} samples after 60 s"):
        load(1, (0, DATA.samples - 1))

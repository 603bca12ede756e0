"""Tests of the example's job: it really learns, and its replicas share the digits."""

import numpy as np
from click.testing import CliRunner

from jobmeter.examples.train import command, load_shard


def test_it_reads_digits_and_saves_its_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = CliRunner().invoke(command, ["--seconds", "0", "--directory", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("replica 1 of 2: ")
    accuracy = float(result.output.split()[-1])
    assert 0.7 < accuracy <= 1.0
    assert (tmp_path / "weights-1.npz").stat().st_size > 100_000


def test_replicas_have_different_images_and_the_same_test():
    whole = load_shard(0, 1)
    parts = [load_shard(rank, 3) for rank in range(3)]
    assert sum(len(part[1]) for part in parts) == len(whole[1])
    for part in parts:
        np.testing.assert_array_equal(part[2], whole[2])
    assert {row.tobytes() for part in parts for row in part[0]} == {row.tobytes() for row in whole[0]}

"""Tests of an embedded store that was damaged while no process had it open."""

import re
import shutil
from pathlib import Path

import pytest
from tests.unit.store.child import JOBS, START
from tests.unit.store.test_processes import run

from jobmeter.model.time import DAY, TimeRange, parse_time
from jobmeter.store.clickhouse.part_files import read_job_range, read_row_count, read_time_range


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run("write_days", tmp_path / "store")
    return tmp_path / "store"


def parts(folder: Path, digits: int) -> list[Path]:
    """Return folders of parts by the digits of their partition: 5 for days of samples, 6 for months of roll-ups."""
    return sorted(folder.glob(f"store/*/*/{'[0-9]' * digits}_*"))


def test_small_files_reveal_a_part(folder: Path) -> None:
    for day, part in enumerate(parts(folder, 5)):
        assert read_row_count(part) == 2000
        assert read_time_range(part) == TimeRange(START + day * DAY, START + day * DAY + 99 * 60_000 + 1)
        assert read_job_range(part, "samples") == (min(JOBS), max(JOBS))
    assert parse_time("2026-01-01") == START


@pytest.mark.parametrize("content", [b"", b"x", bytes(25), b"\x90" * 100, None])
def test_small_files_that_are_damaged_reveal_nothing(folder: Path, content: bytes | None) -> None:
    part = parts(folder, 5)[0]
    for name in ("count.txt", "minmax_time.idx", "primary.cidx"):
        if content is None:
            (part / name).unlink()
        else:
            (part / name).write_bytes(content)
    assert (read_row_count(part), read_time_range(part), read_job_range(part, "samples")) == (None, None, None)


def test_samples_that_were_lost_are_named_and_their_roll_ups_stay(folder: Path) -> None:
    hurt = parts(folder, 5)[1]
    (hurt / "data.bin").unlink()
    (said,) = run("after_damage", folder)
    assert said["damaged"] == [["samples", hurt.name, 2000]]
    assert (said["found"], said["trusted"], said["marked"]) == (4000, True, 0)


def test_roll_ups_that_were_lost_are_computed_again_once(folder: Path) -> None:
    for part in parts(folder, 6):
        (part / "data.bin").unlink()
    (said,) = run("after_damage", folder)
    assert {table for table, _, _ in said["damaged"]} == {"minutes", "hours"}
    # Answers come from samples until the roll-ups exist again.
    assert not said["trusted"]
    assert said["marked"] > 0
    assert (said["right"], said["whole"], said["found"]) == (True, True, 6000)
    (again,) = run("after_damage", folder)
    assert (again["marked"], again["trusted"], again["right"]) == (0, True, True)


@pytest.mark.parametrize("restarts", [0, 1])
def test_recovered_samples_that_lost_their_names_are_found_once_their_series_are_sent_again(
    tmp_path: Path, restarts: int
) -> None:
    folder = tmp_path / "store"
    run("die_apart", folder, killed=True)
    (segment,) = folder.glob("journal/*.journal")
    content = segment.read_bytes()
    fourth = [place.start() for place in re.finditer(b"JMJ4", content)][3]
    segment.write_bytes(bytes(fourth) + content[fourth:])
    for _ in range(restarts):
        # 9 samples are lost; the other 9 cannot be found for now.
        assert run("start_and_end", folder) == [{"damaged": [["journal", 18, True]]}]
        (copy,) = folder.glob("journal/*.damaged")
        copy.unlink()
    (said,) = run("send_again", folder)
    assert said == {"before": 0, "named": True, "times": [3, 4, 5, 40], "rows": 12}


def test_series_whose_descriptors_the_engine_lost_are_whole_once_they_are_sent_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    run("die_apart", folder, killed=True)
    assert run("start_and_end", folder) == [{"damaged": []}]
    for columns in folder.glob("store/*/*/all_*/columns.txt"):
        if "`job_id`" in columns.read_text():
            (columns.parent / "data.bin").unlink()
    (said,) = run("send_again", folder)
    assert said == {"before": 0, "named": True, "times": [0, 1, 2, 3, 4, 5, 40], "rows": 21}


def test_how_far_roll_ups_are_is_found_again(folder: Path) -> None:
    # Parts of tables without partitions; the table progress records the time up to which hours are rolled up.
    for table in folder.glob("store/*/*/all_*/columns.txt"):
        if "`name` LowCardinality" in table.read_text() and "`value`" in table.read_text():
            shutil.rmtree(table.parent)
    (said,) = run("after_damage", folder)
    assert (said["right"], said["whole"], said["found"]) == (True, True, 6000)

"""Tests of rows of series, and of lists of series."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import LimitExceededError
from jobmeter.model import series_table
from jobmeter.model.batch import SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesTable, find_distinct, list_of, make_batch


def ids(series):
    return SeriesKeys.from_series(series).series


def many(count, name="j"):
    return [Series("cpu.usage", job=f"{name}{at}") for at in range(count)]


@given(st.lists(st.lists(st.integers(0, 20), max_size=12), max_size=5))
def test_a_series_has_one_row_with_its_values(lists):
    table = SeriesTable()
    column = table.add_column(np.int64)
    seen: set[int] = set()
    for chosen in lists:
        keys = SeriesKeys.from_series([Series("cpu.usage", job=f"j{at}") for at in chosen])
        rows = table.assign_rows(keys.series)
        assert column[rows].tolist() == [at + 1 if at in seen else 0 for at in chosen]
        column[rows] = np.array(chosen, np.int64) + 1
        seen.update(chosen)
    assert len(table) == len(seen)


def test_a_column_has_room_for_every_series_from_before_and_after_it():
    table = SeriesTable()
    before, after = ids(many(3_000)), ids(many(3_000, "k"))
    table.assign_rows(before)
    column = table.add_column(np.bool_)
    column[table.assign_rows(before)] = True
    assert not column[table.assign_rows(after)].any()
    assert column[table.assign_rows(before)].all()


def test_lists_share_the_objects_of_a_table_and_may_repeat_a_series():
    table, first, again = SeriesTable(), many(3), many(3)
    assert table.intern(first)[:] == first
    shared = table.intern([*again[::-1], again[1]])
    assert all(one is other for one, other in zip(shared, [*first[::-1], first[1]], strict=True))
    assert shared.keys.series.tolist() == [one.id for one in shared]


def test_a_list_of_series_is_a_sequence_of_them():
    series = many(4)
    found = list_of(series)
    assert (len(found), found[1], found[-1], found[1:3], list(found)) == (4, series[1], series[3], series[1:3], series)
    assert series[2] in found
    assert list(found.take(np.array([3, 0]))) == [series[3], series[0]]
    assert list_of(found) is found
    batch = make_batch(found, np.array([2], np.uint32), np.array([5]), np.array([1.0]))
    assert batch.keys is found.keys
    assert batch.keys.series[batch.index].tolist() == [series[2].id]


@given(st.lists(st.integers(0, 6), max_size=12))
def test_distinct_series_keep_their_order(chosen):
    series = [many(7)[at] for at in chosen]
    found, places = find_distinct(list_of(series))
    assert list(found) == list(dict.fromkeys(series))
    assert [found[at] for at in (range(len(series)) if places is None else places.tolist())] == series


def test_a_full_table_drops_all_series_but_those_in_the_window():
    table = SeriesTable(7)
    column = table.add_column(np.int64)
    first, others = table.intern(many(5)), many(4, "k")
    column[table.assign_rows(first.keys.series)] = 7
    table.there[table.find(first.keys.series[:2])] = True
    for round_number in range(1, 4):
        rows = table.assign_rows(ids(others))
        assert (table.generation, len(table)) == (round_number, 6)
        assert column[np.concatenate([table.find(first.keys.series[:2]), rows])].tolist() == [7, 7, 0, 0, 0, 0]
        assert (table.find(first.keys.series[2:]) == -1).all()
        assert len(set(table.assign_rows(ids([*others, *first[:2]])).tolist())) == 6
        others = many(4, f"{round_number}")
    assert first[:] == many(5)
    assert table.intern(many(1))[0] is not first[0]
    with pytest.raises(LimitExceededError) as error:
        table.assign_rows(ids(many(8, "x")))
    assert error.value.field == "series"


def test_long_labels_fill_a_table_too(monkeypatch):
    monkeypatch.setattr(series_table, "MOST_BYTES", 1_000)
    table = SeriesTable()
    for at in range(3):
        table.intern([Series("cpu.usage", labels=(("l", f"{at}" * 250),))])
    assert (table.generation, len(table)) == (1, 1)

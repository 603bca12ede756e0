"""Rows of series, and lists of series."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model import series_table
from jobmeter.model.batch import SeriesKeys
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesTable, find_distinct, list_of, make_batch


def many(count, name="j"):
    return [Series("cpu.usage", job=f"{name}{at}") for at in range(count)]


@given(st.lists(st.lists(st.integers(0, 20), max_size=12), max_size=5))
def test_a_series_has_one_row_with_its_values(lists):
    table = SeriesTable()
    column = table.column(-1)
    seen: set[int] = set()
    for chosen in lists:
        keys = SeriesKeys.of([Series("cpu.usage", job=f"j{at}") for at in chosen])
        rows = table.rows(keys)
        assert column[rows].tolist() == [at if at in seen else -1 for at in chosen]
        column[rows] = chosen
        seen.update(chosen)
    assert len(table) == len(seen)


def test_a_column_has_room_for_every_series_from_before_and_after_it():
    table = SeriesTable()
    before, after = SeriesKeys.of(many(3_000)), SeriesKeys.of(many(3_000, "k"))
    table.rows(before)
    column = table.column(fill=False)
    column[table.rows(before)] = True
    assert not column[table.rows(after)].any()
    assert column[table.rows(before)].all()


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


def test_a_full_table_begins_another_generation_and_lists_go_on(monkeypatch):
    monkeypatch.setattr(series_table, "MOST", 5)
    table = SeriesTable()
    column = table.column(-1)
    series_list = table.intern(many(3, "full"))
    column[table.rows(series_list.keys)] = 7
    table.rows(SeriesKeys.of(many(3)))
    assert (table.generation, len(table), column.values.max()) == (1, 3, -1)
    assert series_list[:] == many(3, "full")
    assert table.rows(SeriesKeys.of(many(9))).tolist() == table.rows(SeriesKeys.of(many(9))).tolist()


def test_long_labels_fill_a_table_too(monkeypatch):
    monkeypatch.setattr(series_table, "MOST_BYTES", 1_000)
    table = SeriesTable()
    for at in range(3):
        table.intern([Series("cpu.usage", labels=(("l", f"{at}" * 250),))])
    assert (table.generation, len(table)) == (1, 1)

"""Numbers of series, and lists of series by their numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model import interner as rosters
from jobmeter.model.batch import SeriesKeys
from jobmeter.model.interner import SeriesInterner, SeriesList, current, make_batch
from jobmeter.model.series import Series


def many(count, name="j"):
    return [Series("cpu.usage", job=f"{name}{at}") for at in range(count)]


@given(st.lists(st.lists(st.integers(0, 20), max_size=12), max_size=5))
def test_a_series_keeps_its_number(lists):
    interner = SeriesInterner()
    numbered: dict[Series, int] = {}
    for chosen in lists:
        series = [Series("cpu.usage", job=f"j{at}") for at in chosen]
        assert interner.numbers(series).tolist() == [numbered.setdefault(one, len(numbered)) for one in series]
    assert len(interner) == len(numbered)
    assert interner.series(np.arange(len(numbered))) == list(numbered)


def test_keys_are_those_of_the_series_however_many_there_are():
    interner = SeriesInterner()
    series = many(3_000)
    numbers = np.concatenate([interner.numbers(series[part : part + 700]) for part in range(0, 3_000, 700)])
    expected = SeriesKeys.of(series)
    assert interner.keys(numbers).job.tolist() == expected.job.tolist()
    assert interner.keys(numbers).series.tolist() == expected.series.tolist()


def test_a_list_of_series_is_a_sequence_of_them():
    interner = SeriesInterner()
    series = many(4)
    found = SeriesList(interner, interner.numbers(series))
    assert (len(found), found[1], found[-1], found[1:3], list(found)) == (4, series[1], series[3], series[1:3], series)
    assert series[2] in found
    assert list(found.take(np.array([3, 0]))) == [series[3], series[0]]
    batch = make_batch(found, np.array([2], np.uint32), np.array([5]), np.array([1.0]))
    assert batch.keys is found.keys
    assert batch.keys.series[batch.index].tolist() == [series[2].id]


def test_a_full_interner_is_replaced_and_what_refers_to_it_goes_on(monkeypatch):
    monkeypatch.setattr(rosters, "MOST", len(current()) + 3)
    before = current()
    series_list = SeriesList(before, before.numbers(many(3, "full")))
    after = current()
    assert after is not before
    assert current() is after
    assert series_list[:] == many(3, "full")

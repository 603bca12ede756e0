"""Tests of sample lines: equal to the joined results of Arrow's casts to text."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.kernel import rows

TIMES = st.integers(-(2**63), 2**63 - 1)
EDGES = np.concatenate([2.0 ** np.arange(-1074, 1024), [float(f"1e{power}") for power in range(-323, 309)]])


def _written(values, times=None, texts=(("", ",", "\n"),), index=None):
    lines = rows.Lines(texts)
    index = np.zeros(len(values), np.uint32) if index is None else index
    times = np.zeros(len(values), np.int64) if times is None else times
    return b"".join([*lines.add(index, times, np.asarray(values, np.float64)), lines.take_rest()]).decode()


def _values(values):
    return _written(values).replace("0,", "", 1).replace("\n0,", "\n").splitlines()


def _arrow(values):
    return pa.array(np.asarray(values, np.float64)).cast(pa.string()).to_pylist()


@given(st.lists(st.floats(width=64), max_size=50))
def test_values_are_as_short_as_they_can_be(values):
    assert _values(values) == _arrow(values)
    assert [float(text) for text in _values(values)] == pytest.approx(values, rel=0, abs=0, nan_ok=True)


@given(st.lists(st.tuples(st.integers(-(10**15), 10**15), st.integers(0, 9)), max_size=50))
def test_decimals_are_as_they_were_written(numbers):
    values = [number / 10**places for number, places in numbers]
    assert _values(values) == _arrow(values)


@pytest.mark.parametrize("sign", [1, -1])
def test_values_beside_powers(sign):
    for values in (EDGES, np.nextafter(EDGES, 0), np.nextafter(EDGES, np.inf)):
        assert _values(sign * values) == _arrow(sign * values)


def test_any_bits_are_the_text_of_a_number():
    values = np.frombuffer(np.random.default_rng(3).bytes(8 * 200_000), np.float64)
    assert _values(values) == _arrow(values)


@given(st.lists(TIMES, max_size=50))
def test_times_are_whole_numbers(times):
    assert _written([1.0] * len(times), np.array(times, np.int64)) == "".join(f"{time},1\n" for time in times)


TEXTS = st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40)), min_size=1, max_size=4)


@given(TEXTS, st.data())
def test_each_sample_has_the_texts_of_its_series(texts, data):
    index = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=60))
    text = _written(np.ones(len(index)), None, texts, np.array(index, np.uint32))
    assert text == "".join("{}0{}1{}".format(*texts[at]) for at in index)


def test_pieces_are_of_bounded_size_and_the_whole_text():
    texts = [("", ",", "x" * size + "\n") for size in (0, 5_000, rows.PIECE + 17)]
    lines = rows.Lines(texts)
    index = np.repeat(np.array([0, 1, 2, 0], np.uint32), (50_000, 300, 3, 50_000))
    time, value = np.arange(len(index)), np.arange(len(index)) / 8
    pieces = [*lines.add(index[:70_000], time[:70_000], value[:70_000])]
    pieces += [*lines.add(index[70_000:], time[70_000:], value[70_000:]), lines.take_rest()]
    assert max(map(len, pieces)) <= rows.PIECE + 100
    expected = "".join(
        f"{at},{value_text}{texts[series][2]}"
        for at, value_text, series in zip(time, _arrow(value), index, strict=True)
    )
    assert b"".join(pieces) == expected.encode()
    assert lines.take_rest() == b""


def test_columns_that_do_not_fit_are_refused():
    lines = rows.Lines([("", ",", "\n")])
    with pytest.raises(ValueError, match="do not match"):
        list(lines.add(np.array([1], np.uint32), np.array([0]), np.array([0.0])))
    with pytest.raises(ValueError, match="do not match"):
        list(lines.add(np.array([0, 0], np.uint32), np.array([0]), np.array([0.0])))

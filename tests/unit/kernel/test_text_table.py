"""Tests of the table of texts against a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.kernel.text_table import Texts, TextTable

lists = st.lists(st.lists(st.binary(max_size=40), max_size=30), max_size=6)


@given(lists, st.lists(st.binary(max_size=40), max_size=10))
def test_a_text_keeps_the_number_that_it_was_given(added, strange):
    table = TextTable()
    expected: dict[bytes, int] = {}
    for texts in added:
        before = [expected.get(text, -1) for text in texts]
        assert table.find(Texts.from_texts(texts)).tolist() == before
        numbers = table.add(Texts.from_texts(texts)).tolist()
        assert numbers == [expected.setdefault(text, len(expected)) for text in texts]
        assert (len(table), table.size) == (len(expected), sum(map(len, expected)))
    asked = [*expected, *strange]
    assert table.find(Texts.from_texts(asked)).tolist() == [expected.get(text, -1) for text in asked]


def test_very_many_texts_are_distinguished_in_any_order():
    texts = [f"{at % 7} {'x' * (at % 90)} {at}".encode() for at in range(20_000)]
    table = TextTable()
    for part in range(0, len(texts), 3_000):
        table.add(Texts.from_texts(texts[part : part + 3_000]))
    order = np.random.default_rng(4).permutation(len(texts))
    assert table.find(Texts.from_texts([texts[at] for at in order])).tolist() == order.tolist()
    assert table.find(Texts.from_texts([text + b"!" for text in texts[:100]])).tolist() == [-1] * 100


@pytest.mark.parametrize(
    ("begin", "end"), [([0], [4]), ([-1], [2]), ([2], [1]), ([0, 1], [1])], ids=["behind", "before", "turned", "uneven"]
)
def test_texts_outside_of_their_data_are_not_looked_up(begin, end):
    table = TextTable()
    with pytest.raises(ValueError, match="outside"):
        table.find(Texts(b"abc", np.array(begin), np.array(end)))


def test_texts_are_cut_out_of_their_data():
    texts = Texts(b"abcdef", np.array([0, 2, 2]), np.array([2, 5, 2]))
    assert (list(texts), texts[1:], texts.take(np.array([1]))[0]) == ([b"ab", b"cde", b""], [b"cde", b""], b"cde")
    assert list(Texts.from_texts([b"x", b"", b"yz"])) == [b"x", b"", b"yz"]
    assert Texts.from_texts(texts) is texts

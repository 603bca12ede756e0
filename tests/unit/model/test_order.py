"""Tests of the natural order of names."""

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.order import make_natural_key


def test_numbers_in_names_count_by_their_value():
    names = ["worker-10", "worker-2", "b", "2", "worker-02", "10", "", "worker-2a"]
    assert sorted(names, key=make_natural_key) == [
        "",
        "2",
        "10",
        "b",
        "worker-02",
        "worker-2",
        "worker-2a",
        "worker-10",
    ]


@given(st.text(), st.text())
def test_two_names_always_have_an_order_and_none_is_as_another(one, other):
    assert (make_natural_key(one) == make_natural_key(other)) == (one == other)
    assert (make_natural_key(one) < make_natural_key(other)) or make_natural_key(other) <= make_natural_key(one)

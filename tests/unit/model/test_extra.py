import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import LimitExceededError
from jobmeter.model.extra import merge_extra
from jobmeter.model.record import MAX_EXTRA_BYTES

NAMES = st.text("ab/~", min_size=1, max_size=4)
WRITES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), st.integers() | st.none()), max_size=20)


def pointer(names):
    return "/".join(name.replace("~", "~0").replace("/", "~1") for name in names)


def put(values, names, value):
    """Set a value by the same rule, with a list of names instead of a path."""
    first, *rest = names
    if rest:
        inner = values.get(first)
        values[first] = dict(inner) if isinstance(inner, dict) else {}
        put(values[first], rest, value)
    elif value is None:
        values.pop(first, None)
    else:
        values[first] = value


@given(WRITES)
def test_a_path_sets_a_key_of_an_object_inside(writes):
    expected: dict[str, Any] = {}
    stored = None
    for names, value in writes:
        put(expected, names, value)
        stored = merge_extra(stored, [{"d": {pointer(names): value}}])
    assert (json.loads(stored) if stored else {}) == ({"d": expected} if expected else {})


@given(WRITES)
def test_one_record_and_many_merge_alike(writes):
    given_values = [{"d": {pointer(names): value}} for names, value in writes]
    one_by_one = None
    for one in given_values:
        one_by_one = merge_extra(one_by_one, [one])
    assert json.loads(merge_extra(None, given_values)) == (json.loads(one_by_one) if one_by_one else {})


def test_the_whole_has_a_limit():
    with pytest.raises(LimitExceededError):
        merge_extra('{"d":{"a":{"b":1}}}', [{"d": {"a/c": "x" * MAX_EXTRA_BYTES}}])

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracle.kernel import count_tokens

from jobmeter.kernel.json import count
from jobmeter.wire.json_shape import DEPTHS, count_json

VALUES = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


def _counted(value, depth=0, opened=None):
    """Count objects and arrays by depth, and commas, straight from the value."""
    opened = [0] * DEPTHS if opened is None else opened
    commas = 0
    if isinstance(value, (list, dict)):
        opened[min(depth, DEPTHS - 1)] += 1
        inner = list(value.values()) if isinstance(value, dict) else value
        commas = max(0, len(inner) - 1) + sum(_counted(one, depth + 1, opened)[1] for one in inner)
    return opened, commas


@given(VALUES, st.booleans())
def test_a_shape_is_that_of_the_value(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    shape = count_json(text)
    assert (shape.opened, shape.commas) == _counted(value)
    assert count_tokens(text) == (shape.opened, shape.commas)


@given(st.binary(max_size=200) | st.text(alphabet='{}[],"\\a', max_size=60).map(str.encode))
def test_damaged_texts_are_counted_as_by_a_regular_expression(data):
    assert count(data, DEPTHS) == count_tokens(data)


@pytest.mark.parametrize(
    ("text", "opened"), [(b'"{[" ', 0), (b'["\\"{"]', 1), (b'"\\\\"[', 1), (b'"\\\\\\"[', 0), (b'"', 0)]
)
def test_brackets_and_commas_in_strings_do_not_count(text, opened):
    assert sum(count_json(text).opened) == opened


def test_characters_count_by_what_they_may_take():
    assert count_json(b'"abc"').text_bytes == 5
    assert count_json('"ab\U0001f600"'.encode()).text_bytes == 4 * 8

"""Tests of expressions without special characters: they have the answers of RE2."""

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.promql.regex import match_texts, replace_matches

TEXTS = st.text(st.sampled_from("ab|-_ /\n\0é"), max_size=4)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, max_size=6))
@example(["a", ""], ["", "a", "a\n", "A"])
@example(["^"], ["^"])
def test_plain_alternatives_match_as_in_re2(alternatives, texts):
    pattern = "|".join(alternatives)
    # The group contains a special character, so RE2 evaluates it.
    assert match_texts(pattern, texts).tolist() == match_texts(f"(?:{pattern})", texts).tolist()


@given(st.text(st.sampled_from("ab.*+?()[]{}^$\\|"), min_size=1, max_size=3), st.lists(TEXTS, max_size=4))
def test_a_special_character_is_not_taken_as_text(pattern, texts):
    try:
        expected = match_texts(f"(?:{pattern})", texts).tolist()
    except InvalidRequestError:
        return
    assert match_texts(pattern, texts).tolist() == expected


def test_an_expression_does_not_load_pandas():
    pytest.importorskip("pandas")
    code = "from jobmeter.promql.regex import *; match_texts('a.', ['ab']); replace_matches('(a).', '$1', ['ab'])"
    code += "; import sys; print({'pandas', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "{'pyarrow'}"


@given(st.lists(st.text(max_size=6), max_size=6))
def test_texts_of_any_characters_match_as_a_whole(texts):
    assert match_texts("(?:.*)", texts).tolist() == [True] * len(texts)
    assert replace_matches("(.*)", "$1", texts) == texts

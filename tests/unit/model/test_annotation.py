"""Tests of tags, notes and authors: their valid texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.annotation import (
    LONGEST_AUTHOR,
    LONGEST_NOTE,
    LONGEST_TAG,
    NewNote,
    check_author,
    check_note,
    check_tag,
)


@given(st.text(max_size=LONGEST_TAG + 8))
def test_a_tag_is_short_printable_and_no_change_of_tags(text):
    try:
        tag = check_tag(text)
    except InvalidRequestError:
        return
    assert check_tag(tag) == tag == text.strip()
    assert 1 <= len(tag) <= LONGEST_TAG
    assert tag.isprintable()
    assert "," not in tag
    assert not tag.startswith(("+", "-"))


@pytest.mark.parametrize("tag", ["x" * LONGEST_TAG, "baseline v2", "größer", "a+b", " spaces around "])
def test_usual_tags_are_tags(tag):
    assert check_tag(tag) == tag.strip()


@pytest.mark.parametrize("tag", ["", " ", "x" * (LONGEST_TAG + 1), "+x", "-x", "a,b", "a\nb", "\x1b[31m"])
def test_other_texts_are_no_tags(tag):
    with pytest.raises(InvalidRequestError):
        check_tag(tag)


def test_a_note_has_text_and_perhaps_a_time():
    assert check_note(NewNote(text=" two\nlines ")) == ("two\nlines", None)
    assert check_note(NewNote(text="x", time="1970-01-01T00:00:01Z")) == ("x", 1000)
    assert check_note(NewNote(text="x", time=0)) == ("x", 0)
    for note, field in (
        (NewNote(text=" "), "text"),
        (NewNote(text="x" * (LONGEST_NOTE + 1)), "text"),
        (NewNote(text="x", time="yesterday"), "time"),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            check_note(note)
        assert refused.value.field == field


@pytest.mark.parametrize("author", ["x" * (LONGEST_AUTHOR + 1), "a\nb"])
def test_an_author_is_a_short_line(author):
    assert check_author(" lin ") == "lin"
    with pytest.raises(InvalidRequestError):
        check_author(author)

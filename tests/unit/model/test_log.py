"""Tests of cutting long lines, and of the words for a level."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.event import Level
from jobmeter.model.log import MAX_TEXT_BYTES, cut_bytes, cut_text, parse_level


@given(st.integers(-20, 70_000), st.sampled_from(["a", "é", "中", "\U0001f600"]), st.integers(0, 3))
def test_a_line_is_cut_at_a_character_and_says_what_is_missing(more, character, before):
    text = "x" * before + character * ((MAX_TEXT_BYTES + more) // len(character.encode()))
    cut = cut_text(text)
    size = len(text.encode())
    if size <= MAX_TEXT_BYTES:
        assert cut == text
        return
    assert len(cut.encode()) <= MAX_TEXT_BYTES
    assert cut.endswith(" bytes cut]")
    beginning, _, note = cut.rpartition(" [")
    assert text.startswith(beginning)
    assert size - len(beginning.encode()) == int(note.split(" ")[0])
    assert cut_text(cut) == cut
    # A reader that saw only the beginning of the line cuts it at the same place.
    assert cut_bytes(text.encode()[:MAX_TEXT_BYTES], size) == cut


@pytest.mark.parametrize(
    ("word", "level"),
    [("WARN", Level.WARNING), ("Fatal", Level.ERROR), ("trace", Level.DEBUG), ("notice", Level.INFO), ("loud", None)],
)
def test_words_for_levels(word, level):
    assert parse_level(word) is level

"""Tests of terminal output against Unicode's own table: it removes control characters and keeps the rest."""

import io
import json
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobmeter.cli import output
from jobmeter.cli.output import build_console, build_table, print_json
from jobmeter.cli.terminal import (
    REPLACEMENT,
    GuardedStream,
    guard,
    make_colours_printable,
    make_json_printable,
    make_printable,
    make_text_printable,
    unwrap_stream,
)

DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = {"\u061c", "\u200e", "\u200f"}
WORDS = "naïve 训练\u3000作业 ملف क\u094d\u200dष 👩\u200d🔬 e\u0301 a\u00a0b \u00ad"
"""Ordinary text with joiners, wide and combining characters, which is shown unchanged."""
TEXTS = st.text(st.characters(exclude_categories=())) | st.text("a\x1b\x9b\u202e\u2066\u200f\x07[31m\n\t\r")


def acted_on(character: str) -> bool:
    return (
        unicodedata.category(character) in {"Cc", "Zl", "Zp", "Cs"}
        or unicodedata.bidirectional(character) in DIRECTIONS
        or character in MARKS
    )


@given(TEXTS)
@example("\u202egnp.exe")
def test_a_line_has_nothing_that_a_terminal_acts_on(text):
    shown = make_printable(text)
    assert not any(map(acted_on, shown))
    assert len(shown) == len(text)
    assert all(kept in (given.replace("\t", " "), REPLACEMENT) for kept, given in zip(shown, text, strict=True))


@given(TEXTS)
def test_text_has_line_ends_and_tabs_besides(text):
    assert make_text_printable(text) == "".join(one if one in "\n\t" else make_printable(one) for one in text)


def test_a_tab_in_a_line_is_a_space():
    assert make_printable("at\tmain.go:8") == "at main.go:8"


def test_the_words_of_people_stay():
    assert make_printable(WORDS) == make_text_printable(WORDS) == WORDS


def test_colours_may_be_set_and_nothing_else():
    assert make_colours_printable("\x1b[31mred\x1b[0m\u202e\x1b[2J") == "\x1b[31mred\x1b[0m\ufffd\ufffd[2J"


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("\u202e\x9b\U000e0041")
def test_json_means_the_same(text):
    written = json.dumps({text: [text]}, ensure_ascii=False, indent=1)
    shown = make_json_printable(written)
    assert json.loads(shown) == {text: [text]}
    assert not any(acted_on(one) for one in shown if one not in "\n\t")


class Stream(io.StringIO):
    """Stream that is a terminal, or none."""

    def __init__(self, *, terminal: bool = True) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@given(TEXTS)
def test_a_console_colours_what_it_writes_and_passes_nothing_else_on(text):
    stream = Stream()
    shown = build_console(GuardedStream(stream))  # type: ignore[arg-type]
    shown.print(text, markup=False, style="bold")
    shown.print(build_table(("name",), [(text,)]))
    plain = stream.getvalue()
    for sequence in ("\x1b[1m", "\x1b[0m"):
        plain = plain.replace(sequence, "")
    assert not any(acted_on(one) for one in plain if one not in "\n\t"), plain


def test_standard_streams_are_guarded_where_they_are_terminals(monkeypatch):
    out, err = Stream(), Stream(terminal=False)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    guard()
    guard()
    assert unwrap_stream(sys.stdout) is out
    assert sys.stderr is err
    sys.stdout.writelines(["a\u202eb\n", "\x1b[2Jc"])
    assert out.getvalue() == "a\ufffdb\n\ufffd[2Jc"
    print_json({"name": "\u202e\x85"})
    assert json.loads(out.getvalue()[out.getvalue().index("{") :]) == {"name": "\u202e\x85"}


def test_verbs_have_no_console_of_their_own():
    folder = Path(output.__file__).parent
    makers = [path.name for path in folder.rglob("*.py") if re.search(r"\bConsole\(", path.read_text())]
    assert makers == []


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u200f", "\x9b", "\x1b"])
def test_what_is_piped_is_as_it_came(character, capsysbinary):
    from jobmeter.cli.save import save

    save(iter([character.encode(), b"x"]), None)
    assert capsysbinary.readouterr().out == character.encode() + b"x"

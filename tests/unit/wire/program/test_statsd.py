"""Tests of StatsD lines: generated ones are read back, and no bytes make the reader fail."""

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.event import Level
from jobmeter.wire.program.statsd import StatsdEvent, StatsdLine, StatsdType, decode

NAMES = st.text(st.characters(exclude_characters=":|\n\r", codec="utf-8"), min_size=1, max_size=20).filter(
    lambda name: name.strip() == name and not name.startswith(("_sc", "_e{"))
)
WORDS = st.text(st.characters(exclude_characters=":|,\n\r", codec="utf-8"), min_size=1, max_size=8).filter(
    lambda word: word.strip() == word
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUED = [one for one in StatsdType if one is not StatsdType.SET]


@given(
    NAMES,
    st.sampled_from(VALUED),
    st.lists(NUMBERS, min_size=1, max_size=4),
    st.floats(0.001, 1),
    st.lists(st.tuples(WORDS, WORDS), max_size=3),
)
def test_a_written_line_is_read(name, kind, values, rate, tags):
    shown = ":".join(map(repr, values))
    text = f"{name}:{shown}|{kind}|@{rate!r}" + (
        f"|#{','.join(f'{key}:{value}' for key, value in tags)}" if tags else ""
    )
    relative = kind is StatsdType.GAUGE and shown[0] in "+-"
    assert decode(text.encode()) == ([StatsdLine(name, kind, tuple(values), relative, (), rate, tuple(tags))], 0)


def test_long_texts_are_cut():
    long = "x" * 5_000
    lines, refused = decode(f"u:{long}|s|#{long}:{long}\n{long}:1|c".encode())
    assert lines == [StatsdLine("u", StatsdType.SET, members=(long[:400],), tags=((long[:400], long[:400]),))]
    assert refused == 1


@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from(["a:1|c", "|", ":", "_e{", "a:x|g", "s:u|s"])).map("\n".join).map(str.encode)
)
def test_no_bytes_make_it_fail(data):
    lines, refused = decode(data)
    assert len(lines) + refused == sum(bool(one.strip()) for one in data.decode(errors="replace").split("\n"))


def test_forms_of_the_protocols():
    found, refused = decode(
        b"loss:0.5|g|#step:7,run:a\nusers:bob:eve|s\nbad\nx:1|q\nr:1|c|@0\nup:+3|g\ninf:inf|c\nnan:nan|g"
    )
    lines = [one for one in found if isinstance(one, StatsdLine)]
    assert [(one.name, one.type.value) for one in lines] == [("loss", "g"), ("users", "s"), ("up", "g"), ("nan", "g")]
    assert refused == 4
    assert lines[0].tags == (("step", "7"), ("run", "a"))
    assert lines[1].members == ("bob", "eve")
    assert lines[2].relative
    assert decode("_e{5,9}:größ|saved\\nok|t:warning|#a".encode())[0] == []
    assert decode(b"_e{4,9}:save|saved\\nok|t:warning|#a")[0] == [StatsdEvent("save", "saved\nok", Level.WARNING)]

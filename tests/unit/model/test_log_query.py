"""Tests of the search language for logs: the meaning of each text, without silent misreadings."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import MAX_DEPTH, MAX_QUERY, MAX_TERMS, MAX_WILDCARDS, parse_log_query
from jobmeter.model.log_tree import matches

LINES = [
    LogLine(time_ns=1, text="disk error on sda", node="n1", facility="kern", severity=3, tag="kernel", stream="kernel"),
    LogLine(time_ns=2, text="memory pressure or swap", node="n1", facility="user", severity=4, tag="oomd"),
    LogLine(time_ns=3, text="all is well", node="n1", facility="daemon", severity=6, tag="sshd", job="j1"),
    LogLine(
        time_ns=4,
        text="disk and memory not full",
        node="n2",
        facility="kern",
        level=Level.DEBUG,
        stream="file:/x/a.log",
    ),
    LogLine(time_ns=5, text="a|b rank=3 train.py:12 [app] a-v", node="n2", facility="local0"),
]


def found(text):
    query = parse_log_query(text)
    assert query is not None
    return [line.time_ns for line in LINES if matches(query, line)]


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("disk", [1, 4]),
        ("DISK memory", [4]),
        ("disk AND memory", [4]),
        ("disk and memory", [4]),
        ("disk && memory", [4]),
        ("disk&&memory", [4]),
        ("disk OR memory", [1, 2, 4]),
        ("disk or memory", [1, 2, 4]),
        ("disk|memory", [1, 2, 4]),
        ("disk | memory", [1, 2, 4]),
        ("disk || well", [1, 3, 4]),
        ("swap | disk memory", [2, 4]),  # AND binds more tightly than OR in every notation
        ("(swap | disk) memory", [2, 4]),
        ("(error|swap) disk", [1]),
        ("not disk", [2, 3, 5]),
        ("NOT(disk or memory)", [3, 5]),
        ("not not disk", [1, 4]),
        ("disk not memory", [1]),
        ("disk Or well", [1, 3, 4]),
        ('"or"', [2]),
        ('"not full"', [4]),
        ('disk "and"', [4]),
        ("err*", [1]),
        ("er?or", [1]),
        ("*ory", [2, 4]),
        ("m?mory f*", [4]),
        ("disk-err*", [1]),
        ('"err*"', []),
        ("*", [1, 2, 3, 4, 5]),
        ("**", [1, 2, 3, 4, 5]),
        ("* not disk", [2, 3, 5]),
        ("severity>=4", [2, 3, 4]),
        ("severity>4", [3, 4]),
        ("severity<=3", [1]),
        ("severity<4", [1]),
        ("severity >= 4 and severity <= 6", [2, 3]),
        ("severity:>=4", [2, 3, 4]),
        ("severity=3", [1]),
        ("severity==err", [1]),
        ("severity!=err", [2, 3, 4, 5]),
        ("severity:(err or warn)", [1, 2]),
        ("severity:err|warn", [1, 2]),
        ("severity:(>=4 and <7)", [2, 3]),
        ("severity:crit*|err*", [1]),
        ("level>=warning", [1, 2]),
        ("level<warning", [3, 4]),
        ("level:3", [1]),
        ("level:warn*", [2]),
        ("NodeId:n1", [1, 2, 3]),
        ("nodeid:n1 Hostname:n1", [1, 2, 3]),
        ("node:n?", [1, 2, 3, 4, 5]),
        ("Source:kernel", [1]),
        ("source:file:/x/*", [4]),
        ("TagPath:/x/a.log", [4]),
        ("tagpath:*", [4]),
        ('TagPath:""', [1, 2, 3, 5]),
        ("Syslogtag:sshd", [3]),
        ("tag:(sshd | oomd)", [2, 3]),
        ("tag:sshd|oomd", [2, 3]),
        ("tag:sshd|level:error", [1, 3]),
        ("tag:*d", [2, 3]),
        ("tag!=sshd", [1, 2, 4, 5]),
        ("tag!=(sshd or oomd)", [1, 4, 5]),
        ("tag:*", [1, 2, 3]),
        ('tag:""', [4, 5]),
        ("not tag:*", [4, 5]),
        ("tag : sshd", [3]),
        ("Facility:kern", [1, 4]),
        ("facility:local*", [5]),
        ("facility:0", [1, 4]),
        ("Severity:info", [3]),
        ("Msg:disk", [1, 4]),
        ('Msg:"disk error"', [1]),
        ("msg:(disk memory)", [4]),
        ("msg:(disk or well)", [1, 3, 4]),
        ("message:err*", [1]),
        ("job:j*", [3]),
        ("time_ns:3", [3]),
        ("time_ns>=1970-01-01T00:00:00Z", [1, 2, 3, 4, 5]),
        ("Time:0", [1, 2, 3, 4, 5]),
        ("attempt:0", [1, 2, 3, 4, 5]),
        ("rank=3", [5]),
        ("train.py:12", [5]),
        ('"a|b"', [5]),
        ("[app]", [5]),
        ("error: disk", [1]),
    ],
)
def test_a_search_means_what_it_looks_like(text, times):
    assert found(text) == times


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("Xid:79", ["unknown field 'Xid'", "Hostname", "quotation marks"]),
        ("loss>=3", ["unknown field 'loss'"]),
        ("loss!=3", ["unknown field 'loss'"]),
        ("error:(a or b)", ["unknown field 'error'"]),
        ("severity>=warning", ["severity<=3", "level>=warning"]),
        ("severity:loud", ["emerg", "debug", "0 to 7"]),
        ("severity:8", ["0 to 7"]),
        ("severity:lou*", ["emerg", "debug"]),
        ("severity:[3 TO 5]", ["severity>=3 and severity<=4"]),
        ("level:loud", ["warning"]),
        ("level>loud", ["warning"]),
        ("facility:kernel", ["kern", "local7"]),
        ("tag>=a", ["tag has no order"]),
        ("node<n3", ["node has no order"]),
        ("msg>=a", ["text has no order"]),
        ("tag=~ssh.*", ["=~ is not supported", "* and ?"]),
        ("tag!~ssh", ["!~ is not supported"]),
        ("tag:", ["tag: has no value"]),
        ("tag: ", ["tag: has no value"]),
        ("(tag:)", ["tag: has no value"]),
        ("tag:a|", ["a term is missing at the end"]),
        ("tag:(a b)", ["a line has one tag", "OR"]),
        ("tag>=(a)", ["takes one value"]),
        ("severity>=<3", ["is not a comparison"]),
        ("time:yesterday", ["2026-11-20T15:00:00Z"]),
        ("attempt:one", ["attempt 'one' is not a number"]),
        ("-error", ["write NOT word"]),
        ("disk +error", ["write NOT word"]),
        ('disk !"page fault"', ["write NOT word"]),
        ("-(a b)", ["write NOT word"]),
        ("/err.*/", ["regular expressions are not supported", "* and ?"]),
        ("eror~", ["fuzzy"]),
        ("eror~2 disk", ["fuzzy"]),
        ("disk^3", ["weights"]),
        ("a OR", ["a term is missing at the end"]),
        ("a or", ["a term is missing at the end", "quotation marks"]),
        ("or b", ["a term is missing before or"]),
        ("| b", ["a term is missing before |"]),
        ("a and and b", ["a term is missing before and"]),
        ("not", ["a term is missing at the end"]),
        ("()", ["a term is missing before )"]),
        ("(a", ["no closing one"]),
        ("a)", ["no opening one"]),
        ('"open', ["quotation mark is not closed"]),
        ("!!", ["no letter or digit"]),
        ('""', ["no letter or digit"]),
        ("a > b", ["no letter or digit"]),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(text, reasons):
    with pytest.raises(InvalidRequestError) as caught:
        parse_log_query(text, "Query")
    assert caught.value.field == "Query"
    assert caught.value.message.startswith("Query ")
    assert [reason for reason in reasons if reason not in caught.value.message] == [], caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "x" * (MAX_QUERY + 1),
        " ".join(["a"] * (MAX_TERMS + 1)),
        "severity:" + "|".join(["err"] * (MAX_TERMS + 1)),
        "(" * (MAX_DEPTH + 2) + "a" + ")" * (MAX_DEPTH + 2),
        "not " * (MAX_DEPTH + 2) + "a",
        "a?" * (MAX_WILDCARDS + 1),
        "tag:" + "a*" * (MAX_WILDCARDS + 1),
    ],
)
def test_every_size_of_a_search_has_a_limit(text):
    with pytest.raises(LimitExceededError) as caught:
        parse_log_query(text, "Query")
    assert caught.value.field == "Query"


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_search_is_none(text):
    assert parse_log_query(text) is None


@given(st.text(alphabet='ab*?|&!<>=:~^"()[]{}/\\-+ \ntagseverityANDorNOT0123', max_size=40))
def test_any_text_is_a_search_or_is_refused(text):
    with suppress(InvalidRequestError):
        query = parse_log_query(text)
        assert query is None or {matches(query, line) for line in LINES} <= {True, False}


@given(st.text(max_size=30))
def test_a_value_in_quotation_marks_is_compared_as_it_is(tag):
    quoted = tag.replace("\\", "\\\\").replace('"', '\\"')
    query = parse_log_query(f'tag:"{quoted}"')
    assert query is not None
    assert matches(query, LogLine(time_ns=1, text="x", node="n", facility="user", tag=tag))
    assert not matches(query, LogLine(time_ns=1, text="x", node="n", facility="user", tag=tag + "*"))


@given(st.lists(st.sampled_from(["a", "bb", "*", "?"]), min_size=1, max_size=30).map("".join), st.integers(0, 3000))
def test_no_pattern_makes_a_line_slow(pattern, size):
    line = LogLine(time_ns=1, text="ab" * size + "-" + "a" * size)
    query = parse_log_query(pattern)
    assert query is not None
    assert matches(query, line) in {True, False}

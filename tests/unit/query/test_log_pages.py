"""Tests of pages of lines during writes: no line comes twice, no earlier line is missing."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory_store import MemoryStore

from jobmeter.model.job import Node
from jobmeter.model.log import LogLine
from jobmeter.query.logs import make_selector, read_next_lines
from jobmeter.query.request import LogQuestion, NodeRef
from jobmeter.store.base import ReadBudget

LINES = st.lists(
    st.builds(
        lambda at, text: LogLine(time_ns=at, text=text, node="n", stream="kernel", facility="kern"),
        st.integers(0, 12),
        st.text("ab", max_size=3),
    ),
    max_size=30,
)


@given(first=LINES, later=st.lists(LINES, max_size=12), descending=st.booleans(), size=st.integers(1, 7))
def test_lines_that_are_written_meanwhile_move_nothing(first, later, descending, size):
    store = MemoryStore()
    store.logs.append(first)
    question = LogQuestion(ref=NodeRef("n"), descending=descending, limit=size)

    def ask(asked):
        return store.logs.read(make_selector(asked, [Node(name="n")]), ReadBudget())

    found, cursor, writes = [], None, iter(later)
    while True:
        lines, cursor = read_next_lines(ask, question, cursor)
        found += [line.order for line in lines]
        store.logs.append(next(writes, []))
        if cursor is None:
            break
    assert len(found) == len(set(found))
    assert {line.order for line in first} <= set(found)
    times = [order[0] for order in found]
    assert times == sorted(times, reverse=descending)


def test_more_lines_of_one_moment_than_a_cursor_names_come_once_too():
    store = MemoryStore()
    lines = [LogLine(time_ns=5, text=f"{at:04}", node="n", stream="kernel", facility="kern") for at in range(1000)]
    store.logs.append(lines)

    def ask(asked):
        return store.logs.read(make_selector(asked, [Node(name="n")]), ReadBudget())

    found, cursor = read_next_lines(ask, LogQuestion(ref=NodeRef("n"), limit=100), None)
    while cursor is not None:
        more, cursor = read_next_lines(ask, LogQuestion(ref=NodeRef("n"), limit=100), cursor)
        found += more
    assert found == lines

"""Tests of finding error lines in a log, with the frames of their tracebacks."""

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.cli.history import build_change_rows, select_error_blocks
from jobmeter.client.bodies import LogEntry, TimelineMoment

TRACEBACK = ("Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "ValueError: bad")
BLOCKS = st.sampled_from(
    [
        (("step 1 loss 0.5",), (False,)),
        (("  indented text of the program",), (False,)),
        (("",), (False,)),
        (("ERROR: disk full",), (True,)),
        (("Exception in thread main: x", "\tat com.example.Main(Main.java:3)"), (True, True)),
        (TRACEBACK, (True, True, True, True)),
        # An exception without a level in its name also ends its traceback.
        ((*TRACEBACK[:3], "KeyboardInterrupt"), (True, True, True, True)),
    ]
)
STATE_LEVELS = ("Traceback", "ValueError", "ERROR", "Exception in")


@given(st.lists(BLOCKS, max_size=8), st.sampled_from(["", "[rank3]: "]))
def test_exactly_the_error_lines_and_the_lines_of_their_tracebacks_are_selected(blocks, header):
    # The first traceback reveals the form of the header.
    blocks = [(TRACEBACK, (True, True, True, True)), *blocks]
    lines: list[LogEntry] = []
    wanted: list[LogEntry] = []
    before = False
    for texts, flags in blocks:
        for text, flag in zip(texts, flags, strict=True):
            # Indented text below an error belongs to the error.
            below = before and text.startswith((" ", "\t"))
            line = LogEntry(text=header + text, time=len(lines), time_ns=str(len(lines)), replica="w")
            lines.append(line)
            before = flag or below
            wanted += [line] if before else []
    errors = [line for line in lines if line.text.removeprefix(header).startswith(STATE_LEVELS)]
    assert select_error_blocks(lines, errors) == wanted


def test_error_lines_that_are_not_among_the_lines_come_first():
    # In a long log an error can lie outside the lines that are searched for frames.
    errors = [LogEntry(text=f"ERROR {at}", time=at, time_ns=str(at)) for at in range(3)]
    assert select_error_blocks([], errors) == errors
    assert select_error_blocks(errors[1:], errors) == errors


def test_a_change_of_several_nodes_has_one_row():
    def change(time, node, name="NodeUp", replica=""):
        return TimelineMoment(time=time, kind="node", name=name, text="t", replica=replica, node=node)

    moments = [change(1_000, "n1"), change(1_500, "n2"), change(1_900, "n3", "NodeDown"), change(2_000, "n1")]
    alone = change(2_100, "", "peak", "worker-0")
    assert [row[1:3] for row in build_change_rows([*moments, alone])] == [
        ("2 nodes", "NodeUp"),
        ("n3", "NodeDown"),
        ("n1", "NodeUp"),
        ("worker-0", "peak"),
    ]

"""Tests of log lines as columns: they equal the single lines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.model.log_batch import LogBatch

LINES = st.lists(
    st.builds(
        LogLine,
        time_ns=st.integers(0, 2**62),
        text=st.text(max_size=8),
        job=st.sampled_from(["", "j"]),
        replica=st.sampled_from(["", "worker-0"]),
        node=st.sampled_from(["n1", "n2"]),
        stream=st.sampled_from(["kernel", "stdout"]),
        level=st.sampled_from([None, *Level]),
        facility=st.sampled_from(["", "kern"]),
        severity=st.sampled_from([None, 0, 7]),
        tag=st.sampled_from(["", "sshd"]),
    ),
    max_size=12,
)


@given(LINES, LINES, st.data())
@settings(max_examples=80, deadline=None)
def test_a_batch_is_its_lines(first, second, data):
    batch = LogBatch.concatenate([LogBatch.from_lines(first), LogBatch.from_lines(second)])
    lines = first + second
    assert list(batch) == lines
    assert len(batch) == len(lines)
    assert [batch[place] for place in range(len(batch))] == lines
    assert batch.characters == sum(len(line.text) for line in lines)
    assert [source.key for source in batch.sources[: 1 if lines else 0]] == [line.key for line in lines[:1]]
    begin, end = sorted(data.draw(st.tuples(st.integers(0, len(lines)), st.integers(0, len(lines)))))
    assert list(batch[begin:end]) == lines[begin:end]
    chosen = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    assert list(batch.select(np.array(chosen, np.bool_))) == [
        line for line, own in zip(lines, chosen, strict=True) if own
    ]
    on_n1 = [source.node == "n1" for source in batch.sources]
    assert list(batch.select_sources(on_n1)) == [line for line in lines if line.node == "n1"]


@given(LINES)
@settings(max_examples=60, deadline=None)
def test_the_span_of_each_source_is_that_of_its_lines(lines):
    names = LogLine.__struct_fields__
    own: dict[object, list[int]] = {}
    for line in lines:
        key = tuple(getattr(line, name) for name in names if name not in {"time_ns", "text", "level"})
        own.setdefault(key, []).append(line.time_ns)
    found = {
        tuple(getattr(source, name) for name in names if name in source._fields): (first, last)
        for source, first, last in LogBatch.from_lines(lines).list_source_spans()
    }
    assert found == {key: (min(times), max(times)) for key, times in own.items()}


@pytest.mark.parametrize("time_ns", [2**63, -(2**63) - 1, 10**30])
def test_a_time_that_no_column_holds_is_named(time_ns):
    with pytest.raises(InvalidRequestError) as caught:
        LogBatch.from_lines([LogLine(time_ns=0, text="a"), LogLine(time_ns=time_ns, text="b")])
    assert caught.value.field == "time"
    assert str(time_ns) in caught.value.message

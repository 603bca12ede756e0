"""Tests of comparing answers: two are equal only if every value is."""

import pytest

from jobmeter.examples import compare


@pytest.mark.parametrize(
    ("native", "pai", "agree", "printed"),
    [
        ({("w", 0): 0.5, ("w", 1): 0.0}, {("w", 0): 50.0, ("w", 1): 0.0}, True, "all 2 values agree"),
        ({("w", 0): 0.5}, {("w", 0): 50.1}, False, "DIFFER"),
        ({("w", 0): 0.5}, {("w", 0): 50.0, ("v", 0): 1.0}, False, "DIFFER"),
        ({("w", 0): 0.5}, {}, False, "DIFFER"),
        ({}, {}, False, "no values"),
    ],
)
def test_agreement(monkeypatch, capsys, native, pai, agree, printed):
    monkeypatch.setattr(compare, "_native", lambda *_: native)
    monkeypatch.setattr(compare, "_pai_dlc", lambda *_: pai)
    same = compare.Same(compare.CPU, "j", 0, 1000, "1s")
    assert compare.compare_answers(None, None, same) is agree  # type: ignore[arg-type]
    assert printed in capsys.readouterr().out

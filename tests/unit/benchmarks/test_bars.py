"""What a bar says: a benchmark whose arithmetic is wrong would praise what is slow."""

import pytest
from benchmarks.row import AS_MANY, FASTER, HALF, OURS, TENTH, VICTORIA, Row, higher, joined, lower, verdicts
from benchmarks.show import bars, show


def figures(row: Row, ours: list[float], theirs: list[float]) -> Row:
    row.figures = {OURS: ours, VICTORIA: theirs}
    return row


@pytest.mark.parametrize(
    ("row", "ours", "theirs", "met"),
    [
        (lower("live", "ms", FASTER), [0.2], [0.25], True),
        (lower("live", "ms", FASTER), [0.25], [0.25], False),
        (lower("day", "ms", HALF), [2.5], [5.0], True),
        (lower("day", "ms", HALF), [2.6], [5.0], False),
        (lower("month", "ms", TENTH), [8.7], [87.0], True),
        (lower("month", "ms", TENTH), [9.0], [87.0], False),
        (higher("import", "samples/s", AS_MANY), [2e6], [2e6], True),
        (higher("import", "samples/s", AS_MANY), [1.9e6], [2e6], False),
        (higher("import", "samples/s", AS_MANY), [1e6, 3e6, 2.5e6], [2e6, 1e6, 4e6], True),
    ],
)
def test_the_medians_decide(row, ours, theirs, met):
    assert figures(row, ours, theirs).met() is met


def test_what_has_no_peer_or_no_bar_is_not_judged():
    alone = lower("live", "ms", FASTER)
    alone.add(OURS, 1.0)
    alone.add(VICTORIA, None)
    assert alone.met() is None
    assert figures(lower("memory", "MiB"), [1.0], [2.0]).met() is None
    (verdict,) = verdicts([[alone]])
    assert verdict.ratios == ()
    assert "not measured" in bars([verdict], 1)[1]


def test_each_run_is_judged_by_itself():
    runs = [[figures(lower("live", "ms", FASTER), [ours], [1.0])] for ours in (0.5, 0.8, 2.0)]
    (verdict,) = verdicts(runs)
    assert (verdict.met, verdict.ratios) == (2, (2.0, 1.25, 0.5))
    assert "met in 2 of 3" in bars([verdict], 3)[1]
    (row,) = joined(runs)
    assert row.figures[OURS] == [0.5, 0.8, 2.0]
    assert row.ratio(VICTORIA) == pytest.approx(1.25)


def test_the_table_says_which_bars_are_met():
    text = show([[figures(lower("live", "ms", FASTER), [2.0], [1.0]), figures(lower("day", "ms", HALF), [1], [4])]])
    assert "0.50x VictoriaMetrics" in text
    lines = {line.split()[0]: line for line in text.partition("\nbars")[2].splitlines()[1:]}
    assert "not met" in lines["live"]
    assert "not met" not in lines["day"]

"""Tests of the benchmark's bars: wrong arithmetic would praise slow results."""

import dataclasses

import pytest
from benchmarks import show
from benchmarks.row import (
    AS_MANY,
    FASTER,
    HALF,
    HALF_AS_MANY,
    OURS,
    TENTH,
    VICTORIA,
    Bar,
    Better,
    Result,
    Row,
    Table,
    at_least,
    joined,
    limit,
    verdict,
)
from benchmarks.rows import ROWS, chosen
from benchmarks.stages import STAGES


def row(bar: Bar | None, better: Better = Better.LOWER, key: str = "live.p50") -> Row:
    return Row(key, key, "ms", better, bar)


def filled(one: Row, ours: list[float], theirs: list[float]) -> Table:
    table = Table([one])
    for name, values in ((OURS, ours), (VICTORIA, theirs)):
        for value in values:
            table.add(one.key, name, value)
    return table


@pytest.mark.parametrize(
    ("bar", "better", "ours", "theirs", "met"),
    [
        (FASTER, Better.LOWER, [0.2], [0.25], True),
        (FASTER, Better.LOWER, [0.25], [0.25], False),
        (HALF, Better.LOWER, [2.5], [5.0], True),
        (HALF, Better.LOWER, [2.6], [5.0], False),
        (TENTH, Better.LOWER, [8.7], [87.0], True),
        (TENTH, Better.LOWER, [9.0], [87.0], False),
        (AS_MANY, Better.HIGHER, [2e6], [2e6], True),
        (AS_MANY, Better.HIGHER, [1.9e6], [2e6], False),
        (AS_MANY, Better.HIGHER, [1e6, 3e6, 2.5e6], [2e6, 1e6, 4e6], True),
        (HALF_AS_MANY, Better.HIGHER, [1e6], [2e6], True),
        (HALF_AS_MANY, Better.HIGHER, [0.9e6], [2e6], False),
        (limit(0.7, "s"), Better.LOWER, [0.7], [0.1], True),
        (limit(0.7, "s"), Better.LOWER, [0.8], [], False),
        (at_least(10, "lines/s"), Better.HIGHER, [10], [], True),
        (at_least(10, "lines/s"), Better.HIGHER, [9], [], False),
        (FASTER, Better.LOWER, [0.2], [], None),
        (None, Better.LOWER, [0.2], [0.3], None),
    ],
)
def test_the_medians_decide(bar, better, ours, theirs, met):
    (result,) = filled(row(bar, better), ours, theirs).results
    assert result.met() is met


def test_a_row_whose_answers_disagree_is_void():
    table = filled(row(FASTER), [0.1], [1.0])
    table.fail("live.", "")
    assert verdict(row(FASTER), [table]) == "met"
    table.fail("live.", "VictoriaMetrics disagrees: everything")
    assert table.results[0].met() is False
    text = show.text([table], {})
    assert "VOID" in text
    assert "live.p50 is void: VictoriaMetrics disagrees: everything" in text


@pytest.mark.parametrize(("theirs", "passed"), [([0.3], True), ([0.1], False), ([], False)])
def test_a_run_passes_when_every_bar_was_judged_and_met(theirs, passed):
    assert filled(row(FASTER), [0.2], theirs).passed is passed


def test_a_run_with_a_void_row_does_not_pass():
    table = Table([row(None)])
    assert table.passed
    table.fail("live.", "broken")
    assert not table.passed


def test_only_rows_that_begin_so_are_void():
    table = Table([row(FASTER), row(FASTER, key="loaded.p50")])
    table.fail("live.", "broken")
    assert [one.row.key for one in table.results] == ["live.p50"]


def test_each_run_is_judged_by_itself():
    tables = [filled(row(FASTER), [ours], [1.0]) for ours in (0.5, 0.8, 2.0)]
    assert verdict(row(FASTER), tables) == "met in 2 of 3"
    (result,) = joined(tables)
    assert result.figures[OURS] == [0.5, 0.8, 2.0]
    assert result.ratio(VICTORIA) == pytest.approx(1.25)
    assert "met in 2 of 3" in show.markdown(tables, {})


def test_the_table_has_a_line_a_row_with_medians_spread_ratio_bar_and_verdict():
    table = filled(row(FASTER), [2.0, 3.0, 2.5], [1.0])
    table.note("live.p50", "128 samples/s arrive")
    head, line, note = show.text([table], {VICTORIA: "1.145.0"}).splitlines()
    assert "VictoriaMetrics 1.145.0" in head
    assert line.split() == ["live.p50,", "ms", "2.5", "(2", "to", "3)", "1", "0.40", "faster", "NOT", "MET"]
    assert note == "live.p50: 128 samples/s arrive"
    assert show.markdown([table], {}).splitlines()[1].count("---") == 7


def test_each_row_has_a_key_of_its_own_and_a_stage_that_measures_it():
    assert len({one.key for one in ROWS}) == len(ROWS)
    assert {one.stage for one in ROWS} == set(STAGES)
    assert Table(ROWS).stages == list(STAGES)


def test_rows_are_chosen_by_key_or_by_how_it_begins():
    assert [one.key for one in chosen(["live.cached"])] == ["live.cached", "live.cached.rate"]
    assert {one.stage for one in chosen(["day", "bytes.raw"])} == {"day", "bytes"}
    assert chosen(None) == list(ROWS)
    with pytest.raises(ValueError, match="no row 'li'; the rows are "):
        chosen(["li"])


def test_figures_of_rows_that_were_not_chosen_are_dropped():
    table = Table(chosen(["live.p50"]))
    table.add("live.rate", OURS, 1.0)
    assert table.results == []
    assert dataclasses.asdict(Result(row(FASTER)))["row"]["key"] == "live.p50"

"""What goes first when there are too many answers, and what makes one worthless."""

from dataclasses import replace

from jobmeter.model.time import TimeRange
from jobmeter.query.answers import Answers, Witness
from jobmeter.query.layout import lay_out
from jobmeter.query.lines import Ranks
from jobmeter.query.request import By, JobRef, MetricQuery
from jobmeter.query.shape import Shape

LAYOUT = lay_out(Shape([]), By.JOB, Ranks.of(None), lasting=True)
WITNESS = Witness(LAYOUT, {}, 7, 1)


def _query(start: int) -> MetricQuery:
    return MetricQuery(subject=JobRef("j1"), metrics=("gpu.power",), range=TimeRange(start, 100), step_ms=10)


def test_the_answer_that_was_not_asked_for_longest_goes_first():
    answers = Answers(bound=30)
    for start in range(3):
        answers.put(_query(start), WITNESS, b"0123456789", 1)
    assert answers.get(_query(0), WITNESS) == (b"0123456789", 1)
    answers.put(_query(3), WITNESS, b"0123456789", 1)
    assert [answers.get(_query(start), WITNESS) is not None for start in range(4)] == [True, False, True, True]


def test_a_write_another_layout_another_limit_and_another_hour_each_end_an_answer():
    answers = Answers()
    answers.put(_query(0), WITNESS, b"x", 1)
    others = (
        replace(WITNESS, written=8),
        replace(WITNESS, hour=2),
        replace(WITNESS, limits={"cpu": 1.0}),
        replace(WITNESS, layout=lay_out(Shape([]), By.JOB, Ranks.of(None), lasting=True)),
    )
    assert [answers.get(_query(0), other) for other in others] == [None] * 4
    assert answers.get(_query(0), WITNESS) == (b"x", 1)


def test_an_answer_that_is_put_again_counts_once():
    answers = Answers(bound=25)
    for _ in range(5):
        answers.put(_query(0), WITNESS, b"0123456789", 1)
    answers.put(_query(1), WITNESS, b"0123456789", 1)
    assert answers.get(_query(0), WITNESS) is not None

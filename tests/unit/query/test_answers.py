"""Tests of the cache of answers: the order of eviction, and the changes that invalidate an answer."""

from msgspec.structs import replace

from jobmeter.model.time import TimeRange
from jobmeter.query.layout import lay_out
from jobmeter.query.lines import Ranks
from jobmeter.query.request import By, EncodedQuestion, JobRef, MetricQuery
from jobmeter.query.response_cache import ResponseCache, Validator, estimate_size
from jobmeter.query.selected_series import SelectedSeries
from jobmeter.store.cache import Cache

LAYOUT = lay_out(SelectedSeries([]), By.JOB, Ranks.from_view(None), range_independent=True)
VALIDATOR = Validator(LAYOUT, {}, 7, 1)


def _question(start: int, form: str = "pairs", replicas: frozenset[str] = frozenset()) -> EncodedQuestion:
    span = TimeRange(start, 100)
    query = MetricQuery(subject=JobRef("j1"), metrics=("gpu.power",), range=span, step_ms=10, replicas=replicas)
    return EncodedQuestion(query, form)


ONE = estimate_size(_question(0).query, b"0123456789") + 500


def test_the_answer_that_was_not_used_longest_goes_first():
    answers = ResponseCache(Cache(3 * ONE))
    for start in range(3):
        answers.put(_question(start), VALIDATOR, b"0123456789", 1)
    assert answers.get(_question(0), VALIDATOR) == (b"0123456789", 1)
    answers.put(_question(3), VALIDATOR, b"0123456789", 1)
    assert [answers.get(_question(start), VALIDATOR) is not None for start in range(4)] == [True, False, True, True]


def test_a_write_another_layout_another_limit_and_another_hour_each_end_an_answer():
    answers = ResponseCache(Cache())
    answers.put(_question(0), VALIDATOR, b"x", 1)
    others = (
        replace(VALIDATOR, written=8),
        replace(VALIDATOR, hour=2),
        replace(VALIDATOR, limits={"cpu": 1.0}),
        replace(VALIDATOR, layout=lay_out(SelectedSeries([]), By.JOB, Ranks.from_view(None), range_independent=True)),
    )
    assert [answers.get(_question(0), other) for other in others] == [None] * 4
    assert answers.get(_question(0), VALIDATOR) == (b"x", 1)


def test_an_answer_in_one_form_is_none_in_another():
    answers = ResponseCache(Cache())
    answers.put(_question(0), VALIDATOR, b"[[0,1.0]]", 1)
    assert answers.get(_question(0, "columns"), VALIDATOR) is None
    answers.put(_question(0, "columns"), VALIDATOR, b"[0],[1.0]", 1)
    assert answers.get(_question(0), VALIDATOR) == (b"[[0,1.0]]", 1)


def test_an_answer_that_is_put_again_counts_once():
    answers = ResponseCache(Cache(5 * ONE // 2))
    for _ in range(5):
        answers.put(_question(0), VALIDATOR, b"0123456789", 1)
    answers.put(_question(1), VALIDATOR, b"0123456789", 1)
    assert answers.get(_question(0), VALIDATOR) is not None


def test_short_answers_to_long_questions_are_bounded_too():
    cache = Cache(1_000_000)
    answers = ResponseCache(cache)
    for start in range(2_000):
        names = frozenset(f"worker-{start}-{number}" for number in range(start % 100))
        answers.put(_question(start % 100, replicas=names), VALIDATOR, b"{}", 1)
        assert cache.statistics.bytes <= 1_000_000
    assert 0 < cache.statistics.entries <= 500
